"""The best plan of a general placement instance, proven and checked.

The smallest time per batch by branch and bound over limits on the work of a stage, over all plans at one
data-parallel degree after the other.

A box fixes the models, the data-parallel degree and the depth, and holds all plans whose largest forward,
backward ... works lie between a lower and an upper corner. The dynamic program tells whether a plan stays below
the upper corner, and finds the one of fewest devices; the time of the lower corner bounds all plans of the box.
Works take finitely many values, so that halving ends: the answer is exact.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.chain_checker import PlanError
from phaze.solvers.placement.chain.chain_problem import PlacementStatus
from phaze.solvers.placement.general.fewest_devices_dp import Fleet, Pipelines, PlacedStage, fleet
from phaze.solvers.placement.general.general_checker import general_plan_time
from phaze.solvers.placement.general.general_problem import (
    GeneralProblem,
    GeneralResult,
    GeneralStage,
    Recompute,
    Schedule,
)
from phaze.solvers.placement.general.layer_levels import Levels, TooLargeError, find_levels
from phaze.solvers.placement.general.stage_tables import (
    TIE,
    Figures,
    Pipeline,
    StageTable,
    WorkBound,
    half_reduction_s,
    pipeline,
    stage_figures,
    stage_table,
    work_bound,
)


@dataclass(frozen=True)
class Degree:
    """`figures` of the models that stages choose from, at `data_parallel` pipelines side by side."""

    problem: GeneralProblem
    levels: Levels
    figures: dict[int, Figures]
    bound: WorkBound
    data_parallel: int

    @property
    def microbatches(self) -> int:
        """Microbatches of one pipeline."""
        return -(-self.problem.microbatches_per_batch // self.data_parallel)

    @property
    def interleaved(self) -> bool:
        """Stages share devices, one of each depth."""
        return self.problem.schedule is Schedule.INTERLEAVED

    @cached_property
    def capacity(self) -> dict[int, int]:
        """Devices of each type that the stages of one pipeline can take, counted once for every stage."""
        models = [self.problem.models[number] for number in self.figures]
        shared, capacity = self.problem.virtual_stages, {}
        for kind in {model.device_type for model in models}:
            widest = max(model.tensor_parallel for model in models if model.device_type == kind)
            count = self.problem.device_types[kind].count * shared // self.data_parallel
            capacity[kind] = min(count, self.levels.layers * widest)
        return capacity

    @cached_property
    def depths(self) -> range:
        """Depths that a pipeline may have."""
        step = self.problem.virtual_stages
        most = min(self.levels.layers, sum(self.capacity.values()))
        return range(step, most + 1, step)

    @cached_property
    def table(self) -> StageTable:
        """All stages with all options."""
        return stage_table(self.problem, self.figures, self.data_parallel)

    @cached_property
    def fleet(self) -> Fleet:
        """Devices of one pipeline."""
        return fleet(self.levels, self.table.classes, self.capacity, one_per_level=self.interleaved)

    def line(self, depth: int) -> Pipeline:
        """The schedule of a pipeline of a depth."""
        return pipeline(self.problem, self.microbatches, depth)

    @property
    def held_by_depth(self) -> bool:
        """A stage holds as many microbatches in a pipeline of any depth."""
        return self.problem.schedule in {Schedule.GPIPE, Schedule.ONE_F_ONE_B}

    def deepest(self, line: Pipeline) -> Integers:
        """Largest depth, at least up to the line's, at which each option of each stage fits, (O, G)."""
        return self._common_deepest if self.held_by_depth else self.table.deepest(line)

    @cached_property
    def _common_deepest(self) -> Integers:
        return self.table.deepest(self.line(self.depths[-1]))

    def pipelines(self, line: Pipeline, limits: Floats) -> Pipelines:
        """All pipelines of up to the line's depth whose stages keep the limits."""
        fitting = np.where(self.table.within(limits), self.deepest(line), 0)
        return Pipelines(self.fleet, self.table.by_class(fitting), len(line.in_flight))

    def tightened(self, plan: Sequence[PlacedStage]) -> tuple[PlacedStage, ...]:
        """The plan with the depth of each stage: the program may have put one deeper, which costs more."""
        if self.interleaved:
            return tuple(plan)
        inside = np.concatenate([self.levels.member(slice(p.stage, p.stage + 1)) for p in plan])
        home = inside.argmax(axis=0)
        depths = [1] * len(plan)
        for u, v in sorted(self.problem.edges, key=lambda edge: -home[edge[0]]):
            if home[u] != home[v]:
                depths[home[u]] = max(depths[home[u]], depths[home[v]] + 1)
        return tuple(replace(placed, depth=depth) for placed, depth in zip(plan, depths, strict=True))

    def options(self, plan: Sequence[PlacedStage], line: Pipeline, limits: Floats) -> list[int]:
        """For each stage of a plan, the fastest of the table's options that keep the limits."""
        table, deepest = self.table, self.deepest(line)
        kept = table.within(limits)
        full = np.array([option.recompute is Recompute.FULL for option in table.options])
        chosen = []
        for placed in plan:
            g, s = placed.stage, placed.depth
            may = kept[:, g] & (deepest[:, g] >= s) & (table.device_class[:, g] == placed.device_class)
            may &= ~full | (line.in_flight[s - 1] > 1)
            seconds = line.least_weight @ table.work[:, :, g]
            chosen.append(int(np.where(may, seconds, np.inf).argmin()))
        return chosen

    def least_work(self, depth: int) -> Floats:
        """Lower bounds on the largest work of each kind in a pipeline of a depth, (kinds,)."""
        devices = sum(self.capacity.values())
        stages = depth if self.interleaved else min(depth * self.levels.most_stages, devices)
        return self.bound.largest(stages, devices, half_reduction_s(self.problem, self.data_parallel))


