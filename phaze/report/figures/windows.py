"""Which parts of an iteration are drawn: all of it, or its beginning and its end."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.report.replay.replay import Replay

WHOLE_TURNS = 40
"""Turns of the slowest stage that one picture holds."""

_STEADY_TURNS = 6  # shown beyond the fill and before the drain of the pipeline


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the iteration with its name."""

    name: str
    start_s: float
    end_s: float


def windows(plan: Replay) -> list[Window]:
    """The whole iteration where it is short enough, else how the pipeline fills and how it drains."""
    if plan.slots <= WHOLE_TURNS:
        return [Window("the whole iteration", 0.0, plan.iteration_s)]
    turn_s = plan.turns_s / plan.slots
    turns = min(len(plan.stages) + _STEADY_TURNS, WHOLE_TURNS)
    end_s = max(plan.iteration_s - turns * turn_s - plan.reduction_s - plan.optimizer_s, 0.0)
    return [
        Window("how it begins", 0.0, turns * turn_s),
        Window("how it ends", end_s, plan.iteration_s),
    ]
