"""Weights of some blocks divided among replicas: between ZeRO 1 and 3, and as the recount has it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf, isclose

import pytest
from strategy_cases import SOFTWARE, estimator, framework, small_gpt

from phaze.errors import InputError
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import NOTHING, LayerRun, ParallelPlan, Zero
from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.recount.plan_checker import check_plan
from phaze.parallel.timeline.plan_pieces import PlanPieces
from phaze.parallel.timeline.replayed_plan import ReplayedPlan

ALIKE = ParallelPlan(1, data_parallel=4, recompute=Recompute.FULL, recomputed=(0,), zero=Zero.OPTIMIZER)


def mixed(plan, *sharded, again=NOTHING):
    runs = tuple(LayerRun(1, again, one) for one in sharded)
    return replace(plan, layers=runs, recomputed=tuple([0 if again == NOTHING else 4] * plan.parts))


def test_no_block_divided_is_zero_1():
    e = estimator(devices=4, batch=8)
    assert e.iteration(mixed(ALIKE, *[False] * 4)) == e.iteration(replace(ALIKE, recompute=Recompute.NONE))


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
def test_the_more_blocks_are_divided_the_less_is_kept(software):
    e = estimator(devices=4, batch=8, software=framework(**software))
    kept = [
        e.iteration(mixed(ALIKE, *[place < count for place in range(4)])).memory[0].weights_bytes
        for count in range(5)
    ]
    block = e.memory_footprint(ALIKE).parameters[1]
    weight = e.layouts.parameter_bytes.weight
    for more, less in pairwise(kept):
        assert isclose(more - less, weight * block * 3 / 4, rel_tol=1e-9)


def test_exposed_exchanges_are_those_of_the_divided_blocks():
    """Two gathers and a reduction in every microbatch of a divided block, one of each of all others in the end."""
    e = estimator(devices=4, batch=8, software=framework(hides_gathers=False, hides_reduction=False))
    exchanges, held = e.exchanges(ALIKE), e.memory_footprint(ALIKE).parameters
    weight, gradient = e.rates.wire_bytes

    def exchanged_s(count):
        gather_s, reduce_s = (
            float(some(each * held[1])[0, 0])
            for some, each in ((exchanges.gather_s, weight), (exchanges.reduce_s, gradient))
        )
        rest = held.sum() - count * held[1]
        late_s = exchanges.gather_s(weight * rest) + exchanges.reduce_s(gradient * rest)
        return 2 * count * (2 * gather_s + reduce_s) + float(late_s[0, 0])

    plans = [mixed(ALIKE, *[place < count for place in range(4)]) for count in range(5)]
    alone = [e.iteration(plan).iteration_s - exchanged_s(count) for count, plan in enumerate(plans)]
    assert all(isclose(one, alone[0], rel_tol=1e-9) for one in alone)


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize("again", [NOTHING, "mlp", "block"])
def test_recount_agrees(software, again):
    e = estimator(devices=8, batch=16, software=framework(**software), workload=small_gpt(layers=6))
    for stages, chunks, schedule in (
        (1, 1, Schedule.ONE_F_ONE_B),
        (2, 1, Schedule.ONE_F_ONE_B),
        (2, 3, Schedule.INTERLEAVED),
        (2, 2, Schedule.ZB_V),
    ):
        plain = replace(
            ALIKE, data_parallel=8 // stages, pipeline_parallel=stages, chunks=chunks, schedule=schedule
        )
        sharded = (False, True, True, False, True, False)
        runs = tuple(LayerRun(1, again, one) for one in sharded)
        blocks = e.division(plain).blocks
        counts = tuple((blocks * (again != NOTHING)).tolist())
        plan = replace(plain, layers=runs, recomputed=counts)
        iteration = e.iteration(plan)
        check_plan(e, plan, iteration, (), inf)
        pieces, times = PlanPieces(ReplayedPlan.of(e, plan, iteration)), e.stage_times(plan)
        for chunk, seconds in enumerate(times.forward.pass_s.tolist()):
            assert isclose(pieces.duration_s(ActionKind.FORWARD, chunk), seconds, rel_tol=1e-9)


@pytest.mark.parametrize(
    "changes", [{"zero": Zero.NONE}, {"zero": Zero.GRADIENTS}, {"zero": Zero.WEIGHTS}, {"reshards": False}]
)
def test_blocks_are_divided_beside_zero_1_alone(changes):
    e = estimator(devices=4, batch=8)
    plan = mixed(replace(ALIKE, **changes), True, False, False, False)
    with pytest.raises(InputError, match="under ZeRO 1"):
        e.iteration(plan)
