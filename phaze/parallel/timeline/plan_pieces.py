"""The pieces of every pass of a plan: layers one after the other, and exchanges and waits that nothing hides.

Their times are those of the estimate: the pieces of a pass sum to what the pipeline's simulation takes it for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from phaze.parallel.chunk_division import Division
from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.parallel.training.layer_costs import LayerCosts, LayerPassCosts
from phaze.parallel.training.memory.recomputed_layers import Unit, recomputed_units
from phaze.parallel.training.mixed_estimate import MixedEstimator
from phaze.parallel.training.stage_times import StageTimes
from phaze.workload.parallel_degrees import Parallel


class PieceKind(StrEnum):
    """What a device does during a piece of a pass, as the trace calls it."""

    LAYER = "layer"
    RECOMPUTE = "recompute"
    GATHER = "gather of weights"
    REDUCTION = "gradient reduction"
    OFFLOAD = "transfer with the host"
    HOST = "waiting for the host"


class PassPart(StrEnum):
    """Operators of a layer that run as one: those of a pass, or some of them.

    `ENDING` are those of a recomputed layer that ends what runs again together.
    """

    FORWARD = "forward"
    AGAIN = "forward again"
    ENDING = "forward again, the last layer"
    BACKWARD = "backward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


BACKWARD_SIDES: Mapping[ActionKind, PassPart] = {
    ActionKind.BACKWARD: PassPart.BACKWARD,
    ActionKind.INPUT_GRADIENT: PassPart.INPUT_GRADIENT,
    ActionKind.WEIGHT_GRADIENT: PassPart.WEIGHT_GRADIENT,
}
KIND_NAMES: Mapping[ActionKind, str] = {
    ActionKind.FORWARD: "forward",
    **{k: str(s) for k, s in BACKWARD_SIDES.items()},
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that a pass of a chunk consists of; seconds of one microbatch.

    Of layers: `layer`, the position in the chain, and the `side` of it that runs, `compute_s` on the cores,
    `exposed_s` collectives that nothing hides, by what their groups divide. Of others `compute_s` is all.
    """

    what: PieceKind
    name: str
    compute_s: float
    layer: int | None = None
    side: PassPart = PassPart.FORWARD
    exposed_s: Mapping[Parallel, float] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        """Seconds of all of it."""
        return self.compute_s + sum(self.exposed_s.values())


def pieces_of_devices(played: ReplayedPlan) -> list[PlanPieces]:
    """Pieces of the passes on every device of a pipeline; equal devices share them."""
    costs = played.costs
    if not isinstance(costs, MixedEstimator):
        return [PlanPieces(played)] * len(played.timeline.orders)
    known = {
        row: PlanPieces(replace(played, costs=costs.on(device))) for device, row in enumerate(costs.rows)
    }
    return [known[row] for row in costs.rows]


