"""What one microbatch does in one pipeline stage, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phaze.placement.plan import StagePlan


class Side(StrEnum):
    """Which pass through a stage."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Action(StrEnum):
    """What a stage does during a piece of time."""

    RECEIVE = "receive"
    LAYER = "layer"
    RECOMPUTE = "recompute"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class Piece:
    """One layer or one transfer. `layer`: position in the chain; `side`: which of the layer's passes runs."""

    action: Action
    name: str
    layer: int | None
    side: Side
    duration_s: float


@dataclass(frozen=True, slots=True)
class ReplayedStage:
    """A stage of the plan with its pieces in order; together they take the load that the result tells.

    `design`: id of its architecture, which is the one at `row` of the table; `reduction_s`, `optimizer_s`: its own
    share of the end of the iteration.
    """

    plan: StagePlan
    design: str
    row: int
    pieces: dict[Side, tuple[Piece, ...]]
    reduction_s: float
    optimizer_s: float

    def duration_s(self, side: Side) -> float:
        """Seconds of one pass of one microbatch."""
        return sum(piece.duration_s for piece in self.pieces[side])

    @property
    def load_s(self) -> float:
        """Seconds one microbatch occupies the stage, both passes."""
        return self.duration_s(Side.FORWARD) + self.duration_s(Side.BACKWARD)
