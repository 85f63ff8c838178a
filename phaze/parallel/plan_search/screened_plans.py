"""All plans of a space, each pipeline under each schedule and cut, with lower bounds of the pipelines' seconds.

What plans there are hangs on no architecture: it is worked out once for all that share `PlanLayouts`. Pipelines are
first bounded by all of their layers together, in whichever way they are cut, and cut where that leaves them. Where
layers have to be scheduled on cores, bounds are first those of layers that take what they take at least.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.stage_cuts import block_flops, cuts_of
from phaze.parallel.plan_search.plan_lower_bounds import busy_bound_s, least_rounds
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.parallel.training.stage_times import ChunkPasses, GroupPasses
from phaze.tolerances import BOUND_ROUNDING


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

    def at_least(self, bound_s: float) -> OpenPlan:
        """The same with another bound where that is the higher one."""
        if bound_s <= self.bound_s:
            return self
        return OpenPlan(bound_s, self.pipeline, self.schedule, self.stages, self.rough)


@dataclass(frozen=True)
class _Pipelines:
    """Pipelines, (n,), of equally many stages and chunks, and of so many microbatches, (n,), cut in several ways, (C,).

    `places`, (n,): whose layers they have, of those that are `alike`. `first_groups` (C, parts): groups before which
    the layers are cut. `rows` of those that run each schedule: pipelines under schedules, one schedule after the other,
    are the columns, (R,).
    """

    alike: _Alike
    each: tuple[ParallelPlan, ...]
    places: Integers
    microbatches: Integers
    cuts: tuple[tuple[int, ...], ...]
    first_groups: Integers
    rows: dict[Schedule, Integers]

    @property
    def stages(self) -> int:
        """Stages of all of them."""
        return self.each[0].pipeline_parallel

    @cached_property
    def row(self) -> Integers:
        """The pipeline of every column, (R,)."""
        return np.concatenate(list(self.rows.values()))

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedule of every column, (R,)."""
        return tuple(schedule for schedule, rows in self.rows.items() for _ in rows)

    @cached_property
    def least_rounds(self) -> Floats:
        """At least the seconds of every column, (R,), in whichever way it is cut, for a second that all layers take."""
        m, each = self.microbatches, []
        for schedule, rows in self.rows.items():
            even = schedule is Schedule.ONE_F_ONE_B and self.each[0].chunks == 1
            copies = schedule.weight_copies
            each.append(
                least_rounds(self.stages, m[rows]) if even else m[rows] // copies * copies / self.stages
            )
        return np.concatenate(each)


@dataclass(frozen=True)
class _Alike:
    """Microbatches and shardings, (N,), whose layers are cut into the same groups, and their pipelines."""

    layouts: PlanLayouts
    space: PlanSpace
    shapes: tuple[ParallelPlan, ...]

    def pipelines(self) -> Iterator[_Pipelines]:
        """Those of equally many stages and chunks."""
        every: dict[tuple[int, int], list[tuple[int, ParallelPlan]]] = {}
        for place, shape in enumerate(self.shapes):
            for deep in self.space.pipelines(shape, self.layouts.cluster, len(self._blocks)):
                every.setdefault((deep.pipeline_parallel, deep.chunks), []).append((place, deep))
        for some in every.values():
            places, deeps = zip(*some, strict=True)
            if (cut := self._cut(deeps, np.array(places))) is not None:
                yield cut

    def _cut(self, deeps: tuple[ParallelPlan, ...], places: Integers) -> _Pipelines | None:
        """The same pipelines, cut in each way; None where there is none."""
        cuts = cuts_of(deeps[0], self.space, self._flops, self.layouts)
        microbatches = np.array([self.layouts.microbatches(deep) for deep in deeps])
        runs = {m: self.space.runs(deeps[0], m) for m in dict.fromkeys(microbatches.tolist())}
        schedules = dict.fromkeys(one for some in runs.values() for one in some)
        if not cuts or not schedules:
            return None
        rows = {one: np.flatnonzero([one in runs[m] for m in microbatches.tolist()]) for one in schedules}
        # Groups of layers are alike for all.
        divisions = (self.layouts.division(changed_plan(deeps[0], stages=cut)) for cut in cuts)
        first_groups = np.array([division.first_groups for division in divisions])
        return _Pipelines(self, deeps, places, microbatches, cuts, first_groups, rows)

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

    @cached_property
    def whole_s(self) -> Floats:
        """Seconds of all groups one after the other, (N,), but for what launches add."""
        found: Floats = self.bounding[:3].sum(axis=(0, 2)) * (1 - BOUND_ROUNDING)
        return found

    def cut(self, places: Integers, first_groups: Integers) -> ChunkPasses:
        """Pass times, (C n, parts), of some layers (n,) that are cut before groups in each of C ways (C, parts)."""
        rows, shape = self.bounding[:, places], (len(first_groups) * len(places), first_groups.shape[1])
        used = rows if self._launches else rows[[0, 1, 2, 6]]
        summed = np.stack([np.add.reduceat(used, first, axis=-1) for first in first_groups], axis=1)
        summed = summed.reshape(len(used), *shape)
        launches_s = summed[3:6] if self._launches else np.zeros_like(summed[:3])
        return ChunkPasses(summed[:3], launches_s, summed[-1], self.estimator.framework)

    @cached_property
    def _launches(self) -> bool:
        """Whether launches take any time."""
        return bool(self.bounding[3:6].any())