@dataclass(frozen=True)
class PlacedPipelines:
    """A plan: its time, what it uses, and its stages with their options (numbers in the degree's table)."""

    time_s: float
    devices: int
    stages: int
    degree: Degree
    plan: tuple[PlacedStage, ...]
    options: tuple[int, ...]

    @property
    def preference(self) -> tuple[int, int, int]:
        """Among equal times the smallest one is best."""
        return self.devices, self.stages, self.degree.data_parallel


@dataclass(frozen=True)
class _Box:
    """Plans of one degree and depth; corners are (kinds,)."""

    degree: Degree
    line: Pipeline
    lower: Floats
    upper: Floats

    @property
    def depth(self) -> int:
        """Stages on the longest path."""
        return len(self.line.in_flight)

    @property
    def empty(self) -> bool:
        """No work lies between the corners."""
        return bool((self.lower > self.upper * (1 + TIE)).any())

    def halves(self) -> Iterator[_Box]:
        """Two boxes that hold the same plans, the one of less work first; a half without plans is left out."""
        gaps = (self.upper - self.lower) * self.line.weights.max(axis=0)
        gaps[self.upper <= self.lower * (1 + 4 * TIE)] = 0.0
        kind = int(gaps.argmax())
        if not gaps[kind]:
            return
        values = self.degree.table.work[kind][self.degree.deepest(self.line) > 0]
        middle = (self.lower[kind] + self.upper[kind]) / 2 * (1 + TIE)
        below, above = values[values <= middle], values[values > middle]
        if below.size and below.max() >= self.lower[kind]:
            yield replace(self, upper=_replaced(self.upper, kind, below.max()))
        if above.size and above.min() <= self.upper[kind] * (1 + TIE):
            yield replace(self, lower=_replaced(self.lower, kind, above.min()))


def _replaced(corner: Floats, kind: int, value: float) -> Floats:
    changed = corner.copy()
    changed[kind] = value
    return changed


