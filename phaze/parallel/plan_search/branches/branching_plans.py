"""Plans whose branches run side by side, best first: stages are a graph, under 1F1B (GraphPipe, arXiv 2406.17145).

They are bounded one by one, by the ways of microbatches through their graph and by what follows the last, and evaluated
in the order of their bounds until none is below the best.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.chunk_division import Grain
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule, refusal
from phaze.parallel.plan_batches.memory_fit import fits
from phaze.parallel.plan_search.branches.branch_cuts import LayerCut, branch_cuts, ordered_cut
from phaze.parallel.plan_search.plan_lower_bounds import rest_key, rest_s
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.stage_times import GroupPasses
from phaze.solvers.placement.general import GraphCuts
from phaze.tolerances import BOUND_ROUNDING


class BoundedPlan(NamedTuple):
    """A plan but for what ranks divide and which groups are neighbours, and a lower bound of all its variants."""

    bound_s: float
    plan: ParallelPlan


@dataclass(frozen=True)
class BranchingPlans:
    """The plans of a space whose stages are a graph that is no chain, on the architecture of an estimator.

    Stages are cut between any two layers, as of `branch_cuts`, and of `GraphCuts`.
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
        """Whether its stages are no chain of layers in the model's order."""
        edges = self.estimator.layouts.edges(plan)
        return edges is not None and (bool(plan.layer_order) or not edges.graph.is_chain)

    def moved(self, plan: ParallelPlan) -> Iterator[LayerCut]:
        """Cuts with one layer in another stage, of those that hold what it reads or what reads it, or are next."""
        order = plan.layer_order or range(sum(plan.stages))
        ends = np.cumsum([0, *plan.stages]).tolist()
        stages = [sorted(order[a:b]) for a, b in pairwise(ends)]
        home = {layer: number for number, stage in enumerate(stages) for layer in stage}
        near = {(layer, number + more) for layer, number in home.items() for more in (-1, 1)}
        near |= {pair for u, v in self._ways for pair in ((u, home[v]), (v, home[u]))}
        tied = self.estimator.chain(plan).tied_parameters
        for layer, to in sorted(near):
            if to != home[layer] and 0 <= to < len(stages) and len(stages[home[layer]]) > 1:
                now = [[one for one in stage if one != layer] for stage in stages]
                now[to] = sorted([*now[to], layer])
                cut = ordered_cut(now, self._ways)
                if cut is not None and (not tied or _keeps_ends(cut.order)):
                    yield cut

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
                plan = changed_plan(deep, stages=cut.sizes, layer_order=cut.order)
                if self.is_graph(plan):
                    yield BoundedPlan(self.bound_s(plan), plan)

    def _cuts(self, shape: ParallelPlan, most: int) -> dict[int, list[LayerCut]]:
        """Cuts of the layers of a shape, by what they take where no more runs again than has to."""
        again = recomputed_groups(self.estimator.division(shape), shape)
        rows = GroupPasses(self.estimator.passes(shape)[None]).running(again[None])[:, 0]
        layer_s = rows[:3].sum(axis=0)
        found = {
            stages: [LayerCut(sizes) for sizes in cuts]
            for stages, cuts in branch_cuts(layer_s, self._ways, most).items()
        }
        tied = self.estimator.chain(shape).tied_parameters
        for stages, cuts in self._exact(layer_s).cuts(layer_s, most).items():
            known = found.setdefault(stages, [])
            for cut in filter(None, (ordered_cut(cut, self._ways) for cut in cuts)):
                known += [cut] if cut not in known and (not tied or _keeps_ends(cut.order)) else []
        return found

    def _exact(self, layer_s: Floats) -> GraphCuts:
        """Cuts of the graph over all convex stages, of layers that are put together by what they first take."""
        key = "graph cuts", tuple(self._ways)
        return self.estimator.layouts.once(key, lambda: GraphCuts.of(layer_s.tolist(), self._ways))

    @cached_property
    def _ways(self) -> Sequence[tuple[int, int]]:
        """Edges between layers, in order, which no microbatch and no width changes."""
        edges = self.estimator.workload.layer_graph(self.space.microbatches[0], self.space.tensor[0]).edges
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


def _keeps_ends(order: Sequence[int]) -> bool:
    """Whether the first and the last layer of a model stay there."""
    return not order or (order[0], order[-1]) == (0, len(order) - 1)
