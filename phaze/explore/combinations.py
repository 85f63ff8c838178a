"""Which questions go together: one sentence where what is asked makes no sense, before anything is searched."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.errors import InputError
from phaze.explore.metrics import metric
from phaze.explore.request import Designs, ExploreRequest, Objective
from phaze.explore.strategies.registry import strategy


def check(request: ExploreRequest) -> None:
    """Raises InputError where parts of a request contradict each other, or a name is not known."""
    for name in request.axes:
        metric(name)
    if request.strategy is not None:
        strategy(request.strategy.name)
    for sentence in _contradictions(request):
        raise InputError(sentence)


def _contradictions(request: ExploreRequest) -> Iterator[str]:
    several = bool(request.others)
    if not request.objective.on_frontier:
        for given, what in (
            (several, "one --workload"),
            (request.strategy is not None, "the certified search: leave out --strategy"),
            (request.cluster is not None, "a given number of devices: leave out --cluster-power"),
        ):
            if given:
                yield f"--objective {request.objective} is for {what}"
    if request.cluster is not None and (several or request.objective is not Objective.THROUGHPUT):
        yield "--cluster-power takes one --workload and --objective throughput"
    if request.length is not None and several:
        yield "a training run (--tokens, --samples) is that of one --workload"
    yield from _of_strategy(request)
    yield from _of_axes(request)
    if request.robust:
        yield from _of_robust(request)


def _of_strategy(request: ExploreRequest) -> Iterator[str]:
    choice = request.strategy
    if choice is None:
        return
    if request.cluster is not None:
        yield "--strategy searches for a given number of devices: leave out --cluster-power"
    if choice.name != "wham":
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
        yield "--axes is for a given number of devices: leave out --cluster-power"


def _of_robust(request: ExploreRequest) -> Iterator[str]:
    if request.others:
        yield "--robust is for one --workload"
    if request.strategy is not None:
        yield "--robust asks how far the certified answer holds: leave out --strategy"
    if request.cluster is not None:
        yield "--robust is for a given number of devices: leave out --cluster-power"
    if not request.objective.on_frontier:
        yield f"--robust is for throughput, throughput_per_tdp or tdp, not --objective {request.objective}"
    if request.min_throughput is not None or request.max_latency_s is not None:
        yield "--robust knows no floor: leave out --min-throughput and --max-latency"
