"""The checker of general plans: numbers worked out by hand, and plans it must refute."""

from dataclasses import replace

import pytest
from general_cases import PLAIN
from phaze.solvers.placement import PlanError
from phaze.solvers.placement.general import GeneralStage, general_plan_time, place_general
from phaze.solvers.placement.general.general_checker import StageTimes, stage_bytes, stage_times
from phaze.solvers.placement.general.general_problem import (
    DeviceType,
    GeneralProblem,
    Model,
    Recompute,
    Reduced,
    Schedule,
    Transfers,
)

# Layer 0 feeds 1 and 2; the stage in question is {1, 2}, which feeds 3.
PROBLEM = GeneralProblem(
    microbatches_per_batch=8,
    link_bandwidth_bytes_per_s=2.0,
    optimizer_state_ratio=6.0,
    schedule=Schedule.ONE_F_ONE_B,
    virtual_stages=1,
    recompute=tuple(Recompute),
    zero=(0, 1, 2, 3),
    uniform_width=False,
    conventions=PLAIN,
    device_types=(DeviceType("chip", 16, 1000.0),),
    layer_ids=(0, 1, 2, 3),
    edges=((0, 1), (0, 2), (1, 3), (2, 3)),
    models=tuple(
        Model(
            device_type=0,
            tensor_parallel=width,
            forward_s=(1.0, 2.0, 3.0, 1.0),
            input_gradient_s=(1.0, 4.0, 5.0, 1.0),
            weight_gradient_s=(1.0, 6.0, 7.0, 1.0),
            parameter_bytes=(10.0, 20.0, 40.0, 10.0),
            activation_bytes=(1.0, 5.0, 6.0, 1.0),
            is_tensor_parallel=(False, True, False, False),
            boundary_bytes=(2.0, 8.0, 4.0, 12.0),
        )
        for width in (1, 2)
    ),
)


def stage(layers=(1, 2), **options):
    fields = {
        "layers": layers,
        "devices": 1,
        "device_type": "chip",
        "tensor_parallel": 1,
        "recompute": Recompute.NONE,
        "zero": 0,
    }
    return GeneralStage(**{**fields, **options})


def times(*, data_parallel=4, schedule=Schedule.ONE_F_ONE_B, transfers=Transfers.HIDDEN, **options):
    problem = replace(PROBLEM, schedule=schedule, conventions=replace(PLAIN, transfers=transfers))
    return stage_times(problem, data_parallel, stage(**options))


# Half an all-reduce of 60 bytes over 4 copies takes 2/2 * 3/4 * 60 / 2 = 22.5 s.
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, StageTimes(5.0, 22.0, 0.0, 45.0)),
        ({"data_parallel": 1}, StageTimes(5.0, 22.0, 0.0, 0.0)),
        ({"schedule": Schedule.ZB_H1}, StageTimes(5.0, 9.0, 13.0, 45.0)),
        ({"recompute": Recompute.FULL}, StageTimes(5.0, 27.0, 0.0, 45.0)),
        # 2 + 8 bytes enter, 4 + 12 leave.
        ({"transfers": Transfers.EXPOSED}, StageTimes(18.0, 35.0, 0.0, 45.0)),
        # Layer 1 waits 1 s and runs until 3 s, layer 2 waits until 4 s; backwards layer 2 waits 6 s, then all run.
        ({"transfers": Transfers.OVERLAPPED}, StageTimes(7.0, 28.0, 0.0, 45.0)),
        # The recomputation ends after 5 s, the gradient arrives at 6 s.
        ({"transfers": Transfers.OVERLAPPED, "recompute": Recompute.FULL}, StageTimes(7.0, 28.0, 0.0, 45.0)),
        ({"zero": 1}, StageTimes(5.0, 22.0, 0.0, 45.0)),
        ({"zero": 2}, StageTimes(5.0, 44.5, 0.0, 22.5)),
        ({"zero": 2, "schedule": Schedule.ZB_H2}, StageTimes(5.0, 9.0, 35.5, 22.5)),
        ({"zero": 3}, StageTimes(27.5, 67.0, 0.0, 0.0)),
        ({"zero": 3, "recompute": Recompute.FULL}, StageTimes(27.5, 94.5, 0.0, 0.0)),
    ],
)
def test_times_of_a_stage(choice, expected):
    assert times(**choice) == expected


def test_only_stages_that_nothing_feeds_are_reduced_first():
    first = replace(PROBLEM, conventions=replace(PLAIN, reduced=Reduced.FIRST, reduction_factor=4.0))
    assert stage_times(first, 4, stage()).reduction_s == 0.0
    assert stage_times(first, 4, stage((0,))).reduction_s == 4 * 3 / 4 * 10 / 2


