"""Why a known chip in the same budget is slower: the ratio of throughputs as a product of factors.

Throughput x model FLOPs per sample = devices x multiply-accumulate units x 2 x clock x what is kept of that peak,
and where linear layers run in few bits x the products that a unit then makes in a cycle.
Kept are: of the devices, those that hold a part of the model; of their time, what full arrays would need of the
time spent computing; and then, as the other parts of the iteration are added one by one, what each leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from phaze.explore.document import Comparison, Design, WorkloadResult
from phaze.explore.explaining.document import Against, Factor
from phaze.hardware.architecture import Architecture, list_architectures, load_architecture, to_table
from phaze.hardware.derived import macs, narrow_speed, peak_clock_hz

_PARTS = {
    "waiting for memory": "memory_s",
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
    """What one workload keeps of the peak, by cause; the product is its model FLOPs utilisation.

    Where every kernel waits for memory, as in decode, that wait counts as its arithmetic.
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
    theirs = _peak(published.replace(chip.name, clock_hz=chip.clock_hz, peak_clock_hz=chip.clock_hz), result)
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
    parts = [f"x {factor.ratio:.2f} for {factor.name}" for factor in told]
    if abs(rest - 1) > _ALIKE or not parts:
        parts.append(f"x {rest:.2f} for the rest")
    return f"the winner is {ratio:.2f} x as fast as {name}: {', '.join(parts)}"
