"""All plans of a space, each pipeline under each schedule and cut, with lower bounds of the pipelines' seconds.

What plans there are hangs on no architecture: it is worked out once for all that share `PlanLayouts`. Where layers
have to be scheduled on cores, bounds are first those of layers that take what they take at least.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.stage_cuts import block_flops, cuts_of
from phaze.parallel.plan_search.plan_lower_bounds import busy_bound_s
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory_footprint import recomputed_groups
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.parallel.training.stage_times import ChunkPasses, GroupPasses
from phaze.tolerances import BOUND_ROUNDING

_WORTH = 500
"""Plans whose bounds take as long as schedules of the layers that they have in common."""


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """Plans but for what ZeRO divides and which groups are neighbours, and a bound of the pipelines of all.

    `rough`: a lower one, of layers that take what they take at least.
    """

    bound_s: float
    pipeline: ParallelPlan
    schedule: Schedule
    stages: tuple[int, ...] = ()
    rough: bool = False

    @property
    def plan(self) -> ParallelPlan:
        """The first of them."""
        return changed_plan(self.pipeline, schedule=self.schedule, stages=self.stages)


@dataclass(frozen=True)
class _Pipelines:
    """Pipelines, (n,), of so many stages and microbatches, (n,), whose layers are cut before some groups, (C,).

    `places`, (n,): whose layers they have, of those that are `alike`. `rows` of those that run each schedule.
    """

    alike: _Alike
    each: tuple[ParallelPlan, ...]
    places: Integers
    microbatches: Integers
    cut: tuple[int, ...]
    first_groups: Integers
    rows: dict[Schedule, Integers]

    @property
    def stages(self) -> int:
        """Stages of all of them."""
        return self.each[0].pipeline_parallel


@dataclass(frozen=True)
class _Alike:
    """Microbatches and shardings, (N,), whose layers are cut into the same groups, and their pipelines."""

    layouts: PlanLayouts
    space: PlanSpace
    shapes: tuple[ParallelPlan, ...]

    def pipelines(self) -> Iterator[_Pipelines]:
        """Those of equally many stages and chunks, cut in each way."""
        every: dict[tuple[int, int], list[tuple[int, ParallelPlan]]] = {}
        for place, shape in enumerate(self.shapes):
            for deep in self.space.pipelines(shape, self.layouts.cluster, len(self._blocks)):
                every.setdefault((deep.pipeline_parallel, deep.chunks), []).append((place, deep))
        for some in every.values():
            places, deeps = zip(*some, strict=True)
            yield from self._cut(deeps, np.array(places))

    def _cut(self, deeps: tuple[ParallelPlan, ...], places: Integers) -> Iterator[_Pipelines]:
        """The same pipelines, cut in each way."""
        microbatches = np.array([self.layouts.microbatches(deep) for deep in deeps])
        runs = {m: self.space.runs(deeps[0], m) for m in dict.fromkeys(microbatches.tolist())}
        schedules = dict.fromkeys(one for some in runs.values() for one in some)
        rows = {one: np.flatnonzero([one in runs[m] for m in microbatches.tolist()]) for one in schedules}
        for cut in cuts_of(deeps[0], self.space, self._flops, self.layouts):
            division = self.layouts.division(changed_plan(deeps[0], stages=cut))  # of all: groups are alike
            yield _Pipelines(self, deeps, places, microbatches, cut, division.first_groups, rows)

    @cached_property
    def again(self) -> Flags:
        """Groups that run again whatever fits, (N, G)."""
        return np.array([recomputed_groups(self._division, shape) for shape in self.shapes])

    @cached_property
    def _flops(self) -> Floats:
        return block_flops(self.layouts.chain(self.shapes[0]), self._division)

    @cached_property
    def _division(self) -> Division:
        return self.layouts.division(self.shapes[0])

    @cached_property
    def _blocks(self) -> Integers:
        """First group of every block, and of what comes before the first."""
        first = np.flatnonzero(self._division.body)
        first[0] = 0
        return first


@dataclass(frozen=True)
class _Layers:
    """Rows of `GroupPasses` of some layers on one architecture, where no group runs again that need not."""

    alike: _Alike
    estimator: Estimator
    rough: bool
    _exact: dict[int, Floats] = field(default_factory=dict)

    @cached_property
    def bounding(self) -> Floats:
        """Of all, (7, N, G); at most that where `rough`."""
        e, shapes = self.estimator, self.alike.shapes
        if not self.rough:
            return GroupPasses(np.array([e.passes(shape) for shape in shapes])).running(self.alike.again)
        least = np.array([e.least_passes(shape) for shape in shapes])
        return GroupPasses(least * (1 - BOUND_ROUNDING)).running(self.alike.again)

    def knows(self, place: int) -> bool:
        """Whether `exact` takes no time."""
        return place in self._exact

    def exact(self, place: int) -> Floats:
        """Of one of them where all groups run again, (1, 7, G), however long it takes to know them."""
        if place not in self._exact:
            self._exact[place] = self.estimator.passes(self.alike.shapes[place])[None]
        return self._exact[place]

    def cut(self, rows: Floats, first_groups: Integers) -> ChunkPasses:
        """Pass times, (n, C), from rows (7, n, G) of layers that are cut before some groups."""
        device_s, weight_s = (np.add.reduceat(some, first_groups, axis=-1) for some in (rows[:3], rows[6]))
        launches_s = np.zeros_like(device_s)
        if self._launches:
            np.add.reduceat(rows[3:6], first_groups, axis=-1, out=launches_s)
        return ChunkPasses(device_s, launches_s, weight_s, self.estimator.framework)

    @cached_property
    def _launches(self) -> bool:
        """Whether launches take any time."""
        return bool(self.bounding[3:6].any())


@dataclass(frozen=True)
class _Screened:
    """Pipelines under one schedule with their bounds, (n,)."""

    bounds_s: Floats
    pipelines: _Pipelines
    schedule: Schedule
    layers: _Layers

    @property
    def rows(self) -> Integers:
        """Which of the pipelines they are, (n,)."""
        return self.pipelines.rows[self.schedule]

    def place(self, row: int) -> int:
        """Whose layers one of them has, of those that are alike."""
        return int(self.pipelines.places[self.rows[row]])

    def at(self, row: int, *, rough: bool) -> OpenPlan:
        """One of them with its bound."""
        pipeline = self.pipelines.each[int(self.rows[row])]
        return OpenPlan(float(self.bounds_s[row]), pipeline, self.schedule, self.pipelines.cut, rough)


@dataclass(frozen=True)
class ScreenedPlans:
    """All plans of a space by their places, with bounds (N,) that recompute nothing that need not be.

    Places go from one pipeline to the next; of those that differ in ZeRO stage and order alone there is one. `rough`:
    layers take what they take at least.
    """

    blocks: tuple[_Screened, ...]
    rough: bool = False

    def __iter__(self) -> Iterator[OpenPlan]:
        """Every one, in the order of places."""
        return map(self.at, range(len(self.bounds_s)))

    @cached_property
    def bounds_s(self) -> Floats:
        """Lower bounds of the seconds of the pipelines, (N,)."""
        return np.concatenate([np.zeros(0), *(block.bounds_s for block in self.blocks)])

    @cached_property
    def _ends(self) -> Integers:
        return np.cumsum([len(block.rows) for block in self.blocks])

    def at(self, place: int) -> OpenPlan:
        """The plans at a place."""
        block, row = self._found(place)
        return block.at(row, rough=self.rough)

    def known(self, places: Sequence[int]) -> list[OpenPlan]:
        """The plans at some places, with bounds as far as they are known without any schedule."""
        opened = [self.at(place) for place in places]
        sharp = [number for number, place in enumerate(places) if self.rough and not self.schedules(place)]
        for number, one in zip(sharp, self.exactly([places[number] for number in sharp]), strict=True):
            opened[number] = one
        return opened

    def schedules(self, place: int) -> bool:
        """Whether `exactly` has to schedule layers for the plans at a place."""
        block, row = self._found(place)
        return not block.layers.knows(block.place(row))

    def exactly(self, places: Sequence[int]) -> list[OpenPlan]:
        """The same as `at` some places where layers take what they take: they are scheduled for it."""
        alike: dict[Hashable, list[int]] = {}
        found = [self._found(place) for place in places]
        for number, (block, _) in enumerate(found):
            key = id(block.layers), block.schedule, block.pipelines.stages, len(block.pipelines.first_groups)
            alike.setdefault(key, []).append(number)
        bounds_s = np.zeros(len(places))
        for some in alike.values():
            bounds_s[some] = _exact_s([found[number] for number in some])
        each = zip(found, bounds_s.tolist(), strict=True)
        opened = ((block.at(row, rough=False), bound_s) for (block, row), bound_s in each)
        return [replace(one, bound_s=max(one.bound_s, bound_s)) for one, bound_s in opened]

    def _found(self, place: int) -> tuple[_Screened, int]:
        """Pipelines that one at a place is among, and its row there."""
        number = int(np.searchsorted(self._ends, place, side="right"))
        block = self.blocks[number]
        return block, place - int(self._ends[number]) + len(block.rows)

    def each(self, figure: Callable[[ParallelPlan], float]) -> Floats:
        """Figures that hang on the pipeline alone, (N,); each pipeline is asked once."""
        known = {id(some): some for some in (block.pipelines.each for block in self.blocks)}
        figures = {at: np.array(list(map(figure, some)), dtype=np.float64) for at, some in known.items()}
        return np.concatenate(
            [np.zeros(0), *(figures[id(block.pipelines.each)][block.rows] for block in self.blocks)]
        )


def _exact_s(some: Sequence[tuple[_Screened, int]]) -> Floats:
    """Bounds (n,) of pipelines at rows of blocks, equally deep and under one schedule, from times of their layers."""
    block, layers = some[0][0], some[0][0].layers
    places = [one.place(row) for one, row in some]
    rows = GroupPasses(np.concatenate([layers.exact(place) for place in places]))
    first_groups = np.array([one.pipelines.first_groups for one, _ in some])
    passes = rows.chunks(first_groups, layers.alike.again[places], layers.estimator.framework)
    microbatches = np.array([one.pipelines.microbatches[one.rows[row]] for one, row in some])
    return busy_bound_s(block.schedule, block.pipelines.stages, passes, microbatches)


def screened_plans(estimator: Estimator, space: PlanSpace) -> ScreenedPlans:
    """All plans of a space, bounded together where their layers are cut into the same groups."""
    shapes = list(space.shapes(estimator.workload, estimator.cluster))
    estimator.foresee(shapes)
    for shape in shapes:
        estimator.division(shape)  # which looks at the clock
    every = estimator.layouts.once(("pipelines", space), lambda: _pipelines(estimator.layouts, space, shapes))
    plans = sum(len(rows) for some in every for rows in some.rows.values())
    rough = estimator.bounds_layers and plans <= _WORTH * len(shapes)
    layers: dict[int, _Layers] = {}
    blocks: list[_Screened] = []
    for some in every:
        mine = layers.setdefault(id(some.alike), _Layers(some.alike, estimator, rough))
        passes = mine.cut(mine.bounding[:, some.places], some.first_groups)
        for schedule, rows in some.rows.items():
            theirs = passes if len(rows) == len(some.each) else passes.take(rows)
            bounds = busy_bound_s(schedule, some.stages, theirs, some.microbatches[rows])
            blocks.append(_Screened(bounds, some, schedule, mine))
    return ScreenedPlans(tuple(blocks), rough)


def _pipelines(
    layouts: PlanLayouts, space: PlanSpace, shapes: Sequence[ParallelPlan]
) -> tuple[_Pipelines, ...]:
    """All pipelines of a space, by the groups that layers are cut into."""
    alike: dict[tuple[object, ...], list[ParallelPlan]] = {}
    for shape in shapes:
        division = layouts.division(shape)
        alike.setdefault((division.groups, division.body, shape.grain), []).append(shape)
    return tuple(p for some in alike.values() for p in _Alike(layouts, space, tuple(some)).pipelines())
