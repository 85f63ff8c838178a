"""The strategies there are, by name. A new one takes one line here."""

from __future__ import annotations

from phaze.errors import InputError
from phaze.explore.strategies.heuristic_searches import PhazeSearch, RandomSearch
from phaze.explore.strategies.search_strategy import SearchStrategy
from phaze.explore.strategies.wham.wham_search import WhamSearch


def strategies() -> dict[str, SearchStrategy]:
    """All of them with their default settings, in the order in which they are listed."""
    # Optuna takes half a second to import, which only those who ask for a strategy should pay.
    from phaze.explore.sampling.sampled_study import Sampler
    from phaze.explore.strategies.sampler_search import SampledSearch

    samplers = (Sampler.TPE, Sampler.GP, Sampler.NSGA2, Sampler.CMAES)
    listed: tuple[SearchStrategy, ...] = (
        PhazeSearch(),
        WhamSearch(),
        RandomSearch(),
        *(SampledSearch(sampler) for sampler in samplers),
    )
    return {strategy.name: strategy for strategy in listed}


def strategy(name: str) -> SearchStrategy:
    """The strategy of that name, ready to run.

    InputError lists the names there are, or says how to install a package that it needs.
    """
    from phaze.explore.sampling.sampled_study import check_sampler
    from phaze.explore.strategies.sampler_search import SampledSearch

    known = strategies()
    if name not in known:
        raise InputError(f"unknown strategy {name!r}; choose from certified, {', '.join(known)}")
    found = known[name]
    if isinstance(found, SampledSearch):
        check_sampler(found.sampler, objectives=1)
    return found
