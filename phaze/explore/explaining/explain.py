"""The whole explanation of a run."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.errors import InputError
from phaze.explore.document import ResultDocument
from phaze.explore.explaining.against import against_chips
from phaze.explore.explaining.bottlenecks import layer_bottlenecks
from phaze.explore.explaining.budgets import fastest, less_power, more_budget
from phaze.explore.explaining.document import Against, Binding, BudgetStep, Explanation, LayerBottleneck
from phaze.explore.explaining.neighbours import binding, neighbours
from phaze.explore.explaining.sensitivity import sensitivity
from phaze.explore.explaining.winner import Winner
from phaze.explore.progress import Clock, Progress, Silent
from phaze.explore.request import ExploreRequest
from phaze.scheduling.passes import Effort

STATES = 500  # of one schedule search; most are proven by then
PATIENCE_S = 600.0  # schedules are limited by states, which is reproducible; a few seconds are the rule
_SAME = 1e-6  # relative; what a run and a new evaluation of its winner may differ by


def explain(
    request: ExploreRequest,
    document: ResultDocument,
    progress: Progress | None = None,
    search_s: float | None = None,
) -> Explanation:
    """Why the winner of `document`, the answer to `request`, is what it is.

    `search_s`: also search under larger budgets, each search for so many seconds. Of several workloads the
    first is explained. Raises InputError where the model says something else of the winner than the run does.
    """
    report = progress or Silent()
    best, name = document.best, request.task.workload.name
    winner = Winner.of(request, document, Effort(Clock(PATIENCE_S).left, STATES))
    report.update("explaining", 0, 4, "the winner")
    _check(winner, document)
    report.update("explaining", 1, 4, "its neighbours")
    around = neighbours(winner)
    limits = binding(around)
    report.update("explaining", 2, 4, "its layers")
    layers = layer_bottlenecks(winner)
    report.update("explaining", 3, 4, "what it is sensitive to")
    sensitive = sensitivity(winner)
    chips = against_chips(best, document.comparison)
    result = best.workloads[name]
    throughputs = fastest(request, document, search_s, report)
    budgets: Sequence[BudgetStep] = less_power(request, throughputs) if throughputs else []
    if search_s is not None and throughputs:
        budgets = [*budgets, *more_budget(request, throughputs, search_s, report)]
    return Explanation(
        summary=_summary(winner, limits, layers, chips),
        id=best.id,
        workload=name,
        objective=request.objective.value,
        throughput_samples_per_s=winner.throughput,
        tdp_w=best.tdp_w,
        area_mm2=best.area_mm2,
        binding=limits,
        neighbours=around,
        layers=layers,
        breakdown={
            part: seconds / result.iteration_time_s for part, seconds in result.breakdown.spent.items()
        },
        sensitivity=sensitive,
        budgets=list(budgets),
        against=chips,
    )


def _check(winner: Winner, document: ResultDocument) -> None:
    told = document.best.workloads[winner.task.workload.name].throughput_samples_per_s
    if abs(winner.throughput / told - 1.0) > _SAME and document.certificate.optimal:
        raise InputError(
            f"the run says {told:.6g} samples/s of {document.best.id}, this version of the model "
            f"{winner.throughput:.6g}; run it again and explain that"
        )


def _summary(
    winner: Winner, limits: Sequence[Binding], layers: Sequence[LayerBottleneck], chips: Sequence[Against]
) -> str:
    """What binds, where the time goes, and how far behind the best known chip is, in one sentence."""
    most = layers[0]
    parts = [
        f"{winner.architecture.name} is stopped by {_stopped_by(limits)}",
        f"its layers spend {100 * most.share_of_layers:.0f} % of their time in {most.layer}, {most.direction} "
        f"(mostly {most.bound_by.replace('_', ' ')})",
    ]
    if chips:
        parts.append(chips[0].sentence)
    return "; ".join(parts)


def _stopped_by(limits: Sequence[Binding]) -> str:
    if not limits:
        return "no limit: no neighbour is better"
    first = limits[0]
    which = ", ".join(axis.replace("_", " ") for axis in first.axes)
    return f"{first.limit} (along {which}: up to {100 * first.best_gain:+.1f} %)"
