"""The whole explanation of a run, and why a known chip in the same budget is slower: the ratio of throughputs as a
product of factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from phaze.errors import InputError
from phaze.explore.documents.explanation_document import (
    Against,
    Binding,
    BudgetStep,
    Explanation,
    Factor,
    LayerBottleneck,
)
from phaze.explore.documents.result_document import Comparison, Design, ResultDocument, WorkloadResult
from phaze.explore.explaining.budget_steps import fastest, less_power, more_budget
from phaze.explore.explaining.explained_winner import ExplainedWinner
from phaze.explore.explaining.layer_bottlenecks import layer_bottlenecks
from phaze.explore.explaining.parameter_sensitivity import sensitivity
from phaze.explore.explaining.winner_neighbours import binding_limits, neighbours
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.search_progress import Clock, Progress, SilentProgress
from phaze.hardware.architecture import Architecture, list_architectures, load_architecture, to_table
from phaze.hardware.derived_figures import macs, narrow_speed, peak_clock_hz
from phaze.quantity import spelled
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, RETOLD

_PARTS = {
    "waiting for HBM": "memory_s",
    "waiting for the global buffer": "global_buffer_s",
    "collectives and transfers": "collective_s",
    "pipeline bubble": "bubble_s",
    "optimizer step": "optimizer_s",
}
_PRODUCTS = "products per unit and cycle"
_TOLD = 3  # factors in the sentence
_ALIKE = 0.005  # a factor this close to 1 is not worth a word


def against_chips(best: Design, comparison: Sequence[Comparison]) -> list[Against]:
    """Every known chip that keeps the budgets and holds the model, the fastest first."""
    known = list_architectures()
    rows = [_against(best, row, row.result) for row in comparison if row.result and row.name in known]
    return sorted(rows, key=lambda row: row.ratio)


def kept_shares(result: WorkloadResult) -> dict[str, float]:
    """Share of the peak that one workload keeps, by cause; the product is its model FLOPs utilisation.

    Where every kernel waits for HBM, as in decode, that wait counts as its arithmetic.
    """
    spent = result.breakdown
    if not spent.compute_s:
        spent = spent.model_copy(update={"compute_s": spent.memory_s, "memory_s": 0.0})
    used = result.devices_used / result.devices
    shares = {
        "devices in use": used,
        "computing at peak": result.iteration_time_s * result.mfu / used / spent.compute_s,
    }
    so_far = spent.compute_s
    for name, part in _PARTS.items():
        before, so_far = so_far, so_far + getattr(spent, part)
        shares[name] = before / so_far
    return shares


def _against(best: Design, chip: Comparison, result: WorkloadResult) -> Against:
    own = next(iter(best.workloads.values()))
    ours = _peak(Architecture(name=best.id, fields=best.architecture), own) | kept_shares(own)
    published = load_architecture(chip.name)
    theirs = _peak(published.replace(chip.name, clock_hz=chip.clock_hz), result)
    theirs |= kept_shares(result)
    if ours[_PRODUCTS] == theirs[_PRODUCTS]:
        del ours[_PRODUCTS]
    factors = [Factor(name=n, winner=ours[n], other=theirs[n], ratio=ours[n] / theirs[n]) for n in ours]
    ratio = own.throughput_samples_per_s / result.throughput_samples_per_s
    return Against(
        name=chip.name,
        note=chip.note,
        throughput_samples_per_s=result.throughput_samples_per_s,
        tdp_w=chip.tdp_w,
        ratio=ratio,
        factors=factors,
        sentence=_sentence(chip.name, ratio, factors),
    )


def _peak(architecture: Architecture, result: WorkloadResult) -> dict[str, float]:
    table, recipe = to_table([architecture]), result.placement.recipe
    return {
        "multiply-accumulate units": float(macs(table)[0]),
        "clock": float(peak_clock_hz(table)[0]),
        _PRODUCTS: float(narrow_speed(table, recipe.operands)[0]) if recipe else 1.0,
    }


def _sentence(name: str, ratio: float, factors: Sequence[Factor]) -> str:
    """The factors that weigh most, and what the others make together."""
    told = sorted(factors, key=lambda factor: -abs(math.log(factor.ratio)))[:_TOLD]
    told = [factor for factor in told if abs(factor.ratio - 1) > _ALIKE]
    rest = ratio / math.prod(factor.ratio for factor in told)
    parts = [f"{factor.ratio:.3f} for {factor.name}" for factor in told]
    if abs(rest - 1) > _ALIKE or not parts:
        parts.append(f"{rest:.3f} for everything else")
    return f"the winner is {ratio:.3f} times as fast as {name}: {' x '.join(parts)}"


PATIENCE_S = 600.0  # schedules are limited by states, which is reproducible; a few seconds are the rule


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
    report = progress or SilentProgress()
    best, name = document.best, request.task.workload.name
    winner = ExplainedWinner.of(request, document, SolveLimits(Clock(PATIENCE_S).left, FEW_STATES))
    report.update("explaining", 0, 4, "the winner")
    _check(winner, document)
    report.update("explaining", 1, 4, "its neighbours")
    around = neighbours(winner)
    limits = binding_limits(around)
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


def _check(winner: ExplainedWinner, document: ResultDocument) -> None:
    told = document.best.workloads[winner.task.workload.name].throughput_samples_per_s
    if abs(winner.throughput / told - 1.0) > RETOLD and document.certificate.optimal:
        raise InputError(
            f"the run says {told:.6g} samples/s of {document.best.id}, this version of the model "
            f"{winner.throughput:.6g}; run it again and explain that"
        )


def _summary(
    winner: ExplainedWinner,
    limits: Sequence[Binding],
    layers: Sequence[LayerBottleneck],
    chips: Sequence[Against],
) -> str:
    """Summary in one sentence: what binds, where the time goes, and how far behind the best known chip is."""
    most = layers[0]
    parts = [
        f"{winner.architecture.name} is held back by {_held_back_by(limits)}",
        f"its layers spend {100 * most.share_of_layers:.0f} % of their time in {most.layer}, {most.direction} "
        f"(mostly {most.bound_by.replace('_', ' ')})",
    ]
    if chips:
        parts.append(chips[0].sentence)
    return "; ".join(parts)


def _held_back_by(limits: Sequence[Binding]) -> str:
    if not limits:
        return "no limit: one step along no axis would be better"
    first = limits[0]
    *others, last = (" with ".join(map(spelled, axis.split("+"))) for axis in first.axes)
    which = f"{', '.join(others)} or {last}" if others else last
    return f"{first.limit} (one step in {which} would give up to {100 * first.best_gain:.1f} % more)"
