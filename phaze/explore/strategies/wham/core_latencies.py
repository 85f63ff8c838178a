"""One choice of core dimensions with every pair of core counts of the space: the kinds of stage there are, a pass of a
layer on a number of cores, and from both the sizes and times of all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.strategies.wham.wham_axes import TENSOR_CORES, VECTOR_CORES, SearchAxes
from phaze.hardware.budgets import weigh
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.clock_steps import CLOCK
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.scheduling.passes import TimedPass
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.tolerances import LAST_DIGITS


@dataclass(frozen=True, slots=True)
class StageKind:
    """Stages that spend their time alike; a stage is all chunks of a device.

    `forward`, `backward`: how often each unique layer's pass runs, in lowest terms: a stage of ten equal layers
    is searched as one layer. `positions`: the stages of the pipeline that are of this kind; `repeats`: for each,
    how many times the lowest terms it does.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    positions: tuple[int, ...]
    repeats: tuple[int, ...]


def stage_kinds(strategy: ParallelPlan, layouts: PlanLayouts) -> tuple[StageKind, ...]:
    """The distinct kinds of stage of a strategy, in the order in which they first appear."""
    s, chain, division = strategy, layouts.chain(strategy), layouts.division(strategy)
    again = np.repeat(recomputed_groups(division, s), division.sizes)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}
    for position, own in enumerate(chunks_of(s.schedule, s.pipeline_parallel, s.chunks).tolist()):
        held = np.concatenate([np.arange(len(chain.index))[division.layers(chunk)] for chunk in own])
        forward, backward, repeats = _lowest_terms(
            np.array(chain.index)[held], again[held], len(chain.layers)
        )
        found.setdefault((forward, backward), []).append((position, repeats))
    return tuple(
        StageKind(forward, backward, *(tuple(column) for column in zip(*entries, strict=True)))
        for (forward, backward), entries in found.items()
    )


