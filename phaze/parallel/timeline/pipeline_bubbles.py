"""Bubbles of a pipeline that is played: when each device waits for others in an iteration, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.timeline.plan_runs import Run, closing, runs
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.tolerances import SAME


class BubbleKind(StrEnum):
    """Why a device waits (PipeFill, arXiv 2410.07192, section 2)."""

    FILL_DRAIN = "fill-drain"  # for the first microbatch to come, or the last ones to be through
    FORWARD_BACKWARD = "forward-backward"  # between its first forward passes and the first gradient
    SCATTERED = "scattered"  # between other passes


@dataclass(frozen=True, slots=True)
class Bubble:
    """A stretch of an iteration in which a device has nothing to do, in s from the start of the iteration."""

    kind: BubbleKind
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


def bubbles(played: ReplayedPlan) -> list[list[Bubble]]:
    """Bubbles of every device of a pipeline in the order of time; receipts that block a device are none.

    A device is idle as well from the end of its own gradient synchronisation to that of the longest one.
    """
    whole_s = played.iteration.iteration_s
    devices = len(played.timeline.orders)
    closed: list[list[tuple[float, float]]] = [[] for _ in range(devices)]
    for part in closing(played):
        closed[part.device].append((part.start_s, part.end_s))
    passes: list[list[Run]] = [[] for _ in range(devices)]
    for run in runs(played):
        passes[run.device].append(run)
    return [
        sorted([*idle_between(own), *_outside(own, parts, whole_s)], key=lambda one: one.start_s)
        for own, parts in zip(passes, closed, strict=True)
    ]


def idle_between(passes: Sequence[Run]) -> Iterator[Bubble]:
    """Bubbles between the passes of one device."""
    backward = next((n for n, run in enumerate(passes) if _turns(run)), len(passes))
    for at, (one, other) in enumerate(pairwise(passes), 1):
        kind = BubbleKind.FORWARD_BACKWARD if at == backward else BubbleKind.SCATTERED
        yield from _bubble(kind, one.end_s, _starts_s(other))


def _outside(
    passes: Sequence[Run], closed: Sequence[tuple[float, float]], whole_s: float
) -> Iterator[Bubble]:
    """Bubbles before the first pass and after the last, around what closes an iteration."""
    yield from _bubble(BubbleKind.FILL_DRAIN, 0.0, _starts_s(passes[0]))
    now_s = passes[-1].end_s
    for start_s, end_s in (*sorted(closed), (whole_s, whole_s)):
        yield from _bubble(BubbleKind.FILL_DRAIN, now_s, start_s)
        now_s = max(now_s, end_s)


def _bubble(kind: BubbleKind, start_s: float, end_s: float) -> Iterator[Bubble]:
    """The bubble between two moments, unless it is a matter of rounding."""
    if end_s - start_s > SAME * end_s:
        yield Bubble(kind, start_s, end_s)


def _starts_s(run: Run) -> float:
    """When a device starts on a pass: with what it waits for to be received."""
    return run.received[0][1] if run.received else run.start_s


def _turns(run: Run) -> bool:
    return any(action.kind is not ActionKind.FORWARD for action in run.actions)