@dataclass(frozen=True)
class _Screened:
    """Pipelines under their schedules, (R,), with their bounds in each of their cuts, (C, R), as far as they are known.

    Bounds of a column are not a number as long as nobody has asked for them.
    """

    pipelines: _Pipelines
    layers: _Layers
    bounds_s: Floats

    @classmethod
    def of(cls, pipelines: _Pipelines, layers: _Layers) -> _Screened:
        """Nothing is bounded yet."""
        return cls(pipelines, layers, np.full((len(pipelines.cuts), len(pipelines.row)), np.nan))

    @cached_property
    def least_s(self) -> Floats:
        """At least every bound of a column, (R,)."""
        some = self.pipelines
        found: Floats = some.least_rounds * self.layers.whole_s[some.places[some.row]]
        return found

    def known(self, columns: Integers) -> Floats:
        """Bounds (C, n) of some columns."""
        new = columns[np.isnan(self.bounds_s[0, columns])]
        start = 0
        for schedule, rows in self.pipelines.rows.items():
            mine = new[(new >= start) & (new < start + len(rows))]
            if len(mine):
                self.bounds_s[:, mine] = self._bounded(schedule, self.pipelines.row[mine])
            start += len(rows)
        return self.bounds_s[:, columns]

    def _bounded(self, schedule: Schedule, rows: Integers) -> Floats:
        """Bounds (C, n) of some pipelines under a schedule."""
        some = self.pipelines
        passes = self.layers.cut(some.places[rows], some.first_groups)
        microbatches = np.tile(some.microbatches[rows], len(some.cuts))
        return busy_bound_s(schedule, some.stages, passes, microbatches).reshape(len(some.cuts), -1)

    def place(self, column: int) -> int:
        """Whose layers one of them has, of those that are alike."""
        return int(self.pipelines.places[self.pipelines.row[column]])

    def at(self, cut: int, column: int, *, rough: bool) -> OpenPlan:
        """One of them with its bound."""
        some, bound_s = self.pipelines, float(self.bounds_s[cut, column])
        if np.isnan(bound_s):
            bound_s = float(self.known(np.array([column]))[cut, 0])
        pipeline = some.each[int(some.row[column])]
        return OpenPlan(bound_s, pipeline, some.schedules[column], some.cuts[cut], rough)