@pytest.mark.parametrize(
    ("zero", "expected"),
    [(0, 60 * 8), (1, 60 * 2 + 90), (2, 60 + 15 + 90), (3, 15 + 15 + 90 + 0.75 * 40)],
)
def test_bytes_of_a_stage(zero, expected):
    assert stage_bytes(PROBLEM, 4, stage(zero=zero), held=1, late=0) == expected + 11
    assert stage_bytes(PROBLEM, 4, stage(zero=zero), held=3, late=0) == expected + 33
    assert stage_bytes(PROBLEM, 4, stage(zero=zero), held=3, late=2) == expected + 55
    full = stage(zero=zero, recompute=Recompute.FULL)
    assert stage_bytes(PROBLEM, 4, full, held=3, late=0) == expected + 11 + 2 * 10


GOOD = [stage((0,)), stage((1, 2)), stage((3,))]


def test_time_of_a_plan():
    # n = 2, S = 3: (2 + 3 - 1) * 53 s, as above, and 45 s.
    assert general_plan_time(PROBLEM, 4, GOOD) == 4 * (18 + 35) + 45


@pytest.mark.parametrize(
    ("changes", "degree", "stages", "message"),
    [
        ({}, 9, GOOD, "out of range"),
        ({}, 0, GOOD, "out of range"),
        ({}, 1, GOOD[:2], "every layer once"),
        ({}, 1, [*GOOD, stage((3,))], "every layer once"),
        ({}, 1, [*GOOD, stage(())], "no layer"),
        ({}, 1, [GOOD[1], GOOD[0], GOOD[2]], "feeds an earlier one"),
        ({}, 1, [stage((0, 3)), stage((1, 2))], "feeds an earlier one"),
        ({}, 1, [*GOOD[:2], stage((3,), zero=4)], "ZeRO stage 4 is no choice"),
        (
            {},
            1,
            [*GOOD[:2], stage((3,), recompute=Recompute.FULL)],
            "'full' is no choice for a stage that holds 1",
        ),
        ({"recompute": (Recompute.FULL,)}, 1, GOOD, "'none' is no choice for a stage that holds 3"),
        ({}, 1, [*GOOD[:2], stage((3,), device_type="chop")], "no model of 'chop'"),
        ({}, 1, [*GOOD[:2], stage((3,), tensor_parallel=3)], "no model of 'chip' at tensor-parallel width 3"),
        ({}, 1, [stage((0,)), stage((1, 2), tensor_parallel=2), stage((3,))], "runs on 2 devices, not 1"),
        ({}, 1, [stage((0,), tensor_parallel=2, devices=2), *GOOD[1:]], "runs on 1 devices, not 2"),
        (
            {"uniform_width": True},
            1,
            [stage((0,), tensor_parallel=2), *GOOD[1:]],
            "several tensor-parallel widths",
        ),
        ({}, 6, GOOD, "more devices of type 'chip'"),
        ({"device_types": (DeviceType("chip", 16, 500.0),)}, 1, GOOD, "does not fit in the memory"),
        (
            {"schedule": Schedule.INTERLEAVED, "virtual_stages": 2},
            1,
            GOOD,
            "3 stages do not divide into 2 for each device",
        ),
        (
            {"schedule": Schedule.INTERLEAVED, "virtual_stages": 3},
            1,
            [stage((0,), tensor_parallel=2, devices=2), *GOOD[1:]],
            "one device type and one width",
        ),
    ],
)
def test_the_checker_refutes(changes, degree, stages, message):
    assert general_plan_time(PROBLEM, 1, GOOD) > 0
    with pytest.raises(PlanError, match=message):
        general_plan_time(replace(PROBLEM, **changes), degree, stages)


def test_parallel_branches_shorten_the_pipeline():
    chain = replace(PROBLEM, edges=((0, 1), (1, 2), (2, 3), (2, 3)))
    apart = [stage((v,)) for v in range(4)]
    fork_s, chain_s = (general_plan_time(p, 1, apart) for p in (PROBLEM, chain))
    assert fork_s == (8 + 3 - 1) * (3 + 12 + 2 * (4 + 6))
    assert chain_s == (8 + 4 - 1) * (3 + 12 + 2 * (4 + 2 + 6))


def test_a_stage_stands_at_its_true_depth():
    """Layer 1 may stand beside the first of two stages, but holds one microbatch and may not recompute."""
    model = Model(
        device_type=0,
        tensor_parallel=1,
        forward_s=(2.0, 1.75, 0.5),
        input_gradient_s=(1.75, 1.0, 1.75),
        weight_gradient_s=(0.5, 1.5, 0.0),
        parameter_bytes=(6.0, 1.0, 7.0),
        activation_bytes=(2.0, 11.0, 12.0),
        is_tensor_parallel=(False, False, False),
        boundary_bytes=(5.0,),
    )
    problem = replace(
        PROBLEM,
        microbatches_per_batch=9,
        link_bandwidth_bytes_per_s=4.0,
        recompute=(Recompute.FULL,),
        zero=(0,),
        device_types=(DeviceType("chip", 3, 100.0),),
        layer_ids=(0, 1, 2),
        edges=((0, 2),),
        models=(model,),
    )
    result = place_general(problem)
    assert (result.time_per_batch_s, result.depth, result.num_stages) == (87.5, 2, 3)
    full = [found.layers for found in result.stages if found.recompute is Recompute.FULL]
    assert full == [(0,)]
