"""The passes of an iteration in time: 1F1B, event by event, or forward only in inference.

Every stage works on as many microbatches at a time as there are stages from it to the end, then one forward and one
backward pass in turn (Narayanan et al., SC'21, section 2.2). A pass begins as soon as its stage is free and its
tensors have come. Played so, the pipeline never takes longer than the turns of the slowest stage that the model
counts: what is left over is the reserve of that closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze.report.replay.replay import Replay
from phaze.report.replay.stage import Side


@dataclass(frozen=True, slots=True)
class PassRun:
    """One pass of one microbatch through one stage; stages and microbatches count from 0."""

    stage: int
    microbatch: int
    side: Side
    start_s: float
    end_s: float


def pass_runs(plan: Replay) -> list[PassRun]:
    """All passes of one pipeline, stage by stage in the order they run."""
    loads = [{side: stage.duration_s(side) for side in Side} for stage in plan.stages]
    return play(loads, plan.microbatches, training=plan.training)


def play(loads: Sequence[dict[Side, float]], microbatches: int, *, training: bool) -> list[PassRun]:
    """The passes of stages that take `loads` seconds forward and backward."""
    count = len(loads)
    orders = [_order(count - 1 - stage, microbatches, training=training) for stage in range(count)]
    ends: dict[tuple[int, int, Side], float] = {}
    done: list[list[PassRun]] = [[] for _ in loads]
    while any(len(runs) < len(order) for runs, order in zip(done, orders, strict=True)):
        for stage, order in enumerate(orders):
            for microbatch, side in order[len(done[stage]) :]:
                before = _before(stage, side, count)
                if before is not None and (before[0], microbatch, before[1]) not in ends:
                    break
                ready = 0.0 if before is None else ends[before[0], microbatch, before[1]]
                start = max(ready, done[stage][-1].end_s if done[stage] else 0.0)
                end = start + loads[stage][side]
                ends[stage, microbatch, side] = end
                done[stage].append(PassRun(stage, microbatch, side, start, end))
    return [run for runs in done for run in runs]


def _order(behind: int, microbatches: int, *, training: bool) -> list[tuple[int, Side]]:
    """The passes of a stage with so many stages behind it, in their order."""
    forward = [(k, Side.FORWARD) for k in range(microbatches)]
    if not training:
        return forward
    backward = [(k, Side.BACKWARD) for k in range(microbatches)]
    first = min(behind, microbatches)
    pairs = [one for both in zip(forward[first:], backward, strict=False) for one in both]
    return [*forward[:first], *pairs, *backward[microbatches - first :]]


def _before(stage: int, side: Side, count: int) -> tuple[int, Side] | None:
    """The stage and pass whose tensors a pass waits for."""
    if side is Side.FORWARD:
        return (stage - 1, side) if stage else None
    return (stage + 1, side) if stage + 1 < count else (stage, Side.FORWARD)