@dataclass(frozen=True)
class ScreenedPlans:
    """All plans of a space by their places, (N,), with bounds that recompute nothing that need not be.

    Places go from one pipeline to the next, and in each from one cut to the next; of those that differ in ZeRO stage
    and order alone there is one. Pipelines under a schedule, in whichever way they are cut, are columns, (M,).
    `rough`: layers take what they take at least.
    """

    blocks: tuple[_Screened, ...]
    rough: bool = False

    def __len__(self) -> int:
        """N."""
        return int(self._ends[-1]) if self.blocks else 0

    def __iter__(self) -> Iterator[OpenPlan]:
        """Every one, in the order of places."""
        return map(self.at, range(len(self)))

    @property
    def bounds_s(self) -> Floats:
        """Lower bounds of the seconds of the pipelines, (N,)."""
        every = (block.known(np.arange(len(block.pipelines.row))).ravel() for block in self.blocks)
        return np.concatenate([np.zeros(0), *every])

    @cached_property
    def _ends(self) -> Integers:
        return np.cumsum([block.bounds_s.size for block in self.blocks])

    # -- columns ---------------------------------------------------------------------------------------------

    @cached_property
    def least_s(self) -> Floats:
        """At least every bound of a column, (M,): known without any cut."""
        return np.concatenate([np.zeros(0), *(block.least_s for block in self.blocks)])

    @cached_property
    def cuts(self) -> Integers:
        """Plans of every column, (M,)."""
        each = [np.full(len(block.pipelines.row), len(block.pipelines.cuts)) for block in self.blocks]
        return np.concatenate([np.zeros(0, dtype=np.int64), *each])

    def figures(self, figure: Callable[[ParallelPlan], float]) -> Floats:
        """Figures of columns that hang on the pipeline alone, (M,); each pipeline is asked once."""
        each = (
            np.array(list(map(figure, block.pipelines.each)), dtype=np.float64)[block.pipelines.row]
            for block in self.blocks
        )
        return np.concatenate([np.zeros(0), *each])

    def opened(self, columns: Integers) -> tuple[Floats, Integers, Integers]:
        """Bounds, places and columns (n,) of the plans of some columns, in ascending order."""
        first = np.cumsum([0, *(len(block.pipelines.row) for block in self.blocks)])
        which = np.searchsorted(first, columns, side="right") - 1
        found: list[tuple[Floats, Integers, Integers]] = []
        for number in np.unique(which).tolist():
            block, mine = self.blocks[number], columns[which == number]
            own = mine - first[number]
            start, (cuts, count) = int(self._ends[number]) - block.bounds_s.size, block.bounds_s.shape
            places = start + count * np.arange(cuts)[:, None] + own
            every = np.broadcast_to(mine, places.shape)
            found.append((block.known(own).ravel(), places.ravel(), every.ravel()))
        bounds_s, places, every = (np.concatenate(some) for some in zip(*found, strict=True))
        return bounds_s, places, every

    # -- plans -----------------------------------------------------------------------------------------------

    def at(self, place: int) -> OpenPlan:
        """The plans at a place."""
        block, cut, column = self._found(place)
        return block.at(cut, column, rough=self.rough)

    def known(self, places: Sequence[int]) -> list[OpenPlan]:
        """The plans at some places, with bounds as far as they are known without any schedule."""
        opened = [self.at(place) for place in places]
        sharp = [number for number, place in enumerate(places) if self.rough and not self.schedules(place)]
        for number, one in zip(sharp, self.exactly([places[number] for number in sharp]), strict=True):
            opened[number] = one
        return opened

    def schedules(self, place: int) -> bool:
        """Whether `exactly` has to schedule layers for the plans at a place."""
        block, _, column = self._found(place)
        return not block.layers.knows(block.place(column))

    def exactly(self, places: Sequence[int]) -> list[OpenPlan]:
        """The same as `at` some places where layers take what they take: they are scheduled for it."""
        alike: dict[Hashable, list[int]] = {}
        found = [self._found(place) for place in places]
        for number, (block, _, column) in enumerate(found):
            some = block.pipelines
            key = id(block.layers), some.schedules[column], some.stages, some.first_groups.shape[1]
            alike.setdefault(key, []).append(number)
        bounds_s = np.zeros(len(places))
        for same in alike.values():
            bounds_s[same] = _exact_s([found[number] for number in same])
        each = zip(found, bounds_s.tolist(), strict=True)
        opened = ((block.at(cut, column, rough=False), bound_s) for (block, cut, column), bound_s in each)
        return [one.at_least(bound_s) for one, bound_s in opened]

    def _found(self, place: int) -> tuple[_Screened, int, int]:
        """Pipelines that one at a place is among, and its cut and column there."""
        number = int(np.searchsorted(self._ends, place, side="right"))
        block = self.blocks[number]
        within = place - int(self._ends[number]) + block.bounds_s.size
        return block, *divmod(within, len(block.pipelines.row))


def _exact_s(some: Sequence[tuple[_Screened, int, int]]) -> Floats:
    """Bounds (n,) of plans by block, cut and column, equally deep and under one schedule, from their layers' times."""
    block, layers = some[0][0], some[0][0].layers
    places = [one.place(column) for one, _, column in some]
    rows = GroupPasses(np.concatenate([layers.exact(place) for place in places]))
    first_groups = np.array([one.pipelines.first_groups[cut] for one, cut, _ in some])
    passes = rows.chunks(first_groups, layers.alike.again[places], layers.estimator.framework)
    each = (one.pipelines for one, *_ in some)
    microbatches = np.array(
        [p.microbatches[p.row[column]] for p, (*_, column) in zip(each, some, strict=True)]
    )
    return busy_bound_s(block.pipelines.schedules[some[0][2]], block.pipelines.stages, passes, microbatches)


def screened_plans(estimator: Estimator, space: PlanSpace) -> ScreenedPlans:
    """All plans of a space, to be bounded together where their layers are cut into the same groups."""
    shapes = list(space.shapes(estimator.workload, estimator.cluster))
    estimator.foresee(shapes)
    for shape in shapes:
        estimator.division(shape)  # which looks at the clock
    every = estimator.layouts.once(("pipelines", space), lambda: _pipelines(estimator.layouts, space, shapes))
    rough = estimator.bounds_layers
    layers: dict[int, _Layers] = {}
    blocks = (
        _Screened.of(some, layers.setdefault(id(some.alike), _Layers(some.alike, estimator, rough)))
        for some in every
    )
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
