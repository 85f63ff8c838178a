"""A placement played again is the placement that was reported: time, memory and schedules."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phaze.solvers.scheduling import check_schedule
from report_cases import again

from phaze.errors import InputError
from phaze.explore.api import evaluate
from phaze.hardware.architecture import load_architecture
from phaze.report.replay.layer_schedule import EFFORT, _distinct
from phaze.report.replay.memory import stage_memories
from phaze.report.replay.operators import layer_schedules
from phaze.report.replay.pipeline import pass_runs, play
from phaze.report.replay.replay import replay
from phaze.report.replay.roofline import operator_points, roofs
from phaze.report.replay.stage import Action, Side
from phaze.workload.work import Unit


def test_time_is_that_of_the_result(case):
    result, plan = case
    assert plan.iteration_s == pytest.approx(result.iteration_time_s)
    for told, stage in zip(result.placement.stages, plan.stages, strict=True):
        assert stage.load_s == pytest.approx(told.load_s)
        names = [plan.timed.chain.names[i] for i in range(stage.plan.first, stage.plan.last + 1)]
        assert names == told.layers
    assert max(s.reduction_s + s.optimizer_s for s in plan.stages) == pytest.approx(
        plan.reduction_s + plan.optimizer_s
    )


def test_every_layer_runs_as_often_as_it_should(case):
    _, plan = case
    for stage in plan.stages:
        layers = list(range(stage.plan.first, stage.plan.last + 1))
        forward = [p.layer for p in stage.pieces[Side.FORWARD] if p.layer is not None]
        backward = [p.layer for p in stage.pieces[Side.BACKWARD] if p.action is Action.LAYER]
        redone = [p.layer for p in stage.pieces[Side.BACKWARD] if p.action is Action.RECOMPUTE]
        assert forward == layers
        assert backward == (layers[::-1] if plan.training else [])
        assert redone == (layers if stage.plan.recompute else [])


def test_memory_parts_sum_to_the_peak(case):
    result, plan = case
    found = stage_memories(plan)
    for told, one in zip(result.placement.stages, found, strict=True):
        assert one.total_bytes == pytest.approx(told.memory_bytes)
    if plan.training:  # mixed-precision Adam: 2 + 4 + 12 bytes
        assert found[0].optimizer_bytes == 3 * found[0].gradients_bytes == 6 * found[0].weights_bytes
    else:
        assert not any(one.gradients_bytes or one.optimizer_bytes for one in found)


def test_passes_keep_every_rule_of_the_pipeline(case):
    _, plan = case
    runs = pass_runs(plan)
    check_passes(runs, len(plan.stages), plan.microbatches, training=plan.training)
    assert max(run.end_s for run in runs) <= plan.turns_s * (1 + 1e-9)


def check_passes(runs, stages, microbatches, *, training):
    sides = list(Side) if training else [Side.FORWARD]
    at = {(r.stage, r.microbatch, r.side): r for r in runs}
    assert len(at) == len(runs) == stages * microbatches * len(sides)
    for (stage, microbatch, side), run in at.items():
        if side is Side.FORWARD and stage:
            assert run.start_s >= at[stage - 1, microbatch, side].end_s
        if side is Side.BACKWARD:
            before = (stage + 1, side) if stage + 1 < stages else (stage, Side.FORWARD)
            assert run.start_s >= at[before[0], microbatch, before[1]].end_s
    by_stage = defaultdict(list)
    for run in runs:
        by_stage[run.stage].append(run)
    for stage, own in by_stage.items():
        held = 0
        for before, after in itertools.pairwise(own):
            assert after.start_s >= before.end_s
        for run in own:
            held += 1 if run.side is Side.FORWARD else -1
            assert not training or held <= stages - stage


@given(
    loads=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=6),
    microbatches=st.integers(1, 9),
    training=st.booleans(),
)
def test_uneven_stages_never_take_longer_than_the_turns_of_the_slowest(loads, microbatches, training):
    given_s = [{Side.FORWARD: f, Side.BACKWARD: b if training else 0.0} for f, b in loads]
    runs = play(given_s, microbatches, training=training)
    check_passes(runs, len(loads), microbatches, training=training)
    turn_s = max(sum(load.values()) for load in given_s)
    assert max(r.end_s for r in runs) <= (microbatches + len(loads) - 1) * turn_s * (1 + 1e-9)


@given(microbatches=st.integers(1, 9), stages=st.integers(1, 6))
def test_even_stages_take_exactly_these_turns(microbatches, stages):
    runs = play([{Side.FORWARD: 1.0, Side.BACKWARD: 2.0}] * stages, microbatches, training=True)
    assert max(r.end_s for r in runs) == 3.0 * (microbatches + stages - 1)


def test_schedules_are_those_behind_the_layer_times(case):
    _, plan = case
    index = plan.timed.chain.index
    durations = {(one.row, one.unique, one.side): one.duration_s for one in layer_schedules(plan)}
    for stage in plan.stages:
        for pieces in stage.pieces.values():
            for piece in (p for p in pieces if p.layer is not None and p.duration_s):
                side = Side.FORWARD if piece.action is Action.RECOMPUTE else piece.side
                assert durations[stage.row, index[piece.layer], side] == pytest.approx(piece.duration_s)
    for one in layer_schedules(plan):
        check_schedule(one.problem, one.result)


def test_schedules_do_not_depend_on_how_long_the_process_runs():
    assert math.isinf(EFFORT.left_s())


def test_repeated_names_are_told_apart():
    assert list(_distinct(["a", "a", "a (2)", "b", "a"])) == ["a", "a (3)", "a (2)", "b", "a (4)"]


def test_operators_stay_below_their_roofs(pipeline):
    chip = roofs(pipeline.evaluator.table, None)
    points = operator_points(layer_schedules(pipeline), pipeline.evaluator.table)
    assert {p.unit for p in points} >= {Unit.TENSOR, Unit.VECTOR}
    for point in points:
        peak = chip.vector_flops_per_s if point.unit is Unit.VECTOR else chip.tensor_flops_per_s
        assert point.flops_per_s <= min(peak, point.intensity * chip.hbm_bytes_per_s) * (1 + 1e-9)


def test_stages_may_be_of_different_designs(pipeline):
    task, chip = pipeline.task, load_architecture("tpuv4")
    told = evaluate(task, chip).workloads[task.workload.name].placement.stages
    larger = chip.replace("larger", int32_alus=1024)  # costs area, not time
    mixed = replay(task, pipeline.degrees, told, [chip, larger, larger, chip], proven=True)
    assert [(s.design, s.row) for s in mixed.stages] == [
        ("tpuv4", 0),
        ("larger", 1),
        ("larger", 1),
        ("tpuv4", 0),
    ]
    assert mixed.iteration_s == pipeline.iteration_s
    with pytest.raises(InputError, match="run it again"):
        replay(
            task, pipeline.degrees, told, [chip, chip, chip, chip.replace("slow", clock_hz=5e8)], proven=True
        )


def test_what_the_model_does_not_say_any_more_is_refused(pipeline):
    task, chip = pipeline.task, load_architecture("tpuv4")
    result = evaluate(task, chip).workloads[task.workload.name]
    first, *rest = result.placement.stages

    def told(**update):
        stages = [first.model_copy(update=update), *rest]
        return result.model_copy(update={"placement": result.placement.model_copy(update={"stages": stages})})

    with pytest.raises(InputError, match="run it again"):
        again(task, told(load_s=first.load_s * 1.01), chip)
    stretched = again(task, told(load_s=first.load_s * 1.01), chip, proven=False)
    assert stretched.stages[0].load_s == pytest.approx(first.load_s * 1.01)
    with pytest.raises(InputError, match="run it again"):
        again(task, told(load_s=first.load_s * 1.2), chip, proven=False)
    with pytest.raises(InputError, match="layers of the run"):
        again(task, told(layers=["other"]), chip)
