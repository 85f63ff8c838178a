"""The pieces of a stage's two passes: tensors that come in, layers one after the other, tensors that go out."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.placement.basis import Basis
from phaze.placement.plan import StagePlan
from phaze.report.replay.stage import Action, Piece, Side
from phaze.scheduling.layers import LayerTimes


def stage_pieces(
    basis: Basis, stage: StagePlan, times: LayerTimes, row: int, stretch: float
) -> dict[Side, tuple[Piece, ...]]:
    """Both passes of a stage on the design at `row` of `times`, every time multiplied by `stretch`.

    In training the transfers of a stage are shared out evenly: activations cross its ends one way, gradients as
    many bytes the other way.
    """
    ways = 2 if basis.training else 1
    ends = [stage.first > 0, stage.last + 1 < len(basis.index)]
    transfer_s = stage.transfer_s * stretch / ways / max(1, sum(ends))

    def layers(side: Side, action: Action) -> Iterator[Piece]:
        own = times.forward_s if side is Side.FORWARD else times.backward_s
        positions = range(stage.first, stage.last + 1)
        for at in positions if side is Side.FORWARD else reversed(positions):
            seconds = float(own[row, basis.index[at]]) * stretch
            yield Piece(action, basis.chain.names[at], at, side, seconds)

    def crossing(side: Side, present: bool, action: Action) -> Iterator[Piece]:
        if present and transfer_s:
            what = "activations" if side is Side.FORWARD else "gradients"
            yield Piece(action, f"{action} {what}", None, side, transfer_s)

    forward = (
        *crossing(Side.FORWARD, ends[0], Action.RECEIVE),
        *layers(Side.FORWARD, Action.LAYER),
        *crossing(Side.FORWARD, ends[1], Action.SEND),
    )
    if not basis.training:
        return {Side.FORWARD: forward, Side.BACKWARD: ()}
    again = layers(Side.FORWARD, Action.RECOMPUTE) if stage.recompute else ()
    backward = (
        *crossing(Side.BACKWARD, ends[1], Action.RECEIVE),
        *again,
        *layers(Side.BACKWARD, Action.LAYER),
        *crossing(Side.BACKWARD, ends[0], Action.SEND),
    )
    return {Side.FORWARD: forward, Side.BACKWARD: backward}
