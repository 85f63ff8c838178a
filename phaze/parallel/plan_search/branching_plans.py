"""Plans whose branches run side by side, best first: stages are a graph, under 1F1B (GraphPipe, arXiv 2406.17145).

They are bounded one by one, by the ways of microbatches through their graph and by what follows the last, and evaluated
in the order of their bounds until none is below the best.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

from phaze.parallel.chunk_division import Grain
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule, refusal
from phaze.parallel.plan_batches.memory_fit import fits
from phaze.parallel.plan_search.branch_cuts import branch_cuts
from phaze.parallel.plan_search.plan_lower_bounds import rest_key, rest_s
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.stage_times import GroupPasses
from phaze.tolerances import BOUND_ROUNDING


class BoundedPlan(NamedTuple):
    """A plan but for what ranks divide and which groups are neighbours, and a lower bound of all its variants."""

    bound_s: float
    plan: ParallelPlan


@dataclass(frozen=True)
class BranchingPlans:
    """The plans of a space whose stages are a graph that is no chain, on the architecture of an estimator.

    Stages are cut between any two layers, as of `branch_cuts`.
    """

    estimator: Estimator
    space: PlanSpace
    _rests: dict[Hashable, float] = field(default_factory=dict)

    @cached_property
    def bounded(self) -> list[BoundedPlan]:
        """All of them, those with the least bound first."""
        found = [one for shape in self._shapes for one in self._of_shape(shape)]
        return sorted(found, key=lambda one: one.bound_s)

    def variants(self, plan: ParallelPlan) -> int:
        """Number of plans that differ in what ranks divide and which groups are neighbours."""
        zeros, orders = self.space.choices(plan)
        return len(zeros) * len(orders)

    def fitted(
        self, plan: ParallelPlan, capacity_bytes: float
    ) -> Iterator[tuple[ParallelPlan | None, float]]:
        """Every variant as it fits into memory, None where it does not, and the least bytes that it needs."""
        zeros, orders = self.space.choices(plan)
        for fit, order in product(fits(self.estimator.layouts, plan, zeros, capacity_bytes), orders):
            yield (fit.plan and changed_plan(fit.plan, order=order)), fit.least_bytes

    def fits(self, plan: ParallelPlan, capacity_bytes: float) -> Iterator[ParallelPlan]:
        """The plan as it fits into memory, its variant kept; none where it does not."""
        (fit,) = fits(self.estimator.layouts, plan, (plan.zero,), capacity_bytes)
        yield from () if fit.plan is None else (fit.plan,)

    def is_graph(self, plan: ParallelPlan) -> bool:
        """Whether its stages are no chain."""
        edges = self.estimator.layouts.edges(plan)
        return edges is not None and not edges.graph.is_chain

    def busy_bound_s(self, plan: ParallelPlan) -> float:
        """Lower bound of the pipelines of a plan, without exchanges of ZeRO."""
        e, division, edges = self.estimator, self.estimator.division(plan), self.estimator.layouts.edges(plan)
        assert edges is not None
        again = recomputed_groups(division, plan)[None]
        passes = GroupPasses(e.passes(plan)[None]).chunks(division.first_groups[None], again, e.framework)
        transfer_s = e.exchanges(plan).transfer_s(edges.sent_bytes, e.framework.scatters_transfers)
        chunks = passes.pipeline(transfer_s, edges.graph)
        bound = pipeline_bound_s(plan.schedule, e.microbatches(plan), plan.pipeline_parallel, chunks)
        return float(bound[0]) * (1 - BOUND_ROUNDING)

    # -- the space -------------------------------------------------------------------------------------------

    @cached_property
    def _shapes(self) -> list[ParallelPlan]:
        """Microbatches, shardings and kinds of recompute; none where the model is a chain."""
        s, e = self.space, self.estimator
        if Schedule.ONE_F_ONE_B not in s.schedules or 1 not in s.chunks or frozenset() not in s.offloads:
            return []
        if e.workload.layer_graph(s.microbatches[0], s.tensor[0]).is_chain:
            return []
        shapes = replace(s, grains=(Grain.LAYER,)).shapes(e.workload, e.cluster)
        found = [changed_plan(shape, branches=True) for shape in shapes]
        e.foresee(found)
        return found

    def _of_shape(self, shape: ParallelPlan) -> Iterator[BoundedPlan]:
        deeps: dict[int, list[ParallelPlan]] = {}
        layers = len(self.estimator.chain(shape).index)
        space = replace(self.space, chunks=(1,))
        for deep in space.pipelines(shape, self.estimator.cluster, layers):
            if refusal(deep.schedule, deep.pipeline_parallel, self.estimator.microbatches(deep)) is None:
                deeps.setdefault(deep.pipeline_parallel, []).append(deep)
        if not deeps:
            return
        cuts = self._cuts(shape, max(deeps))
        for stages, some in deeps.items():
            for cut, deep in product(cuts.get(stages, ()), some):
                plan = changed_plan(deep, stages=cut)
                if self.is_graph(plan):
                    yield BoundedPlan(self.bound_s(plan), plan)

    def _cuts(self, shape: ParallelPlan, most: int) -> dict[int, tuple[tuple[int, ...], ...]]:
        """Cuts of the layers of a shape, by what they take where no more runs again than has to."""
        again = recomputed_groups(self.estimator.division(shape), shape)
        rows = GroupPasses(self.estimator.passes(shape)[None]).running(again[None])[:, 0]
        return branch_cuts(rows[:3].sum(axis=0), self._edges(shape), most)

    def _edges(self, shape: ParallelPlan) -> Sequence[tuple[int, int]]:
        """Edges between layers, in order."""
        edges = self.estimator.workload.layer_graph(shape.microbatch, shape.sharding).edges
        return sorted((edge.source, edge.target) for edge in edges)

    def bound_s(self, plan: ParallelPlan) -> float:
        """Lower bound of the iterations of all variants of a plan, whatever is recomputed."""
        return self.busy_bound_s(plan) + self._rest_s(plan)

    def _rest_s(self, plan: ParallelPlan) -> float:
        key = rest_key(self.estimator, plan)
        if key not in self._rests:
            zeros, orders = self.space.choices(plan)
            every = [changed_plan(plan, zero=zero, order=order) for zero, order in product(zeros, orders)]
            self._rests[key] = rest_s(self.estimator, [every])[0]
        return self._rests[key]