class Search:
    """Best-first search over degrees and boxes; `best` is the plan so far."""

    def __init__(self, degrees: Iterable[Iterator[Degree]]) -> None:
        """Queue the first of each row of degrees; a row is in order of the bounds."""
        self.best: PlacedPipelines | None = None
        self._order = count()
        self._queue: list[tuple[float, int, _Box | tuple[Degree, Iterator[Degree]]]] = []
        for row in degrees:
            self._push_next(row)

    def run(self) -> PlacedPipelines | None:
        """The plan of least time, then fewest devices, then fewest stages, then smallest degree."""
        while self._queue:
            bound_s, _, item = heapq.heappop(self._queue)
            if bound_s > self._cutoff_s:
                break
            if isinstance(item, _Box):
                self._explore(item)
            else:
                degree, following = item
                self._open(degree)
                self._push_next(following)
        return self.best

    @property
    def _cutoff_s(self) -> float:
        """A slower plan is worse than the best one, a faster one better or as good."""
        return self._best_s * (1 + TIE)

    @property
    def _best_s(self) -> float:
        return math.inf if self.best is None else self.best.time_s

    def _push(self, box: _Box) -> None:
        heapq.heappush(self._queue, (box.line.seconds(box.lower), next(self._order), box))

    def _push_next(self, row: Iterator[Degree]) -> None:
        """Queue the next degree of a row, the rest behind it."""
        for degree in row:
            bounds = [degree.line(depth).seconds(degree.least_work(depth)) for depth in degree.depths]
            if bounds:
                heapq.heappush(self._queue, (min(bounds), next(self._order), (degree, row)))
                return

    def _open(self, degree: Degree) -> None:
        """Queue a box for every depth that a pipeline can have within the best time."""
        boxes = [self._box(degree, depth) for depth in degree.depths]
        boxes = [box for box in boxes if not box.empty]
        if boxes and degree.held_by_depth:
            # One run for all depths: their stages hold the same numbers of microbatches.
            upper = np.max([box.upper for box in boxes], axis=0)
            pipelines = degree.pipelines(boxes[-1].line, upper)
            boxes = [box for box in boxes if pipelines.fewest(box.depth) is not None]
        for box in boxes:
            self._push(box)

    def _box(self, degree: Degree, depth: int) -> _Box:
        line = degree.line(depth)
        lower = degree.least_work(depth)
        most = degree.table.work.max(axis=(1, 2), initial=0.0)
        return self._clipped(_Box(degree, line, lower, np.maximum(most, lower)))

    def _clipped(self, box: _Box) -> _Box:
        """The box without plans that are slower than the best one."""
        room_s = self._cutoff_s - box.line.seconds(box.lower)
        return replace(box, upper=np.minimum(box.upper, box.lower + room_s / box.line.least_weight))

    def _explore(self, box: _Box) -> None:
        """Find a plan in a box, and halve the box unless it is empty or all its plans are as good as the best."""
        box = self._clipped(box)
        if box.empty:
            return
        pipelines = box.degree.pipelines(box.line, box.upper)
        if pipelines.fewest(box.depth) is None:
            return
        self._consider(box, box.degree.tightened(pipelines.plan(box.depth)))
        fastest_s, slowest_s = box.line.seconds(box.lower), box.line.seconds(box.upper)
        if fastest_s < self._best_s * (1 - TIE) or slowest_s > self._cutoff_s:
            for half in box.halves():
                self._push(half)

    def _consider(self, box: _Box, plan: tuple[PlacedStage, ...]) -> None:
        line = box.degree.line(max(placed.depth for placed in plan))
        options = box.degree.options(plan, line, box.upper)
        work = box.degree.table.work[:, options, [placed.stage for placed in plan]]
        time_s = line.seconds(work.max(axis=1))
        classes = box.degree.table.classes
        devices = sum(classes[placed.device_class].devices for placed in plan)
        total = box.degree.data_parallel * devices // box.degree.problem.virtual_stages
        found = PlacedPipelines(time_s, total, len(plan), box.degree, plan, tuple(options))
        if (
            self.best is None
            or time_s < self._best_s * (1 - TIE)
            or (time_s <= self._cutoff_s and found.preference < self.best.preference)
        ):
            self.best = found


# The search adds in another order than the checker; more than this is a bug.
_CHECK_TOLERANCE = 1e-10
MOST_DEGREES = 4096


