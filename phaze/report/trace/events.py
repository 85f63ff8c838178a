"""What runs when on one pipeline: slices on the threads of the stages.

One process per stage, that is per device of one tensor-parallel group of one replica: all others do the same. Its
threads: the passes of microbatches, their layers, its links, and, for the first microbatch, the operators on its
cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from phaze.report.replay.layer_schedule import LayerSchedule
from phaze.report.replay.operators import layer_schedules
from phaze.report.replay.pipeline import PassRun, pass_runs
from phaze.report.replay.replay import Replay
from phaze.report.replay.stage import Action, Piece, Side
from phaze.report.trace.chrome import Stage, Trace
from phaze.report.trace.slices import ALL_CORES, LAYERS, LINK, MOST_LAYERS, PASSES, Slice


def trace_of(plan: Replay, title: str) -> Trace:
    """The trace of a placement."""
    names = plan.timed.chain.names
    stages = []
    for at, stage in enumerate(plan.stages):
        layers = names[stage.plan.first], names[stage.plan.last]
        span = layers[0] if layers[0] == layers[1] else f"{layers[0]} .. {layers[1]}"
        stages.append(Stage(f"stage {at + 1}: {span}", f"{plan.degrees.tensor_parallel} x {stage.design}"))
    paths: dict[int, list[Slice]] = {}
    for run in sorted(pass_runs(plan), key=lambda run: run.start_s):
        paths.setdefault(run.microbatch, []).append(_pass(plan, run))
    told = {
        "title": title,
        "workload": plan.workload,
        "iteration_time_s": plan.iteration_s,
        "replicas": plan.degrees.data_parallel,
        "devices_per_stage": plan.degrees.tensor_parallel,
        "microbatches_per_replica": plan.microbatches,
    }
    return Trace(stages, slices(plan), list(paths.values()), told)


def slices(plan: Replay) -> Iterator[Slice]:
    """Every slice of one iteration of one pipeline; on a thread no two overlap, the last ends with the iteration."""
    told = _told_in_layers(plan)
    schedules = {(one.row, one.unique, one.side): one for one in layer_schedules(plan)}
    ends = [0.0] * len(plan.stages)
    for run in pass_runs(plan):
        yield _pass(plan, run)
        ends[run.stage] = max(ends[run.stage], run.end_s)
        if run.microbatch < told:
            yield from _pieces(plan, run, schedules)
    for stage, end_s in enumerate(ends):
        yield from _tail(plan, stage, end_s)


def _told_in_layers(plan: Replay) -> int:
    """How many microbatches are told layer by layer: at least the first."""
    each = sum(len(pieces) for stage in plan.stages for pieces in stage.pieces.values())
    return max(1, MOST_LAYERS // max(1, each))


def _pass(plan: Replay, run: PassRun) -> Slice:
    stage = plan.stages[run.stage].plan
    args: dict[str, Any] = {"microbatch": run.microbatch + 1, "layers": stage.last - stage.first + 1}
    if run.side is Side.BACKWARD and stage.recompute:
        args["recompute"] = "full"
    name = f"{run.side} {run.microbatch + 1}"
    return Slice(run.stage, PASSES, name, run.side, run.start_s, run.end_s, args)


def _pieces(
    plan: Replay, run: PassRun, schedules: dict[tuple[int, int, str], LayerSchedule]
) -> Iterator[Slice]:
    """The layers and transfers of one pass, and the operators of the first microbatch."""
    stage, now = plan.stages[run.stage], run.start_s
    for piece in stage.pieces[run.side]:
        end = min(now + piece.duration_s, run.end_s)
        args = {"microbatch": run.microbatch + 1, "pass": run.side}
        if piece.layer is None:
            yield Slice(run.stage, LINK, piece.name, "transfer", now, end, args)
        else:
            kind = plan.timed.chain.layers[plan.timed.chain.index[piece.layer]].kind
            yield Slice(
                run.stage,
                LAYERS,
                piece.name,
                piece.action,
                now,
                end,
                {**args, "layer": piece.layer, "kind": kind},
            )
            if run.microbatch == 0 and (one := _schedule(plan, stage.row, piece, schedules)):
                yield from _operators(run, piece, one, now, end)
        now = end


def _schedule(
    plan: Replay, row: int, piece: Piece, schedules: dict[tuple[int, int, str], LayerSchedule]
) -> LayerSchedule | None:
    """The schedule of a layer's pass; None where it has no operators."""
    side = Side.FORWARD if piece.action is Action.RECOMPUTE else piece.side
    return schedules.get((row, plan.timed.chain.index[piece.layer or 0], side))


def _operators(
    run: PassRun, piece: Piece, one: LayerSchedule, start_s: float, end_s: float
) -> Iterator[Slice]:
    """Operators on the cores that they take; one on all cores has a thread of its own."""
    factor = (end_s - start_s) / one.duration_s if one.duration_s else 1.0
    for op in one.problem.operators:
        start, end = (start_s + times[op.id] * factor for times in (one.result.starts_s, one.result.ends_s))
        args = {
            "microbatch": run.microbatch + 1,
            "pass": run.side,
            "layer": piece.name,
            "unit": "+".join(op.units),
        }
        if op.id in one.result.parallel:
            threads: tuple[str, ...] = (ALL_CORES,)
        else:
            threads = tuple(LINK if core.startswith("LINK") else core for core in one.result.cores[op.id])
        for thread in threads:
            yield Slice(run.stage, thread, op.id, "operator", start, min(end, end_s), args)


def _tail(plan: Replay, stage: int, end_s: float) -> Iterator[Slice]:
    """What follows the last pass: the reserve of the closed form, gradients, the optimizer."""
    own, turns_s = plan.stages[stage], max(plan.turns_s, end_s)
    if turns_s > end_s:
        note = f"the model counts {plan.slots} turns of the slowest stage; played out, the passes end earlier"
        yield Slice(stage, PASSES, "waiting", "waiting", end_s, turns_s, {"why": note})
    reduced_s = turns_s + own.reduction_s
    if own.reduction_s:
        args = {"replicas": plan.degrees.data_parallel}
        yield Slice(stage, LINK, "gradient reduction", "gradient", turns_s, reduced_s, args)
    if own.optimizer_s:
        yield Slice(
            stage,
            PASSES,
            "optimizer",
            "optimizer",
            reduced_s,
            reduced_s + own.optimizer_s,
            {"parameters": own.plan.parameters},
        )
