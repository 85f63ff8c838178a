"""Operators under the roofs of the chip: FLOP per byte of HBM traffic, and the rate they reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, macs, narrow_speed, vector_flops_per_s
from phaze.scheduling.layer_schedule import LayerSchedule
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.work import Unit


@dataclass(frozen=True, slots=True)
class Roofs:
    """Roofs of a chip at its sustained clock: FLOP/s of its two kinds of core, bytes/s of its HBM."""

    tensor_flops_per_s: float
    vector_flops_per_s: float
    hbm_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class OperatorPoint:
    """One operator of a unique layer. `total_s`: one microbatch through all such operators.

    A vector ALU's cycle counts as two FLOP, like the fused multiply-add it could do, so that its roof is reached by
    full use.
    """

    name: str
    layer: str
    side: str
    unit: Unit
    flops: float
    hbm_bytes: float
    duration_s: float
    total_s: float

    @property
    def intensity(self) -> float:
        """FLOP per byte of HBM traffic."""
        return self.flops / self.hbm_bytes

    @property
    def flops_per_s(self) -> float:
        """Rate reached in the schedule."""
        return self.flops / self.duration_s


def roofs(table: ArchitectureTable, recipe: Recipe | None) -> Roofs:
    """Roofs of the first architecture of a table, tensor cores in the fastest format that is used."""
    speed = np.ones(len(table)) if recipe is None else narrow_speed(table, recipe.operands)
    peak = 2.0 * macs(table) * table["clock_hz"] * speed
    return Roofs(
        float(peak[0]), float(vector_flops_per_s(table)[0]), float(hbm_bandwidth_bytes_per_s(table)[0])
    )


def operator_points(schedules: Sequence[LayerSchedule], table: ArchitectureTable) -> list[OperatorPoint]:
    """Operators on cores that move bytes and compute something, those that take most time first."""
    found = (point for one in schedules for point in _points(one, table))
    return sorted(found, key=lambda point: -point.total_s)


def _points(one: LayerSchedule, table: ArchitectureTable) -> Iterator[OperatorPoint]:
    bandwidth = float(hbm_bandwidth_bytes_per_s(table)[one.row])
    hbm_s = one.timed.costs.attribution(np.array([one.row])).hbm_s[0]
    for i, (work, op) in enumerate(zip(one.timed.work.works, one.problem.operators, strict=True)):
        flops = 2.0 * (work.macs if work.macs else work.vector_cycles)
        duration = one.result.ends_s[op.id] - one.result.starts_s[op.id]
        moved = float(hbm_s[i]) * bandwidth
        if work.unit is not Unit.LINK and flops > 0 and moved > 0 and duration > 0:
            yield OperatorPoint(
                op.id, one.kind, one.side, work.unit, flops, moved, duration, duration * one.runs
            )
