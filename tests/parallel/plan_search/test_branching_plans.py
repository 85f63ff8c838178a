"""Plans whose branches run side by side: the model of a plan on a graph of stages, its bounds, its search."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product
from math import inf
from random import Random

import numpy as np
import pytest
from branching_cases import costs, cut_before, every_cut, small_clip, workload
from phaze.solvers.placement.general import GraphCuts, place_general, read_general_problem
from strategy_cases import framework, small_gpt

from phaze.errors import InputError
from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, RankOrder, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_search.branches.branch_cuts import branch_cuts, starts_and_joins
from phaze.parallel.plan_search.branches.branching_plans import BranchingPlans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.recount.plan_checker import PlanError, check_plan
from phaze.parallel.training.kind_times import kind_times
from phaze.workload.parallel_degrees import Sharding

TOWERS = workload([[256, 512], [1024, 256, 256], [512]])
SPACE = PlanSpace(
    microbatches=(1, 2, 4),
    tensor=(1,),
    sequence=(False,),
    chunks=(1,),
    schedules=(Schedule.ONE_F_ONE_B,),
    recomputes=(Recompute.NONE,),
    frugal=False,
    zeros=(Zero.NONE, Zero.OPTIMIZER),
    branches=True,
)
SIDE_BY_SIDE = ParallelPlan(1, 1, 4, grain=Grain.LAYER, branches=True)


def random_model(random):
    sizes = [random.randint(1, 2) for _ in range(random.randint(2, 3))]
    widths = [[random.choice((64, 256, 512, 1024)) for _ in range(size)] for size in sizes]
    return workload(widths, forked=random.random() < 0.4, rows=random.choice((64, 512)))


def random_costs(random):
    under = framework(hides_transfers=random.random() < 0.5, hides_reduction=random.random() < 0.5)
    return costs(random_model(random), random.choice((3, 4)), random.choice((8, 16)), under)


def variants(space, plan):
    for zero, order in product(*space.choices(plan)):
        yield replace(plan, zero=zero, order=order)


def fastest_s(e, space):
    """The least iteration over every cut, replica, ZeRO stage and order."""
    found = inf
    for shape in space.shapes(e.workload, e.cluster):
        side = replace(shape, grain=Grain.LAYER, branches=True)
        for deep in space.pipelines(side, e.cluster, 99):
            if deep.pipeline_parallel > 1:
                plans = (s for cut in every_cut(e, deep) for s in variants(space, cut))
                found = min(found, *(e.iteration(s).iteration_s for s in plans), inf)
    return found


def fastest_found_s(e, space):
    """The least iteration of the plans that the search finds beside chains."""
    side = [one for one in best_plans(e, space, inf, top=400).best if one.plan.branches]
    return side[0].iteration.iteration_s


def test_a_model_without_branches_is_the_chain_to_the_last_bit():
    e = costs(small_gpt(4))
    chain = ParallelPlan(2, 2, 2, grain=Grain.LAYER, zero=Zero.OPTIMIZER)
    whole = tuple(part.stop - part.start for part in map(e.division(chain).layers, range(2)))
    assert e.iteration(chain) == e.iteration(replace(chain, branches=True, stages=whole))
    assert BranchingPlans(e, SPACE).bounded == []


@pytest.mark.parametrize("seed", range(6))
def test_random_plans_pass_the_checker_and_their_bounds(seed):
    random = Random(seed)
    e = random_costs(random)
    plans = BranchingPlans(e, replace(SPACE, recomputes=(Recompute.NONE, Recompute.FULL)))
    assert plans.bounded
    for bound_s, plan in random.sample(plans.bounded, min(12, len(plans.bounded))):
        for s in variants(plans.space, plan):
            iteration = e.iteration(s)
            check_plan(e, s, iteration, kind_times(e, s))
            assert bound_s <= iteration.iteration_s * (1 + 1e-12)
            assert e.energy_j(s, iteration) > 0


def test_more_kinds_of_plans_pass_the_checker():
    for under in ("plain", "launches"):
        said = (
            {"dispatch_s": 2e-5, "fragmentation": 0.1, "hides_gathers": True} if under == "launches" else {}
        )
        e = costs(TOWERS, 8, 16, framework(**said))
        for more in (
            {"zero": Zero.WEIGHTS, "data_parallel": 2},
            {"recompute": Recompute.FULL, "recomputed": (2, 1, 0, 0)},
            {"order": RankOrder.PIPELINE_INNER, "data_parallel": 2, "zero": Zero.GRADIENTS},
            {"recompute": Recompute.FULL},
        ):
            s = replace(cut_before(e, SIDE_BY_SIDE, "tower0.1.up", "tower1.0.up", "tower2.0.up"), **more)
            check_plan(e, s, e.iteration(s), kind_times(e, s))


@pytest.mark.parametrize("name", ["activations_bytes", "weights_bytes"])
def test_the_checker_counts_memory_of_graphs_itself(name):
    e = costs(TOWERS)
    right = e.iteration(SIDE_BY_SIDE)
    memory = (replace(right.memory[0], **{name: getattr(right.memory[0], name) + 1e6}), *right.memory[1:])
    with pytest.raises(PlanError, match=name):
        check_plan(e, SIDE_BY_SIDE, replace(right, memory=memory))


def test_branches_side_by_side_are_less_deep_and_hold_less():
    """Two equal towers of four layers each: depth of one of them with the head, not of both (GraphPipe)."""
    model = workload([[512] * 4] * 2, rows=2048)
    e = costs(model, 4, 8, framework(hides_transfers=True))
    side = cut_before(e, SIDE_BY_SIDE, "tower0.2.up", "tower1.0.up", "tower1.2.up")
    graph = e.layouts.edges(side).graph
    assert graph.edges == ((0, 1), (1, 3), (2, 3))
    assert graph.depth == 3
    assert [part.activations_bytes > 0 for part in e.iteration(side).memory] == [True] * 4
    held = e.layouts.held(side)[:, 0, 0].tolist()
    assert held == [3, 2, 2, 1]
    passes = e.stage_times(side)
    row = [float(x) for x in passes.forward.pass_s + passes.turned_s]
    chain_s = 8 * max(row) + 3 * min(row)  # at the least, where every stage waits for the one ahead
    assert e.iteration(side).iteration_s < chain_s + e.gradient_sync(side).longest_s


def test_what_skips_stages_waits_there():
    """A short branch beside a long one: what comes to it waits, and so does its gradient where it came from."""
    ends = ("tower0.0.up", "tower0.1.up", "tower0.2.up", "tower1.0.up")
    e = costs(workload([[256] * 3, [256]], rows=128), 5, 16)
    edges = e.layouts.edges(cut_before(e, SIDE_BY_SIDE, *ends[1:]))
    assert edges.graph.edges == (
        (0, 1),
        (1, 2),
        (2, 3),
    )  # without a fork the short one only waits to be joined
    assert not edges.waiting_bytes(16).any()
    forked = costs(workload([[256] * 3, [256]], rows=128, forked=True), 5, 16)
    edges = forked.layouts.edges(cut_before(forked, SIDE_BY_SIDE, *ends))
    assert edges.graph.edges == ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    size = edges.sent_bytes[1]
    assert size == 128 * 256 * 2
    assert edges.waiting_bytes(16).tolist() == [3 * size, 0, 0, 0, 3 * size]
    assert edges.waiting_bytes(2).tolist() == [0, 0, 0, 0, 0]


def test_a_tensor_that_two_layers_of_a_stage_read_is_sent_once():
    e = costs(workload([[256], [256], [256]], forked=True), 2)
    edges = e.layouts.edges(cut_before(e, SIDE_BY_SIDE, "tower0.0.up"))
    assert edges.sent_bytes.tolist() == [512 * 256 * 2.0]


def test_the_search_against_every_cut():
    """Against all convex stages, whatever branches they hold parts of: never below the best, and near it."""
    ratios = []
    for seed in range(8):
        random = Random(seed)
        under = framework(hides_transfers=random.random() < 0.5, hides_reduction=random.random() < 0.5)
        widths = [[random.choice((64, 256, 512, 1024))] for _ in range(2)]
        e = costs(workload(widths, rows=random.choice((64, 512))), random.choice((3, 4)), 16, under)
        space = replace(SPACE, microbatches=(1, 2))
        ratios.append(fastest_found_s(e, space) / fastest_s(e, space))
    assert min(ratios) >= 1 - 1e-12
    assert max(ratios) <= 1.08
    assert sum(ratio <= 1.02001 for ratio in ratios) >= 6


def test_stages_hold_parts_of_several_branches():
    """Two towers, one of them heavy: half of the light one runs beside a part of the heavy one, in no natural order."""
    e = costs(workload([[1024, 1024], [1024, 256]], rows=2048), 4)
    plans = BranchingPlans(e, replace(SPACE, data=(1,), microbatches=(1,)))
    mixed = [plan for _, plan in plans.bounded if plan.layer_order]
    assert mixed
    for plan in mixed:
        check_plan(e, plan, e.iteration(plan), kind_times(e, plan))
    names, places = e.chain(replace(mixed[0], layer_order=())).names, mixed[0].layer_order
    assert e.chain(mixed[0]).names == tuple(names[place] for place in places)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((1, 0, 2, 3, 4, 5, 6), "a layer stands ahead of one that it reads"),
        ((0, 1, 2, 3, 4, 5, 5), "do not name each of 7 layers once"),
    ],
)
def test_orders_that_no_pipeline_runs(order, words):
    e = costs(workload([[256], [256]]), 3)
    plan = replace(SIDE_BY_SIDE, pipeline_parallel=3, stages=(2, 2, 3), layer_order=order)
    with pytest.raises(InputError, match=words):
        e.iteration(plan)


def test_the_account_is_of_the_whole_space_and_memory_is_kept():
    e = costs(TOWERS)
    plain, answer = (best_plans(e, replace(SPACE, branches=on), inf, top=3) for on in (False, True))
    plans = BranchingPlans(e, SPACE)
    more = sum(plans.variants(plan) for _, plan in plans.bounded)
    assert answer.account.total == plain.account.total + more
    slower = best_plans(e, SPACE, inf, top=3, slowdown=lambda plan: 1.0 + 9.0 * (not plan.branches))
    assert slower.best[0].plan.branches
    need = slower.best[0].iteration.memory_bytes
    tight = best_plans(e, SPACE, need * 0.9, top=3, slowdown=lambda plan: 1.0 + 9.0 * (not plan.branches))
    assert all(one.iteration.memory_bytes <= need * 0.9 for one in tight.best)
    assert tight.account.out_of_memory > answer.account.out_of_memory
    none = best_plans(e, SPACE, 0.0)
    assert none.best == ()
    assert none.account.out_of_memory == none.account.total


def test_recompute_is_as_little_as_memory_asks_for():
    e = costs(small_clip(), 4, 16)
    space = replace(SPACE, recomputes=(Recompute.FULL,), frugal=True, microbatches=(1,), pipeline=(4,))
    free = BranchingPlans(e, space)
    plan = free.bounded[0].plan
    ((whole, _), *_) = free.fitted(plan, inf)
    assert whole.recompute is Recompute.NONE
    need = e.iteration(whole).memory_bytes
    ((_, least), *_) = free.fitted(plan, 0.0)
    middle = (least + need) / 2
    ((less, _), *_) = free.fitted(plan, middle)
    assert less.recompute is Recompute.FULL
    assert least <= e.iteration(less).memory_bytes <= middle < need
    check_plan(e, less, e.iteration(less), capacity_bytes=middle)


def general_s(seconds, edges, devices, microbatches):
    """The exact placement of a graph of layers, over all convex stages, without memory and transfers."""
    layers = [
        {
            "id": i,
            "name": f"layer{i}",
            "forward_latency_s": s,
            "input_gradient_latency_s": 2 * s,
            "weight_gradient_latency_s": 0.0,
            "parameter_bytes": 1e12,  # so that no copy of the model is worth its reduction
            "activation_bytes": 0.0,
            "is_tensor_parallel": False,
        }
        for i, s in enumerate(seconds)
    ]
    document = {
        "format": "dse-placement/2",
        "microbatches_per_batch": microbatches,
        "link_bandwidth_bytes_per_s": 1.0,
        "optimizer_state_ratio": 1.0,
        "schedule": {"kind": "1f1b"},
        "choices": {"recompute": ["none"], "zero": [0], "uniform_width": True},
        "conventions": {
            "transfers": "hidden",
            "reduced_stages": "every",
            "reduction_factor": 2.0,
            "in_flight_capped": True,
        },
        "device_types": [{"name": "chip", "count": devices, "memory_bytes": 1e90}],
        "models": [
            {
                "device_type": "chip",
                "tensor_parallel_width": 1,
                "layers": layers,
                "edges": [{"source": u, "target": v, "boundary_bytes": 0.0} for u, v in edges],
            }
        ],
    }
    return place_general(read_general_problem(document)).time_per_batch_s


def depth_of(stages, edges):
    home = {layer: number for number, stage in enumerate(stages) for layer in stage}
    ways = sorted({(home[u], home[v]) for u, v in edges if home[u] != home[v]})
    assert all(u < v for u, v in ways)
    depth = [1] * len(stages)
    for u, v in reversed(ways):
        depth[u] = max(depth[u], depth[v] + 1)
    return max(depth)


def test_cuts_are_those_of_the_exact_placement_of_graphs():
    """Their best against the optimum over all convex stages of one pipeline, both by the formula of the placement.

    time = 3 x longest stage x (microbatches + depth - 1).
    """
    microbatches = 32
    for seed in range(24):
        random = Random(seed)
        seconds, edges = towers_and_head(random)
        devices = random.randint(2, 5)
        cuts = GraphCuts.of(seconds.tolist(), edges).cuts(seconds, devices)
        found = min(
            3
            * max(seconds[list(stage)].sum() for stage in stages)
            * (microbatches + depth_of(stages, edges) - 1)
            for some in cuts.values()
            for stages in some
        )
        assert found == pytest.approx(general_s(seconds.tolist(), edges, devices, microbatches), rel=1e-9)


def towers_and_head(random):
    """Seconds of the layers of two or three towers that end in one layer, and edges between them."""
    sizes = [random.randint(1, 4) for _ in range(random.randint(2, 3))]
    head = sum(sizes)
    starts = np.cumsum([0, *sizes]).tolist()
    edges = [(u, u + 1) for a, n in zip(starts, sizes, strict=False) for u in range(a, a + n - 1)]
    edges += [(a + n - 1, head) for a, n in zip(starts, sizes, strict=False)]
    return np.array([float(random.randint(1, 4)) for _ in range(head + 1)]), sorted(edges)


def test_the_longest_stage_is_shortest_for_what_is_cut_apart():
    """Each choice of places that start a stage, against every cut that has them."""
    random = Random(5)
    for _ in range(10):
        towers = [random.randint(1, 3), random.randint(1, 3)]
        count = sum(towers) + 1
        edges = [*pairwise(range(towers[0])), *pairwise(range(towers[0], count)), (towers[0] - 1, count - 1)]
        starts, joins = starts_and_joins(sorted(set(edges)), count)
        assert starts == [towers[0]]
        assert joins == ([count - 1] if towers[0] - 1 != count - 2 else [])
        seconds = np.array([random.choice((1.0, 2.0, 5.0)) for _ in range(count)])
        found = branch_cuts(seconds, sorted(set(edges)), count)
        for stages, cuts in found.items():
            longest = {cut: max(map(sum, np.split(seconds, np.cumsum(cut)[:-1]))) for cut in cuts}
            every = [[0, *ends, count] for ends in combinations(range(1, count), stages - 1)]
            least = min(max(seconds[a:b].sum() for a, b in pairwise(ends)) for ends in every)
            apart = [ends for ends in every if starts[0] in ends]
            assert min(longest.values()) == least
            assert any(
                starts[0] in np.cumsum(cut)
                and longest[cut] == min(max(seconds[a:b].sum() for a, b in pairwise(ends)) for ends in apart)
                for cut in cuts
            )


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (replace(SIDE_BY_SIDE, schedule=Schedule.GPIPE), "under 1f1b"),
        (replace(SIDE_BY_SIDE, pipeline_parallel=1), "several stages"),
        (
            replace(SIDE_BY_SIDE, chunks=2, pipeline_parallel=2, schedule=Schedule.INTERLEAVED),
            "one part each",
        ),
        (replace(SIDE_BY_SIDE, offload=frozenset({Offload.OPTIMIZER})), "nothing is left to hosts"),
    ],
)
def test_what_no_graph_of_stages_runs(plan, words):
    with pytest.raises(InputError, match=words):
        costs(TOWERS).iteration(plan)


def test_wider_groups_have_the_same_edges():
    e = costs(TOWERS, 8)
    wide = replace(SIDE_BY_SIDE, sharding=Sharding(1))
    assert e.layouts.edges(wide).graph == e.layouts.edges(SIDE_BY_SIDE).graph
