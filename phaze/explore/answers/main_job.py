"""Jobs of the product: explore a space, evaluate one architecture. Which questions go together, which search
answers each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError, OutOfTimeError
from phaze.explore.answers.answer_parts import Answer
from phaze.explore.answers.certificate_counts import PointCounts, certificate
from phaze.explore.answers.exploration import Exploration
from phaze.explore.answers.training_run import training_run
from phaze.explore.documents.result_document import (
    Design,
    FrontierPoint,
    ResultDocument,
)
from phaze.explore.documents.result_manifest import describe_task, manifest, scope
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.sample_costs import cost_columns
from phaze.explore.evaluation.task_costs import check_measured
from phaze.explore.request.design_metrics import check_tokens, metric
from phaze.explore.request.explore_request import (
    Designs,
    ExploreRequest,
    Objective,
    StrategyChoice,
    Task,
    only_on_given_chips,
)
from phaze.explore.request.search_progress import Clock, ClockShare, Progress, SilentProgress
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.hardware.architecture import Architecture
from phaze.hardware.spaces.clock_steps import CLOCK
from phaze.workload.workload import Mode

if TYPE_CHECKING:
    from phaze.explore.documents.robustness_document import Robustness


STAGES = "wham"
"""The strategy that gives every stage of a pipeline a design of its own."""


def resolve_strategy(request: ExploreRequest) -> ExploreRequest:
    """The request with the search that its space asks for: one design per stage where stages may differ."""
    choice, differ = request.strategy, request.space.heterogeneous
    if choice is None:
        if not differ:
            return request
        choice = StrategyChoice(STAGES, designs=Designs.PER_STAGE)
    own = Designs.PER_STAGE if differ and choice.name == STAGES else Designs.ONE
    return replace(request, strategy=replace(choice, designs=choice.designs or own))


def check_combinations(request: ExploreRequest) -> None:
    """Raises InputError where parts of a request contradict each other, or a name is not known."""
    for name in request.axes:
        metric(name)
    check_tokens([request.objective.value, *request.axes], request.task.workload)
    if request.strategy is not None:
        from phaze.explore.strategies.strategy_registry import strategy

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
    if request.budgets.dvfs and CLOCK in request.space.fields_varied:
        yield f"--dvfs lowers the clock of every design from one, but space {request.space.name} varies it"
    if request.length is not None and several:
        yield "a training run (--tokens, --samples) is that of one --workload"
    yield from _of_strategy(request)
    yield from _of_axes(request)
    yield from _of_plans(request)
    if request.robust:
        yield from _of_robust(request)
    if request.budgets.drawn_limit_w is not None:
        yield from _of_sustained(request)
    if request.two_designs:
        yield from _of_two_designs(request)
    if request.space.network_axes is not None:
        yield from _of_networks(request)


def _of_networks(request: ExploreRequest) -> Iterator[str]:
    """Where the space has networks."""
    for given, what in (
        (bool(request.others), "one --workload"),
        (request.strategy is not None, "the certified search: leave out --strategy"),
        (request.cluster is not None, f"a given number of devices: leave out {_cluster(request)}"),
        (request.objective not in OF_NETWORKS, f"--objective {', '.join(OF_NETWORKS)}"),
        (bool(request.axes), "the objective alone: leave out --axes"),
        (request.two_designs, "--designs one"),
        (request.budgets.drawn_limit_w is not None, "--power-means tdp"),
        (request.budgets.dvfs, "architectures at their own clock: leave out --dvfs"),
    ):
        if given:
            yield f"space {request.space.name} searches networks, too, which is for {what}"


OF_NETWORKS = (
    *(Objective.THROUGHPUT, Objective.COST_PER_SAMPLE, Objective.COST_PER_MILLION_TOKENS),
    *(Objective.CARBON_PER_SAMPLE, Objective.CARBON_PER_MILLION_TOKENS),
)
"""Objectives that tell networks apart and that the best of several bounds."""


def _of_two_designs(request: ExploreRequest) -> Iterator[str]:
    """Where every stage may have one of two designs."""
    for given, what in (
        (bool(request.others), "one --workload"),
        (request.task.workload.mode is not Mode.TRAINING, "training"),
        (request.strategy is not None, "the certified search: leave out --strategy"),
        (request.cluster is not None, f"a given number of devices: leave out {_cluster(request)}"),
        (request.objective is not Objective.THROUGHPUT or bool(request.axes), "--objective throughput alone"),
        (request.budgets.drawn_limit_w is not None, "--power-means tdp"),
        (request.task.recipe is not None, "linear layers in one precision: --recipe none"),
        (request.space.heterogeneous, "spaces with stages: alike"),
    ):
        if given:
            yield f"--designs 2 is for {what}"


def _of_sustained(request: ExploreRequest) -> Iterator[str]:
    """Where power is what the plan draws, so that only plans tell of it."""
    for given, what in (
        (bool(request.others), "one --workload"),
        (request.strategy is not None, "the certified search: leave out --strategy"),
        (request.cluster is not None, f"a given number of devices: leave out {_cluster(request)}"),
        (request.robust, "a search without --robust"),
        (request.space.heterogeneous, "spaces with stages: alike"),
        (request.lean, "another objective than memory"),
    ):
        if given:
            yield f"--power-means sustained is for {what}"


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
    if (why := only_on_given_chips(plans)) is not None:
        yield why


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


__all__ = ["Answer", "evaluate", "evaluate_document", "explore"]

ROBUST_S = 15.0  # time to look for near-optimal designs beyond the time limit, or as long as it is again
SCENARIO_SHARE = 2.0  # of the time limit, at least, for near-optimal designs and scenarios: 100 s for GPT-3


def explore(
    request: ExploreRequest,
    progress: Progress | None = None,
    clock: Clock | None = None,
    resources: SearchResources = ALONE,
) -> Answer:
    """The best architecture of a space under budgets, with a certificate and the whole frontier.

    Several workloads: the best common design. A budget for the cluster: the best number of devices, too. A space
    whose stages may differ: a design for every stage, beside the best one for all. `resources` save time only.

    Raises InputError where parts of the request contradict each other, InfeasibleError where nothing keeps the
    budgets or fits in memory, OutOfTimeError where the time limit passes before anything is known.
    """
    request = resolve_strategy(request)
    check_combinations(request)
    for task in request.tasks:
        check_measured(task, request.space)
    report, timer = progress or SilentProgress(), clock or Clock(request.time_limit_s)
    first = ClockShare(timer.left() / 2, whole=timer) if request.two_designs else timer
    answer = _searched(request, report, first, resources)
    document = answer.document
    update: dict[str, Any] = {}
    if request.two_designs:
        from phaze.explore.answers.two_designs import TwoDesignsAnswer

        update["two_designs"] = TwoDesignsAnswer(request, document, timer, report).answer()
    if request.length is not None:
        update["training_run"] = training_run(request.length, request.task, document.best)
    if request.robust:
        update["robustness"] = _robustness(request, document, report, timer)
    return replace(answer, document=document.model_copy(update=update)) if update else answer


def _robustness(
    request: ExploreRequest, document: ResultDocument, report: Progress, timer: Clock
) -> Robustness | None:
    """How far the answer holds, on its network, in the time that is left; None where that was not enough."""
    from phaze.explore.answers.network_exploration import within_network
    from phaze.explore.robustness.robust_answer import judge_robustness

    left, limit = timer.left(), request.time_limit_s
    clock = ClockShare(max(left, min(ROBUST_S, limit)), whole=timer)
    scenarios = ClockShare(max(left, SCENARIO_SHARE * limit), whole=timer)
    try:
        return judge_robustness(
            within_network(request, document),
            document.certificate.objective_value,
            clock=clock,
            enough=lambda _: scenarios.over,
            progress=report,
        )
    except OutOfTimeError:
        return None  # the answer stands without it


def _searched(request: ExploreRequest, report: Progress, timer: Clock, resources: SearchResources) -> Answer:
    # What a request does not ask for is not loaded.
    if request.space.network_axes is not None:
        from phaze.explore.answers.network_exploration import NetworkExploration

        return NetworkExploration(request, report, timer, resources).answer()
    if request.cluster is not None:
        from phaze.explore.answers.cluster_exploration import explore_cluster

        return explore_cluster(request, request.cluster, report, timer, resources)
    if request.strategy is not None:
        from phaze.explore.answers.strategy_exploration import explore_by_strategy

        return explore_by_strategy(request, request.strategy, report, timer, resources)
    if request.others:
        from phaze.explore.answers.portfolio_exploration import CommonExploration

        return CommonExploration(request, report, timer, resources).answer()
    if request.lean:
        from phaze.explore.answers.least_memory_exploration import LeanExploration

        return LeanExploration(request, report, timer, resources).answer()
    return Exploration(request, report, timer, resources).answer()


def evaluate(task: Task, architecture: Architecture, *, tdp_margin: float = 1.0) -> Design:
    """One architecture under its best placement (or within the degrees the task fixes).

    Raises InfeasibleError where the workload does not fit.
    """
    return DesignBuilder(task, tdp_margin).best(architecture)


def evaluate_document(task: Task, architecture: Architecture, *, tdp_margin: float = 1.0) -> ResultDocument:
    """The same as a result document: a space of one architecture, whose points are its placements."""
    started, clock = datetime.now(UTC), Clock(float("inf"))
    builder = DesignBuilder(task, tdp_margin)
    design, points = builder.best_of(architecture)
    result = design.workloads[task.workload.name]
    fallen = {"path": points.total - points.evaluated}
    proven = certificate(
        Objective.THROUGHPUT.value,
        result.throughput_samples_per_s,
        [task.cluster.global_batch / points.lower_s],
        PointCounts(points.total, 0, points.evaluated, fallen),
        scope(task),
        complete=True,
    )
    proven = proven.model_copy(update={"frontier_complete": proven.optimal})
    return ResultDocument(
        request=describe_task(task) | {"architecture": architecture.name},
        best=design,
        certificate=proven,
        frontier=[only_point(design, task)],
        next_best=[],
        comparison=[],
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def only_point(design: Design, task: Task) -> FrontierPoint:
    """A design as the point of a frontier."""
    result = design.workloads[task.workload.name]
    return FrontierPoint(
        id=design.id,
        throughput_samples_per_s=result.throughput_samples_per_s,
        tdp_w=design.tdp_w,
        area_mm2=design.area_mm2,
        energy_per_sample_j=result.energy_per_iteration_j / result.global_batch,
        memory_bytes=result.memory_bytes,
        mfu=result.mfu,
        **cost_columns(result.cost),
        architecture=design.architecture,
    )
