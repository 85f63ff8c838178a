"""What of every block runs again: against every choice tried in turn, and never slower than blocks alike."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, product
from math import inf, isclose

import pytest
from every_plan import cuts
from strategy_cases import SOFTWARE, estimator, framework, small_gpt

from phaze.errors import InputError
from phaze.parallel.chunk_division import blocks
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import BLOCK, EACH, NOTHING, LayerRun, ParallelPlan, Zero
from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.recount.plan_checker import check_plan
from phaze.parallel.timeline.plan_pieces import PieceKind, PlanPieces
from phaze.parallel.timeline.replayed_plan import ReplayedPlan

WAYS = (NOTHING, "attention", "mlp", EACH, BLOCK)
SPACE = PlanSpace(
    microbatches=(1, 2),
    tensor=(1, 2),
    chunks=(1,),
    schedules=(Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.ZB_H1),
    recomputes=(Recompute.FULL,),
    zeros=(Zero.NONE, Zero.WEIGHTS),
    by_layer=True,
)


def told(plan, choice, division):
    runs = tuple(LayerRun(len(list(run)), again) for again, run in groupby(choice))
    counts, ways = [], iter(choice)
    for chunk in division.blocks.tolist():
        counts.append(sum(next(ways) != NOTHING for _ in range(chunk)))
    return replace(plan, recomputed=tuple(counts), layers=runs)


def every_choice(e, space):
    """All plans of a space, and of each all choices for all blocks."""
    for shape in space.shapes(e.workload, e.cluster):
        for deep in space.pipelines(shape, e.cluster, blocks(e.layer_costs(shape).chain, shape.grain)):
            for cut in cuts(e, deep):
                for s in space.schedules_of(cut, e.microbatches(cut)):
                    division = e.division(s)
                    for variant in space.variants(s):
                        for choice in product(WAYS, repeat=sum(division.body)):
                            yield told(variant, choice, division)


def test_no_choice_is_faster():
    e = estimator(devices=2, batch=4, workload=small_gpt(layers=3))
    known = []
    for plan in every_choice(e, SPACE):
        iteration = e.iteration(plan)
        known.append((iteration.memory_bytes, iteration.iteration_s))
    most = best_plans(e, SPACE, inf).best[0].iteration.memory_bytes
    least = best_plans(e, replace(SPACE, by_layer=False), 0.0).least_memory_bytes
    gains = []
    for share in (0.02, 0.1, 0.25, 0.4, 0.6, 0.8, 1.0):
        capacity = least + share * (most - least)
        found = best_plans(e, SPACE, capacity).best
        plain = best_plans(e, replace(SPACE, by_layer=False), capacity).best
        best = min(seconds for need, seconds in known if need <= capacity)
        assert isclose(found[0].iteration.iteration_s, best, rel_tol=1e-9)
        check_plan(e, found[0].plan, found[0].iteration, (), capacity)
        gains.append(plain[0].iteration.iteration_s / best - 1)
    assert min(gains) >= 0
    assert max(gains) > 0.002


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
def test_never_slower_than_blocks_alike_and_checked(software):
    e = estimator(devices=4, batch=8, software=framework(**software))
    space = PlanSpace(microbatches=(1, 2), tensor=(1, 2), chunks=(1, 2), by_layer=True)
    most = best_plans(e, space, inf).best[0].iteration.memory_bytes
    for capacity in (0.8 * most, 0.55 * most, 0.4 * most):
        found = best_plans(e, space, capacity, top=3)
        plain = best_plans(e, replace(space, by_layer=False), capacity)
        assert found.account.total == plain.account.total
        assert (found.account.evaluated > 0) is bool(found.best)
        for one, less in zip(found.best, plain.best, strict=False):
            assert one.iteration.iteration_s <= less.iteration.iteration_s
        for one in found.best:
            check_plan(e, one.plan, one.iteration, (), capacity)


def test_blocks_alike_told_one_by_one_are_the_same_plan():
    e = estimator(devices=4, batch=8)
    alike = ParallelPlan(1, data_parallel=2, recompute=Recompute.FULL, recomputed=2, zero=Zero.WEIGHTS)
    runs = (LayerRun(2, BLOCK), LayerRun(2, NOTHING))
    each = replace(alike, recomputed=(2,), layers=runs)
    assert e.iteration(each) == e.iteration(alike)
    assert e.energy_j(each, e.iteration(each)) == e.energy_j(alike, e.iteration(alike))


def test_an_mlp_alone_takes_less_time_and_frees_less_than_its_block():
    e = estimator(devices=1, batch=8)
    plain = ParallelPlan(1, recompute=Recompute.FULL, recomputed=(4,))
    mlp, block = (e.iteration(replace(plain, layers=(LayerRun(4, again),))) for again in ("mlp", BLOCK))
    none = e.iteration(replace(plain, recompute=Recompute.NONE, recomputed=None))
    assert none.iteration_s < mlp.iteration_s < block.iteration_s
    kept = [one.memory[0].activations_bytes for one in (none, mlp, block)]
    assert kept[0] > kept[1] > kept[2]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ((LayerRun(3, BLOCK),), "3 blocks is told of 4"),
        ((LayerRun(4, "experts"),), "experts is no layer of a block of attention, mlp"),
    ],
)
def test_runs_of_other_blocks_are_refused(runs, why):
    e = estimator(devices=1, batch=8)
    with pytest.raises(InputError, match=why):
        e.iteration(ParallelPlan(1, recompute=Recompute.FULL, recomputed=(3,), layers=runs))


def test_pieces_of_passes_take_as_long_as_these():
    e = estimator(devices=4, batch=8)
    runs = (LayerRun(1, "mlp"), LayerRun(1, NOTHING), LayerRun(1, "attention"), LayerRun(1, EACH))
    plan = ParallelPlan(
        1, pipeline_parallel=2, data_parallel=2, recompute=Recompute.FULL, recomputed=(1, 2), layers=runs
    )
    pieces, times = PlanPieces(ReplayedPlan.of(e, plan, e.iteration(plan))), e.stage_times(plan)
    for chunk in range(2):
        assert isclose(pieces.duration_s(ActionKind.BACKWARD, chunk), times.turned_s[chunk], rel_tol=1e-9)
    again = [one.name for one in pieces.pieces(ActionKind.BACKWARD, 1) if one.what is PieceKind.RECOMPUTE]
    assert [name.rsplit(".", 1)[1] for name in again] == ["attention", "mlp", "attention"]


def test_more_memory_is_never_slower():
    e, last = estimator(devices=4, batch=8), inf
    space = PlanSpace(microbatches=(1, 2), tensor=(1, 2), chunks=(1,), by_layer=True)
    most = best_plans(e, space, inf).best[0].iteration.memory_bytes
    for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        found = best_plans(e, space, share * most).best
        seconds = found[0].iteration.iteration_s if found else inf
        assert seconds <= last * (1 + 1e-12)
        last = seconds