@dataclass(frozen=True)
class PlanPieces:
    """Pieces of every pass of a plan, on one architecture; a pass is an `ActionKind` and a chunk."""

    played: ReplayedPlan
    _known: dict[tuple[ActionKind, int], tuple[Piece, ...]] = field(default_factory=dict)

    @cached_property
    def layer_costs(self) -> LayerCosts:
        """Costs of the layers."""
        return self.played.costs.layer_costs(self.played.strategy)

    @cached_property
    def division(self) -> Division:
        """The chunks of the model."""
        return self.played.costs.division(self.played.strategy)

    @cached_property
    def stage_times(self) -> StageTimes:
        """Times of the chunks."""
        return self.played.costs.stage_times(self.played.strategy)

    def pieces(self, kind: ActionKind, chunk: int) -> tuple[Piece, ...]:
        """The pieces of a pass in their order.

        Exposed gathers of a pass, which the model knows all together, stand before its layers, reductions behind.
        """
        if (kind, chunk) not in self._known:
            self._known[kind, chunk] = tuple(one for one in self._every(kind, chunk) if one.duration_s > 0)
        return self._known[kind, chunk]

    def duration_s(self, kind: ActionKind, chunk: int) -> float:
        """Seconds of one pass of one microbatch."""
        return sum(piece.duration_s for piece in self.pieces(kind, chunk))

    def hidden_s(self, kind: ActionKind, chunk: int) -> float:
        """Seconds of exchanges beside the computation of a pass."""
        found = self.stage_times
        if kind is ActionKind.WEIGHT_GRADIENT:
            return 0.0
        sides = (found.forward,) if kind is ActionKind.FORWARD else (found.recomputation, found.backward)
        return float(sum(side.hidden_s[chunk] for side in sides))

    # -- parts of passes -------------------------------------------------------------------------------------

    def _every(self, kind: ActionKind, chunk: int) -> Iterator[Piece]:
        if kind is not ActionKind.WEIGHT_GRADIENT:
            yield from self._before(kind, chunk)
        first, last = self.division.chunks[chunk]
        if kind is ActionKind.FORWARD:
            start, end = self.division.groups[first][0], self.division.groups[last][1]
            yield from (self._layer(PieceKind.LAYER, at, PassPart.FORWARD) for at in range(start, end + 1))
            return
        for group in range(last, first - 1, -1):
            if kind is not ActionKind.WEIGHT_GRADIENT:
                yield from self._recomputed(group)
            start, end = self.division.groups[group]
            for at in range(end, start - 1, -1):
                yield self._layer(PieceKind.LAYER, at, BACKWARD_SIDES[kind])
        if kind is not ActionKind.WEIGHT_GRADIENT:
            yield Piece(
                PieceKind.REDUCTION, PieceKind.REDUCTION, float(self.stage_times.backward.reduced_s[chunk])
            )

    @cached_property
    def _again(self) -> list[tuple[Unit, ...]]:
        """Layers of every group that run their forward pass again."""
        return recomputed_units(self.layer_costs.chain.names, self.division, self.played.strategy)

    def _before(self, kind: ActionKind, chunk: int) -> Iterator[Piece]:
        found = self.stage_times
        forward = kind is ActionKind.FORWARD
        side = found.forward if forward else found.backward
        host_s = side.host_s[chunk] + (0.0 if forward else found.recomputation.host_s[chunk])
        yield Piece(PieceKind.HOST, PieceKind.HOST, float(host_s))
        yield Piece(PieceKind.OFFLOAD, PieceKind.OFFLOAD, float(side.moved_s[chunk]))
        yield Piece(PieceKind.GATHER, PieceKind.GATHER, float(side.gathered_s[chunk]))

    def _recomputed(self, group: int) -> Iterator[Piece]:
        for start, end in self._again[group]:
            for at in range(start, end + 1):
                yield self._layer(PieceKind.RECOMPUTE, at, PassPart.ENDING if at == end else PassPart.AGAIN)

    def _layer(self, what: PieceKind, position: int, side: PassPart) -> Piece:
        chain = self.layer_costs.chain
        compute_s, exposed_s = self.seconds(chain.index[position], side)
        return Piece(what, chain.names[position], compute_s, position, side, exposed_s)

    def seconds(self, unique: int, side: PassPart) -> tuple[float, dict[Parallel, float]]:
        """Seconds of some operators of a unique layer on the cores, and of their collectives that nothing hides."""
        said, figures = self.played.costs.framework, self.pass_figures(side)
        weight_s = float(figures.weight_s[unique]) * said.stretch
        if side is PassPart.WEIGHT_GRADIENT:
            return weight_s, {}
        compute_s = float(figures.kernels_s[unique]) * said.stretch
        compute_s += said.interference * float(figures.hidden_s[unique])
        if side is PassPart.INPUT_GRADIENT:
            compute_s -= weight_s
        exposed_s = {p: float(one[unique]) for p, one in figures.exposed_s.items() if one[unique] > 0}
        return max(compute_s, 0.0), exposed_s

    def pass_figures(self, side: PassPart) -> LayerPassCosts:
        """Those of the pass that a side belongs to."""
        known = {
            PassPart.FORWARD: self.layer_costs.forward,
            PassPart.AGAIN: self.layer_costs.recomputation,
            PassPart.ENDING: self.layer_costs.ending,
        }
        return known.get(side, self.layer_costs.backward)
