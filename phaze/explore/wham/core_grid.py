"""One choice of core dimensions with every pair of core counts of the space: sizes, latencies, stage times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Setting
from phaze.explore.wham.axes import TENSOR_CORES, VECTOR_CORES, Numbers, SearchAxes
from phaze.explore.wham.contention import Latencies, conflicts, list_schedule, slack
from phaze.explore.wham.stages import StageKind
from phaze.hardware.area import area_mm2
from phaze.hardware.budgets import over_budget, within_budget
from phaze.hardware.power import tdp_w
from phaze.scheduling.passes import TimedPass
from phaze.solvers.scheduling.batch.graph import BatchGraph

Counts = tuple[int, int]
"""Which of the tensor-core counts and which of the vector-core counts, smallest first."""
FloatArray = NDArray[np.float64]
_REACHED = 1 + 1e-12


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds of one microbatch in a stage, without transfers; `critical_s` with unlimited cores.

    `lost_s`: seconds that operators lose to missing tensor cores (TC) and vector cores (VC) beyond their slack.
    """

    seconds: float
    critical_s: float
    lost_s: Mapping[str, float]


@dataclass(frozen=True)
class PassGrid:
    """Latencies of one pass in both modes, (T, V, O), and the least time (T, V) that its bytes need; seconds."""

    graph: BatchGraph
    single_s: FloatArray
    parallel_s: FloatArray
    floor_s: FloatArray

    def at(self, counts: Counts) -> Latencies:
        """The latencies of one pair of counts."""
        shortest = np.minimum(self.single_s, self.parallel_s)
        return Latencies(
            self.single_s[counts].tolist(),
            self.parallel_s[counts].tolist(),
            shortest[-1, -1].tolist(),
            {"TC": shortest[-1, counts[1]].tolist(), "VC": shortest[counts[0], -1].tolist()},
        )


@dataclass(frozen=True)
class CoreGrid:
    """Designs that differ in their core counts, (T, V), and in what follows from them.

    `numbers`: as candidates, -1 where the space does not have the design; `fits`: whether it keeps the budgets.
    `cores`: tensor cores and vector cores. `passes`: forward and backward of every unique layer, None where empty.
    """

    numbers: Numbers
    fits: NDArray[np.bool_]
    tdp_w: FloatArray
    area_mm2: FloatArray
    cores: tuple[Numbers, Numbers]
    passes: Sequence[tuple[PassGrid | None, PassGrid | None]]
    _known: dict[tuple[int, int, Counts], StageTime] = field(default_factory=dict)

    def stage(self, kind: StageKind, counts: Counts) -> StageTime:
        """The time of a stage: its layers' passes one after the other, conflicts of both directions together."""
        seconds = critical = 0.0
        lost = {"TC": 0.0, "VC": 0.0}
        for layer, both in enumerate(zip(kind.forward, kind.backward, strict=True)):
            for direction, runs in enumerate(both):
                if runs and self.passes[layer][direction] is not None:
                    one = self._pass(layer, direction, counts)
                    seconds += runs * one.seconds
                    critical += runs * one.critical_s
                    lost = {unit: total + runs * one.lost_s[unit] for unit, total in lost.items()}
        return StageTime(seconds, critical, lost)

    def _pass(self, layer: int, direction: int, counts: Counts) -> StageTime:
        key = (layer, direction, counts)
        if key not in self._known:
            grid = self.passes[layer][direction]
            assert grid is not None
            cores = {"TC": int(self.cores[0][counts]), "VC": int(self.cores[1][counts])}
            self._known[key] = _timed(grid, counts, cores)
        return self._known[key]


def _timed(grid: PassGrid, counts: Counts, cores: dict[str, int]) -> StageTime:
    """A pass is never shorter than its bytes take; where they decide, more cores are no help."""
    latencies = grid.at(counts)
    found = slack(grid.graph, latencies.unlimited_s)
    schedule = list_schedule(grid.graph, latencies, {**cores, "LINK": 1}, found)
    seconds = max(schedule.length_s, float(grid.floor_s[counts]))
    critical = min(seconds, max(found.length_s, float(grid.floor_s[-1, -1])))
    if seconds <= critical * _REACHED:
        return StageTime(seconds, critical, {"TC": 0.0, "VC": 0.0})
    return StageTime(seconds, critical, conflicts(grid.graph, latencies, schedule, found))


def core_grids(
    axes: SearchAxes, evaluator: Evaluator, setting: Setting, choices: Sequence[dict[int, int]]
) -> list[CoreGrid | None]:
    """The designs of some choices of everything but the core counts, costed together for one setting.

    None where no core counts keep the budgets.
    """
    grid = np.stack([axes.grid_numbers(chosen) for chosen in choices])
    table, budgets = axes.tables(grid.ravel()), axes.candidates.budgets
    fits = within_budget(over_budget(table, *budgets.limits)).reshape(grid.shape)
    numbers = axes.numbers(grid.ravel()).reshape(grid.shape)
    alive = np.flatnonzero((fits & (numbers >= 0)).any(axis=(1, 2)))
    found: list[CoreGrid | None] = [None] * len(choices)
    if len(alive):
        rows = np.arange(grid.size).reshape(grid.shape)[alive].ravel()
        kept = _Costed(evaluator.on(table.take(rows)), setting, (len(alive), *grid.shape[1:]))
        for k, n in enumerate(alive.tolist()):
            found[n] = kept.grid(k, numbers[n], fits[n], budgets.tdp_margin)
    return found


@dataclass(frozen=True)
class _Costed:
    """Costs of the designs of an evaluator's table, which is (N, T, V) designs in a row."""

    evaluator: Evaluator
    setting: Setting
    shape: tuple[int, ...]

    def grid(self, n: int, numbers: Numbers, fits: NDArray[np.bool_], tdp_margin: float) -> CoreGrid:
        """The n-th choice of dimensions."""
        size = numbers.size
        table = self.evaluator.table.take(np.arange(n * size, (n + 1) * size))
        return CoreGrid(
            numbers=numbers,
            fits=fits,
            tdp_w=tdp_w(table, tdp_margin).reshape(numbers.shape),
            area_mm2=area_mm2(table).reshape(numbers.shape),
            cores=(table[TENSOR_CORES].reshape(numbers.shape), table[VECTOR_CORES].reshape(numbers.shape)),
            passes=[(forward[n], backward[n]) for forward, backward in self._passes],
        )

    @cached_property
    def _passes(self) -> list[tuple[list[PassGrid | None], list[PassGrid | None]]]:
        """Forward and backward of every unique layer, for all choices."""
        timed = self.evaluator.timed(self.setting)
        both = zip(timed.forward, timed.backward, strict=True)
        return [(self._pass(forward), self._pass(backward)) for forward, backward in both]

    def _pass(self, timed: TimedPass) -> list[PassGrid | None]:
        if not timed.work.works:
            return [None] * self.shape[0]
        latencies = timed.costs.latencies(np.arange(len(self.evaluator.table)))
        single = latencies.single_s.reshape(*self.shape, -1)
        parallel = latencies.parallel_s.reshape(*self.shape, -1)
        floor = np.maximum(latencies.hbm_s, latencies.buffer_s).reshape(self.shape)
        return [PassGrid(timed.graph, single[n], parallel[n], floor[n]) for n in range(self.shape[0])]
