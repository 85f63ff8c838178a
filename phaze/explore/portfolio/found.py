"""The searches behind one common design: every workload's own optimum, then the common one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.explore.candidates import Candidates
from phaze.explore.evaluator import Evaluator
from phaze.explore.goal import below_floor, floor_throughput
from phaze.explore.means import ALONE, Means
from phaze.explore.portfolio.merit import Combine, Rule
from phaze.explore.portfolio.optima import Own, own_optima
from phaze.explore.portfolio.search import Outcome, PortfolioSearch
from phaze.explore.progress import Clock, Progress
from phaze.explore.request import ExploreRequest
from phaze.explore.strategies.oracle import Evaluation, Oracle


@dataclass(frozen=True)
class Found:
    """What the searches of a portfolio found: own optima, the rule made of them, seeds evaluated, the outcome."""

    request: ExploreRequest
    candidates: Candidates
    own: tuple[Own, ...]
    rule: Rule
    seeds: dict[int, Evaluation]
    outcome: Outcome


def search_portfolio(
    request: ExploreRequest, progress: Progress, clock: Clock, means: Means = ALONE
) -> Found:
    """The own optimum of every workload, then the common one."""
    weights = check_weights(request)
    own = own_optima(request, progress, clock, means)
    candidates = Candidates(request.space, request.budgets)
    rule = Rule(
        request.combine,
        weights,
        tuple(o.optimum.throughput_samples_per_s for o in own),
        tuple(floor_throughput(request, task) for task in request.tasks),
    )
    oracle = Oracle(candidates, request.tasks, rule, clock, means)
    progress.update("seeding", 0, 1, "each workload's frontier on the others")
    numbers = list(dict.fromkeys(n for o in own for n in o.seeds))
    seeds = dict(zip(numbers, oracle.evaluate(numbers), strict=True))
    anywhere = candidates.table(np.array(numbers[:1]))
    outcome = PortfolioSearch(
        candidates,
        [Evaluator(task, anywhere, recall=means.recall) for task in request.tasks],
        rule,
        [o.optimum.upper_bound_samples_per_s for o in own],
        clock,
        progress,
        request.gap,
    ).run(seeds.values())
    if not outcome.evaluated:
        raise _nothing(request, own, outcome)
    return Found(request, candidates, own, rule, seeds, outcome)


def check_weights(request: ExploreRequest) -> tuple[float, ...]:
    """One weight per workload. Raises InputError where names repeat or weights have no meaning."""
    names = [task.workload.name for task in request.tasks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"workload {name!r} is given {names.count(name)} times; use --weight {name}=2")
    if request.weights and request.combine is Combine.WORST:
        raise InputError("weights have no meaning with --combine worst: the smallest ratio counts")
    weights = request.weights or (1.0,) * len(names)
    if len(weights) != len(names) or not all(0 < w < np.inf for w in weights):
        raise InputError(f"{len(names)} workloads need {len(names)} weights, each greater than zero")
    return weights


def _nothing(
    request: ExploreRequest, own: Sequence[Own], outcome: Outcome
) -> InfeasibleError | OutOfTimeError:
    for task, o in zip(request.tasks, own, strict=True):
        if o.optimum.upper_bound_samples_per_s < floor_throughput(request, task):
            return below_floor(request, task, o.optimum.throughput_samples_per_s)
    if outcome.finished:
        names = ", ".join(task.workload.name for task in request.tasks)
        return InfeasibleError(
            f"no architecture of space {request.space.name} within the budgets suits all of {names}; "
            "lower floors, more --devices or larger HBM stacks (--space) would help"
        )
    return OutOfTimeError("the time limit passed before any common design was evaluated; raise --time-limit")