def _lowest_terms(
    held: NDArray[np.int64], again: Flags, unique: int
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Passes of unique layers, forward and backward, of a stage that holds some, of which some run again."""
    once = np.bincount(held, minlength=unique)
    twice = once + np.bincount(held[again], minlength=unique)
    common = gcd(*once.tolist(), *twice.tolist())
    return tuple((twice // common).tolist()), tuple((once // common).tolist()), common


Seconds = Sequence[float]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds of every operator, (O,) each.

    `single_s`: on one core of each unit; `parallel_s`: on all cores, infinite where impossible. `unlimited_s`:
    with the largest number of cores of every unit; `relieved_s`: by unit, with the largest number of that alone.
    """

    single_s: Seconds
    parallel_s: Seconds
    unlimited_s: Seconds
    relieved_s: Mapping[str, Seconds]


@dataclass(frozen=True, slots=True)
class Slack:
    """Earliest and latest starts with unlimited cores, (O,) seconds, and the length of the critical path."""

    asap_s: tuple[float, ...]
    alap_s: tuple[float, ...]
    length_s: float

    def of(self, operator: int) -> float:
        """How much later an operator may start without making the pass longer; 0 if it is critical."""
        return max(0.0, self.alap_s[operator] - self.asap_s[operator])


@dataclass(frozen=True, slots=True)
class CoreSchedule:
    """When operators could start, start and end, (O,) seconds, and which run core-parallel."""

    ready_s: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    whole: tuple[bool, ...]

    @property
    def length_s(self) -> float:
        """When the last operator ends."""
        return max(self.end_s, default=0.0)


def slack(graph: BatchGraph, unlimited_s: Seconds) -> Slack:
    """As soon as possible, then as late as possible."""
    early, tail = [0.0] * graph.size, [0.0] * graph.size
    for i in graph.order:
        for j in graph.successors[i]:
            early[j] = max(early[j], early[i] + unlimited_s[i])
    for i in reversed(graph.order):
        for j in graph.successors[i]:
            tail[i] = max(tail[i], unlimited_s[j] + tail[j])
    length = max((early[i] + unlimited_s[i] + tail[i] for i in range(graph.size)), default=0.0)
    late = (length - tail[i] - unlimited_s[i] for i in range(graph.size))
    return Slack(tuple(early), tuple(late), length)


def list_schedule(
    graph: BatchGraph, latencies: Latencies, cores: Mapping[str, int], found: Slack
) -> CoreSchedule:
    """Start what can start first, of those the operator of least slack, in the mode that ends it first."""
    free = {unit: [0.0] * min(count, graph.size) for unit, count in cores.items()}
    ready, end = [0.0] * graph.size, [0.0] * graph.size
    start, whole = [0.0] * graph.size, [False] * graph.size
    waiting = [0] * graph.size
    for row in graph.successors:
        for j in row:
            waiting[j] += 1
    open_ = {i for i in range(graph.size) if not waiting[i]}
    blocked_until = cores_end = 0.0
    while open_:
        options = []
        for i in open_:
            alone = max(ready[i], blocked_until if graph.core[i] else 0.0)
            alone = max([alone, *(min(free[unit]) for unit in graph.units[i])])
            together = max(ready[i], cores_end)
            spread = together + latencies.parallel_s[i] < alone + latencies.single_s[i]
            options.append((together if spread else alone, found.of(i), i, spread))
        begin, _, i, spread = min(options)
        start[i], whole[i] = begin, spread
        end[i] = begin + (latencies.parallel_s if spread else latencies.single_s)[i]
        if graph.core[i]:
            cores_end = max(cores_end, end[i])
        if spread:
            blocked_until = end[i]
        else:
            for unit in graph.units[i]:
                free[unit][free[unit].index(min(free[unit]))] = end[i]
        open_.remove(i)
        for j in graph.successors[i]:
            ready[j] = max(ready[j], end[i])
            waiting[j] -= 1
            if not waiting[j]:
                open_.add(j)
    return CoreSchedule(tuple(ready), tuple(start), tuple(end), tuple(whole))


def conflicts(
    graph: BatchGraph, latencies: Latencies, schedule: CoreSchedule, found: Slack
) -> dict[str, float]:
    """Seconds that operators lose to missing cores beyond their slack, by unit."""
    lost = dict.fromkeys(latencies.relieved_s, 0.0)
    for i, units in enumerate(graph.units):
        spare = found.of(i) + LAST_DIGITS * found.length_s
        waited = schedule.start_s[i] - schedule.ready_s[i] - spare
        took = schedule.end_s[i] - schedule.start_s[i]
        longer = took - latencies.unlimited_s[i] - spare
        saved = {u: took - latencies.relieved_s[u][i] for u in units if u in lost}
        for unit, gain in saved.items():
            lost[unit] += max(0.0, waited)
            if longer > 0:
                lost[unit] += longer if max(saved.values()) <= 0 else max(0.0, min(gain, longer))
    return lost


Counts = tuple[int, int]
"""Which of the tensor-core counts and which of the vector-core counts, smallest first."""
_REACHED = 1 + LAST_DIGITS


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
    """Latencies of one pass in both modes, (T, V, O), and the least time (T, V) that its bytes need; seconds.

    `clock_hz`: of each pair of counts, (T, V), where more cores leave only a lower one.
    """

    graph: BatchGraph
    single_s: Floats
    parallel_s: Floats
    floor_s: Floats
    clock_hz: Floats

    def at(self, counts: Counts) -> Latencies:
        """The latencies of one pair of counts, and of more cores at the same clock."""
        shortest = np.minimum(self.single_s, self.parallel_s)

        def more(at: Counts) -> list[float]:
            scaled: list[float] = (shortest[at] * self._slower(at, counts)).tolist()
            return scaled

        most, fewer = (-1, -1), {"TC": (-1, counts[1]), "VC": (counts[0], -1)}
        return Latencies(
            self.single_s[counts].tolist(),
            self.parallel_s[counts].tolist(),
            more(most),
            {unit: more(at) for unit, at in fewer.items()},
        )

    def least_s(self, counts: Counts) -> float:
        """The least time that the bytes need with unlimited cores at the clock of these."""
        return float(self.floor_s[-1, -1]) * self._slower((-1, -1), counts)

    def _slower(self, at: Counts, counts: Counts) -> float:
        """The clock of some counts over that of others: cycles take as much less time there as here."""
        return float(self.clock_hz[at] / self.clock_hz[counts])


@dataclass(frozen=True)
class CoreGrid:
    """Designs that differ in their core counts, (T, V), and in what follows from them.

    `numbers`: as candidates, -1 where the space does not have the design; `fits`: whether it keeps the budgets.
    `cores`: tensor cores and vector cores. `passes`: forward and backward of every unique layer, None where empty.
    """

    numbers: Integers
    fits: NDArray[np.bool_]
    tdp_w: Floats
    area_mm2: Floats
    cores: tuple[Integers, Integers]
    passes: Sequence[tuple[PassGrid | None, PassGrid | None]]
    _known: dict[tuple[int, int, Counts], StageTime] = field(default_factory=dict)

    def allows(self, counts: Counts) -> bool:
        """Whether the space has a pair of counts and it keeps the budgets."""
        return bool(self.fits[counts] and self.numbers[counts] >= 0)

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
    critical = min(seconds, max(found.length_s, grid.least_s(counts)))
    if seconds <= critical * _REACHED:
        return StageTime(seconds, critical, {"TC": 0.0, "VC": 0.0})
    return StageTime(seconds, critical, conflicts(grid.graph, latencies, schedule, found))


def core_grids(
    axes: SearchAxes, evaluator: Evaluator, config: TrainingConfig, choices: Sequence[dict[int, int]]
) -> list[CoreGrid | None]:
    """The designs of some choices of everything but the core counts, costed together for one config.

    Each pair of counts at the highest clock that keeps the budgets. None where no core counts keep them.
    """
    every: Integers = np.stack([axes.grid_numbers(chosen) for chosen in choices])  # (N, C, T, V)
    table, budgets = axes.tables(every.ravel()), axes.candidates.budgets
    keeps = weigh(table, *budgets.limits).kept.reshape(every.shape)
    known: Integers = axes.numbers(every.ravel()).reshape(every.shape)
    clock = (keeps & (known >= 0)).argmax(axis=1)[:, None]
    fits = np.take_along_axis(keeps, clock, axis=1)[:, 0]
    numbers: Integers = np.take_along_axis(known, clock, axis=1)[:, 0]
    alive = np.flatnonzero((fits & (numbers >= 0)).any(axis=(1, 2)))
    found: list[CoreGrid | None] = [None] * len(choices)
    if len(alive):
        places = np.arange(every.size).reshape(every.shape)
        rows = np.take_along_axis(places, clock, axis=1)[alive].ravel()
        kept = _GridCosts(evaluator.on(table.take(rows)), config, (len(alive), *numbers.shape[1:]))
        for k, n in enumerate(alive.tolist()):
            found[n] = kept.grid(k, numbers[n], fits[n], budgets.tdp_margin)
    return found


@dataclass(frozen=True)
class _GridCosts:
    """Costs of the designs of an evaluator's table, which is (N, T, V) designs in a row."""

    evaluator: Evaluator
    config: TrainingConfig
    shape: tuple[int, ...]

    def grid(self, n: int, numbers: Integers, fits: NDArray[np.bool_], tdp_margin: float) -> CoreGrid:
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
        timed = self.evaluator.timed(self.config)
        both = zip(timed.forward, timed.backward, strict=True)
        return [(self._pass(forward), self._pass(backward)) for forward, backward in both]

    def _pass(self, timed: TimedPass) -> list[PassGrid | None]:
        if not timed.work.works:
            return [None] * self.shape[0]
        latencies = timed.costs.latencies(np.arange(len(self.evaluator.table)))
        single = latencies.single_s.reshape(*self.shape, -1)
        parallel = latencies.parallel_s.reshape(*self.shape, -1)
        floor = np.maximum(latencies.hbm_s, latencies.buffer_s).reshape(self.shape)
        clock = np.asarray(self.evaluator.table[CLOCK], dtype=np.float64).reshape(self.shape)
        return [
            PassGrid(timed.graph, single[n], parallel[n], floor[n], clock[n]) for n in range(self.shape[0])
        ]
