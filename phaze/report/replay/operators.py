"""The operators of every unique layer in time, on the cores of the design."""

from __future__ import annotations

from collections import Counter

import numpy as np

from phaze.report.replay.layer_schedule import LayerSchedule, solved
from phaze.report.replay.replay import Replay
from phaze.report.replay.stage import Action, Side
from phaze.scheduling.passes import TimedPass


def layer_schedules(plan: Replay) -> list[LayerSchedule]:
    """Every unique layer and pass on every design in use, those that take most time first."""
    timed = plan.timed
    found = []
    for (row, unique, side), runs in _runs(plan).items():
        passes = timed.forward if side is Side.FORWARD else timed.backward
        if passes[unique].work.works:
            found.append(_scheduled(passes[unique], row, unique, side, timed.chain.layers[unique].kind, runs))
    return sorted(found, key=lambda one: -one.total_s)


def _runs(plan: Replay) -> Counter[tuple[int, int, Side]]:
    """How often one microbatch goes through each (design, unique layer, pass)."""
    index = plan.timed.chain.index
    return Counter(
        (stage.row, index[piece.layer], Side.FORWARD if piece.action is Action.RECOMPUTE else piece.side)
        for stage in plan.stages
        for pieces in stage.pieces.values()
        for piece in pieces
        if piece.layer is not None
    )


def _scheduled(timed: TimedPass, row: int, unique: int, side: Side, kind: str, runs: int) -> LayerSchedule:
    latencies = timed.costs.latencies(np.array([row]))
    problem, result = solved(timed, latencies, row)
    floor_s = max(float(latencies.hbm_s[0]), float(latencies.buffer_s[0]))
    lasting_s = max(result.makespan_s, floor_s)
    return LayerSchedule(unique, row, kind, side, timed, problem, result, floor_s, lasting_s, runs)
