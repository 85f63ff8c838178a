"""Which questions go together: one sentence where what is asked makes no sense, before anything is searched.

And what follows from a space: where it lets the stages of a pipeline differ, a search that does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from phaze.errors import InputError
from phaze.explore.metrics import metric
from phaze.explore.request import Designs, ExploreRequest, Objective, StrategyChoice

STAGES = "wham"
"""The strategy that gives every stage of a pipeline a design of its own."""


def resolved(request: ExploreRequest) -> ExploreRequest:
    """The request with the search that its space asks for: one design per stage where stages may differ."""
    choice, differ = request.strategy, request.space.heterogeneous
    if choice is None:
        if not differ:
            return request
        choice = StrategyChoice(STAGES, designs=Designs.PER_STAGE)
    own = Designs.PER_STAGE if differ and choice.name == STAGES else Designs.ONE
    return replace(request, strategy=replace(choice, designs=choice.designs or own))


def check(request: ExploreRequest) -> None:
    """Raises InputError where parts of a request contradict each other, or a name is not known."""
    for name in request.axes:
        metric(name)
    if request.strategy is not None:
        from phaze.explore.strategies.registry import strategy

        strategy(request.strategy.name)
    for sentence in _contradictions(request):
        raise InputError(sentence)


def _contradictions(request: ExploreRequest) -> Iterator[str]:
    if request.space.heterogeneous:
        yield from _of_stages(request)
    several = bool(request.others)
    if not request.objective.on_frontier:
        for given, what in (
            (several, "one --workload"),
            (request.strategy is not None, "the certified search: leave out --strategy"),
            (request.cluster is not None, f"a given number of devices: leave out {_cluster(request)}"),
        ):
            if given:
                yield f"--objective {request.objective} is for {what}"
    if request.cluster is not None and (several or request.objective is not Objective.THROUGHPUT):
        yield f"{_cluster(request)} takes one --workload and --objective throughput"
    if request.length is not None and several:
        yield "a training run (--tokens, --samples) is that of one --workload"
    yield from _of_strategy(request)
    yield from _of_axes(request)
    yield from _of_plans(request)
    if request.robust:
        yield from _of_robust(request)


def _cluster(request: ExploreRequest) -> str:
    """The option that leaves the number of devices free."""
    cost = request.cluster is not None and request.cluster.cost_usd is not None
    return "--cluster-cost" if cost else "--cluster-power"


def _of_stages(request: ExploreRequest) -> Iterator[str]:
    """Where the space lets the stages of a pipeline differ."""
    free = f"space {request.space.name} lets every stage have a design of its own"
    if request.strategy is not None and request.strategy.name != STAGES:
        yield f"{free}, which --strategy {STAGES} searches, not {request.strategy.name}"
    if request.others or request.axes or request.robust or request.cluster is not None:
        yield (
            f"{free}, which --strategy {STAGES} searches for one --workload on a given number of --devices, without "
            "--axes or --robust; set stages: alike for other questions"
        )


def _of_strategy(request: ExploreRequest) -> Iterator[str]:
    choice = request.strategy
    if choice is None:
        return
    if request.cluster is not None:
        yield f"--strategy searches for a given number of devices: leave out {_cluster(request)}"
    if choice.name != STAGES:
        if choice.designs is not Designs.ONE:
            yield f"--designs {choice.designs} needs --strategy wham"
        return
    if request.objective is Objective.TDP:
        yield "--strategy wham maximises throughput or throughput_per_tdp, not tdp"
    if request.others and choice.designs is Designs.PER_STAGE:
        yield "--designs per-stage is for one --workload"


def _of_axes(request: ExploreRequest) -> Iterator[str]:
    if not request.axes:
        return
    for name in ("score", "score_per_tdp"):
        if name in request.axes:
            yield f"--axes {name} is for several workloads, whose frontier is that of score against power anyway"
    if request.others:
        yield "--axes is for one --workload"
    if request.strategy is not None:
        yield "--axes is for the certified search: leave out --strategy"
    if request.cluster is not None:
        yield f"--axes is for a given number of devices: leave out {_cluster(request)}"


def _of_plans(request: ExploreRequest) -> Iterator[str]:
    """Where plans are those of a space of plans."""
    plans = request.task.plans
    if plans.whole != (frozenset(),) or plans.offloads != (frozenset(),):
        yield (
            f"space of plans {plans.name} leaves it open what stays whole or lies with hosts, which dse plan searches "
            "on one chip and dse run does not"
        )


def _of_robust(request: ExploreRequest) -> Iterator[str]:
    if request.others:
        yield "--robust is for one --workload"
    if request.strategy is not None:
        yield "--robust asks how far the certified answer holds: leave out --strategy"
    if request.cluster is not None:
        yield f"--robust is for a given number of devices: leave out {_cluster(request)}"
    if not request.objective.on_frontier:
        yield f"--robust is for throughput, throughput_per_tdp or tdp, not --objective {request.objective}"
    if request.min_throughput is not None or request.max_latency_s is not None:
        yield "--robust knows no floor: leave out --min-throughput and --max-latency"
