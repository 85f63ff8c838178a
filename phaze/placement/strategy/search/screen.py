"""A bound for every strategy of a space, of all that have as many chunks at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.needs import recomputed
from phaze.placement.strategy.passes import ChunkPasses, GroupPasses
from phaze.placement.strategy.search.bound import busy_bound_s
from phaze.placement.strategy.search.cuts import block_flops, cuts_of
from phaze.placement.strategy.search.space import PlanSpace
from phaze.placement.strategy.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Open:
    """Strategies but for what ZeRO divides and which groups are neighbours, and a bound of the pipelines of all."""

    bound_s: float
    pipeline: Strategy
    schedule: Schedule
    stages: tuple[int, ...] = ()

    @property
    def strategy(self) -> Strategy:
        """The first of them."""
        return replace(self.pipeline, schedule=self.schedule, stages=self.stages)


def screened(estimator: Estimator, space: PlanSpace) -> Iterator[Open]:
    """All strategies of a space, with bounds that recompute nothing that need not be."""
    shapes = list(space.shapes(estimator.workload, estimator.cluster))
    estimator.foresee(shapes)
    alike: dict[tuple[object, ...], list[Strategy]] = {}
    for shape in shapes:
        division = estimator.division(shape)
        alike.setdefault((division.groups, division.body, shape.grain), []).append(shape)
    for some in alike.values():
        yield from _Alike(estimator, space, tuple(some)).opened()


@dataclass(frozen=True)
class _Alike:
    """Microbatches and shardings, (N,), whose layers are cut into the same groups."""

    estimator: Estimator
    space: PlanSpace
    shapes: tuple[Strategy, ...]

    def opened(self) -> Iterator[Open]:
        pipelines: dict[tuple[int, int], list[tuple[int, Strategy]]] = {}
        for place, shape in enumerate(self.shapes):
            for deep in self.space.pipelines(shape, self.estimator.cluster, len(self._blocks)):
                key = deep.pipeline_parallel, deep.chunks
                pipelines.setdefault(key, []).append((place, deep))
        for some in pipelines.values():
            yield from self._bounded(
                some, cuts_of(some[0][1], self.space, self._flops, self.estimator.layouts)
            )

    @cached_property
    def _flops(self) -> Floats:
        return block_flops(self.estimator.chain(self.shapes[0]), self._division)

    def _bounded(
        self, pipelines: Sequence[tuple[int, Strategy]], cuts: Sequence[tuple[int, ...]]
    ) -> Iterator[Open]:
        """Those of equally many stages and chunks, cut in each way."""
        e, (places, deeps) = self.estimator, zip(*pipelines, strict=True)
        stages, at = deeps[0].pipeline_parallel, np.array(places)
        microbatches = np.array([e.microbatches(deep) for deep in deeps])
        told = {m: self.space.runs(deeps[0], m) for m in dict.fromkeys(microbatches.tolist())}
        schedules = dict.fromkeys(one for some in told.values() for one in some)
        rows = {one: np.flatnonzero([one in told[m] for m in microbatches.tolist()]) for one in schedules}
        for cut in cuts:
            division = e.division(replace(deeps[0], stages=cut))  # of all: their groups are alike
            passes = self._passes(at, np.tile(division.first_groups, (len(deeps), 1)))
            for schedule, some in rows.items():
                bounds = busy_bound_s(schedule, stages, passes.take(some), microbatches[some])
                for row, bound in zip(some.tolist(), bounds.tolist(), strict=True):
                    yield Open(bound, deeps[row], schedule, cut)

    def _passes(self, places: Integers, first_groups: Integers) -> ChunkPasses:
        """Of the shapes at some places, cut before some groups, (n, C)."""
        groups = GroupPasses(self._groups.rows[places])
        return groups.chunks(first_groups, self._again[places], self.estimator.framework)

    @cached_property
    def _division(self) -> Division:
        return self.estimator.division(self.shapes[0])

    @cached_property
    def _blocks(self) -> Integers:
        """First group of every block, and of what comes before the first."""
        first = np.flatnonzero(self._division.body)
        first[0] = 0
        return first

    @cached_property
    def _groups(self) -> GroupPasses:
        return GroupPasses(np.array([self.estimator.passes(shape) for shape in self.shapes]))

    @cached_property
    def _again(self) -> NDArray[np.bool_]:
        return np.array([recomputed(self._division, shape) for shape in self.shapes])