def place_general(problem: GeneralProblem) -> GeneralResult:
    """Minimise the time per batch over stages, their options and devices, and the data-parallel degree.

    Equal times are resolved towards fewest devices, then fewest stages, then smallest degree.

    Raises:
        TooLargeError: too many cuts of the graph, counts of devices or data-parallel degrees for the exact search.
        PlanError: the independent checker refutes the plan found, which is a bug of the search.
    """
    began = time.perf_counter()
    found = Search(_degrees(problem)).run()
    if found is None:
        return GeneralResult(
            status=PlacementStatus.INFEASIBLE,
            time_per_batch_s=None,
            lower_bound_s=math.inf,
            num_stages=None,
            depth=None,
            data_parallel=None,
            devices_used=None,
            stages=(),
            runtime_s=time.perf_counter() - began,
        )
    stages = tuple(_stages(problem, found))
    time_s = general_plan_time(problem, found.degree.data_parallel, stages)
    if not math.isclose(time_s, found.time_s, rel_tol=_CHECK_TOLERANCE):
        raise PlanError(f"the search found {found.time_s} s, the checker {time_s} s for the same plan")
    return GeneralResult(
        status=PlacementStatus.OPTIMAL,
        time_per_batch_s=time_s,
        lower_bound_s=time_s,
        num_stages=len(stages),
        depth=max(placed.depth for placed in found.plan),
        data_parallel=found.degree.data_parallel,
        devices_used=found.devices,
        stages=stages,
        runtime_s=time.perf_counter() - began,
    )


def _degrees(problem: GeneralProblem) -> Iterator[Iterator[Degree]]:
    """Every group of models that one plan may use, at the data-parallel degrees worth trying.

    Degrees with as many microbatches come together, in rising order, and with them in order of their bounds: a
    larger one has fewer devices per pipeline and a longer reduction.
    """
    levels = find_levels(len(problem.layer_ids), problem.edges)
    figures = [stage_figures(problem, model, levels) for model in problem.models]
    for group in _groups(problem):
        bound = work_bound(problem, [problem.models[i] for i in group])
        most = max(problem.device_types[problem.models[i].device_type].count for i in group)
        chosen = {i: figures[i] for i in group}
        for degrees in _data_parallel_degrees(problem, most):
            yield map(partial(Degree, problem, levels, chosen, bound), degrees)


def _groups(problem: GeneralProblem) -> list[list[int]]:
    """Models, by number, that stages of one plan may choose from."""
    numbers = range(len(problem.models))
    if problem.schedule is Schedule.INTERLEAVED:
        return [[i] for i in numbers]
    if not problem.uniform_width:
        return [list(numbers)]
    widths = [model.tensor_parallel for model in problem.models]
    return [[i for i in numbers if widths[i] == width] for width in sorted(set(widths))]


def _data_parallel_degrees(problem: GeneralProblem, devices: int) -> list[range]:
    """Degrees up to the number of devices by number of microbatches; unless ZeRO shards only the smallest is of use.

    Raises:
        TooLargeError: there are more than MOST_DEGREES.
    """
    total = problem.microbatches_per_batch
    most, first = min(devices, total), 1
    ranges: list[range] = []
    while first <= most and sum(map(len, ranges)) <= MOST_DEGREES:
        microbatches = -(-total // first)
        following = most + 1 if microbatches == 1 else min(most + 1, -(-total // (microbatches - 1)))
        ranges.append(range(first, first + 1 if problem.zero == (0,) else following))
        first = following
    if sum(map(len, ranges)) > MOST_DEGREES:
        raise TooLargeError(
            f"$.microbatches_per_batch: too many data-parallel degrees: the exact search takes {MOST_DEGREES}, "
            "this instance has more; give fewer microbatches or devices, or the ZeRO stage 0 alone"
        )
    return ranges


def _stages(problem: GeneralProblem, found: PlacedPipelines) -> Iterator[GeneralStage]:
    """The plan in words."""
    table, levels = found.degree.table, found.degree.levels
    for placed, number in zip(found.plan, found.options, strict=True):
        option = table.options[number]
        model = problem.models[option.model]
        layers = levels.member(slice(placed.stage, placed.stage + 1))[0]
        yield GeneralStage(
            layers=tuple(layer for layer, inside in zip(problem.layer_ids, layers, strict=True) if inside),
            devices=table.classes[placed.device_class].devices,
            device_type=problem.device_types[model.device_type].name,
            tensor_parallel=model.tensor_parallel,
            recompute=option.recompute,
            zero=option.zero,
        )
