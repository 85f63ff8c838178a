"""The strategies there are, by name. A new one takes one line here, or an entry point of another distribution."""

from __future__ import annotations

from functools import partial

from phaze.errors import InputError
from phaze.explore.strategies.heuristic_searches import PhazeSearch, RandomSearch
from phaze.explore.strategies.search_strategy import SearchStrategy
from phaze.explore.strategies.wham.wham_search import WhamSearch
from phaze.plugins import Registry, lacking

_SAMPLERS = ("tpe", "gp", "nsga2", "cmaes")


def _sampled(name: str) -> SearchStrategy:
    # Optuna takes half a second to import, which only those who ask for one of its samplers should pay.
    from phaze.explore.sampling.sampled_study import Sampler
    from phaze.explore.strategies.sampler_search import SampledSearch

    return SampledSearch(Sampler(name))


def _fault(name: str, thing: object) -> str:
    """Reason why an object cannot be the strategy of a name; empty: none."""
    if fault := lacking(thing, "name", "seeded", "run"):
        return fault
    own = getattr(thing, "name", None)
    return "" if own == name else f"calls itself {own!r}"


STRATEGIES: Registry[SearchStrategy] = Registry(
    "phaze.strategies",
    "strategy",
    {
        "phaze": PhazeSearch,
        "wham": WhamSearch,
        "random": RandomSearch,
        **{name: partial(_sampled, name) for name in _SAMPLERS},
    },
    _fault,
)
"""With their default settings, in the order in which they are listed."""


def strategy(name: str) -> SearchStrategy:
    """The strategy of that name, ready to run.

    InputError lists the names there are, or says how to install a package that it needs.
    """
    found = STRATEGIES.find(name)
    if found is None:
        known = ", ".join(STRATEGIES.names())
        raise InputError(f"unknown strategy {name!r}; choose from certified, {known}")
    if name in _SAMPLERS:
        from phaze.explore.sampling.sampled_study import Sampler, check_sampler

        check_sampler(Sampler(name), objectives=1)
    return found
