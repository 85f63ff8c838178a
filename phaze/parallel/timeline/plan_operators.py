"""The operators of every unique layer of a plan in time, on the cores, and the collectives among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from phaze.cost.cost_model import CostModel, OperatorLatencies, PassCosts
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.timeline.plan_pieces import PassPart, PlanPieces
from phaze.parallel.training.layer_costs import without_links
from phaze.parallel.training.operator_costs import Operators, recomputed_operators
from phaze.scheduling.layer_schedule import LayerSchedule, solve_layer
from phaze.scheduling.passes import TimedPass
from phaze.workload.work import Pass, Unit

_ONE = np.array([0])


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Seconds of a collective that nothing hides, and of those beside computation."""

    exposed_s: float
    hidden_s: float


@dataclass(frozen=True)
class PlanOperators:
    """The schedules behind the layer times of a plan.

    Collectives take no time in a schedule: what nothing hides of them (`collectives`, by the schedule's names) comes on
    top, at the place where the schedule has them.
    """

    plan: PlanPieces
    _known: dict[tuple[int, PassPart], ScheduledLayer | None] = field(default_factory=dict)

    def of(self, unique: int, side: PassPart) -> ScheduledLayer | None:
        """The operators of a unique layer that run as one; None where there are none."""
        if (unique, side) not in self._known:
            self._known[unique, side] = self._scheduled(unique, side)
        return self._known[unique, side]

    def schedules(self) -> list[LayerSchedule]:
        """Every unique layer and side that runs, those that take most time first."""
        each = (self.of(*which) for which in self._runs)
        return sorted((one.schedule for one in each if one), key=lambda one: -one.total_s)

    @cached_property
    def _runs(self) -> Counter[tuple[int, PassPart]]:
        """How often one microbatch goes through each."""
        timeline, index = self.plan.played.timeline, self.plan.layer_costs.chain.index
        kinds = {ActionKind(kind) for order in timeline.orders for kind in set(order.kind.tolist())}
        # Some schedules put off only some weight gradients: layers are shown the way most microbatches take.
        if ActionKind.INPUT_GRADIENT in kinds:
            kinds.discard(ActionKind.BACKWARD)
        return Counter(
            (index[piece.layer], piece.side)
            for kind in kinds
            for chunk in range(len(self.plan.division.chunks))
            for piece in self.plan.pieces(kind, chunk)
            if piece.layer is not None
        )

    @cached_property
    def _unlinked(self) -> tuple[ArchitectureTable, CostModel]:
        costs = self.plan.played.costs
        return without_links(costs.model, costs.loaded)

    def _scheduled(self, unique: int, side: PassPart) -> ScheduledLayer | None:
        operators, collectives = self._operators(unique, side)
        if not operators.works:
            return None
        table, model = self._unlinked
        timed = TimedPass.of(model.costs(operators.pass_), table)
        latencies = self._latencies(timed.costs, operators)
        problem, result = solve_layer(timed, latencies, 0)
        schedule = LayerSchedule(
            unique,
            0,
            self.plan.layer_costs.chain.layers[unique].kind,
            side,
            timed,
            problem,
            result,
            floor_s=max(float(latencies.hbm_s[0]), float(latencies.buffer_s[0])),
            duration_s=self.plan.seconds(unique, side)[0],
            runs=self._runs[unique, side],
        )
        names = [op.id for op in problem.operators]
        return ScheduledLayer(schedule, {names[at]: told for at, told in collectives.items()})

    def _latencies(self, costs: PassCosts, operators: Operators) -> OperatorLatencies:
        """Those of the cost model; of kernels as the software runs them, on all cores."""
        found = costs.latencies(_ONE)
        if costs.factors.simt_of[0] < 0:
            return found
        link = np.array([work.unit is Unit.LINK for work in operators.works])
        parallel_s = np.where(link, found.parallel_s, operators.alone_s)
        single_s = np.where(link, found.single_s, np.maximum(found.single_s, operators.total_s[:, None]))
        return replace(found, single_s=single_s, parallel_s=parallel_s)

    def _operators(self, unique: int, side: PassPart) -> tuple[Operators, dict[int, CollectiveTime]]:
        """The operators, and what their collectives take, by position."""
        whole = self._pass(unique, side)
        told = {at: self._collective(whole, at) for at, w in enumerate(whole.works) if w.link is not None}
        if side not in (PassPart.INPUT_GRADIENT, PassPart.WEIGHT_GRADIENT):
            return whole, told
        late = side is PassPart.WEIGHT_GRADIENT
        kept = [at for at, w in enumerate(whole.works) if (w.makes_weight_gradient and not w.link) is late]
        return whole.only(kept), {kept.index(at): one for at, one in told.items() if at in kept}

    def _collective(self, operators: Operators, at: int) -> CollectiveTime:
        hidden_s = float(operators.hidden_s(at, self.plan.played.costs.framework)[0])
        return CollectiveTime(float(operators.link_s[0, at]) - hidden_s, hidden_s)

    def _pass(self, unique: int, side: PassPart) -> Operators:
        """All operators of the pass that a side belongs to."""
        costs, layer = self.plan.played.costs.costs, self.plan.layer_costs.chain.layers[unique]
        experts, strategy = layer.expert_parameters > 0, self.plan.played.strategy
        forward = costs.costed(layer.forward, experts=experts)
        if side is PassPart.FORWARD:
            return forward
        backward = costs.costed(layer.backward or Pass((), ()), experts=experts)
        if side not in (PassPart.AGAIN, PassPart.ENDING):
            return backward
        spared = strategy.kept | strategy.offloaded
        return recomputed_operators(forward, backward, costs.framework, spared, ends=side is PassPart.ENDING)


@dataclass(frozen=True)
class ScheduledLayer:
    """Operators of a layer that run as one, and the collectives among them by the schedule's names."""

    schedule: LayerSchedule
    collectives: Mapping[str, CollectiveTime]
