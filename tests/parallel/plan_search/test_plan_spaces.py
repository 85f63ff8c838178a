"""Named spaces of plans, as data: what is in each, and what a framework leaves of it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.errors import InfeasibleError, InputError
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import list_frameworks, load_framework
from phaze.parallel.parallel_plan import Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_choices import Choices, Dimension, chosen, list_plans, load_plans
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import plan_space
from phaze.workload.workload import Attention
from phaze.workload.workload_loader import load_workload


def space_of(name, devices=12, batch=24, software=None, layers=6):
    cluster = Cluster(devices, batch, load_network("default"))
    return plan_space(small_gpt(layers), cluster, software or framework(), load_plans(name)), cluster


def pipelines(name, layers=6, **sizes):
    space, cluster = space_of(name, layers=layers, **sizes)
    shapes = space.shapes(small_gpt(layers), cluster)
    return [deep for shape in shapes for deep in space.pipelines(shape, cluster, layers)]


@pytest.mark.parametrize("name", list_plans())
def test_packaged_ones_load_and_say_what_for(name):
    assert load_plans(name).name == name
    assert len(load_plans(name).source) > 60


def is_ragged(deep, batch=24):
    return batch % (deep.microbatch * deep.data_parallel) != 0


@pytest.mark.parametrize(
    ("name", "some"), [("full", False), ("megatron", False), ("any", True), ("phaze", True)]
)
def test_who_has_replicas_of_unequal_work(name, some):
    assert any(map(is_ragged, pipelines(name, devices=10))) is some


def test_replicas_are_as_many_as_can_have_the_same_work():
    for deep in pipelines("full", devices=11):
        total = 24 // deep.microbatch
        most = 11 // (deep.width * deep.pipeline_parallel)
        assert deep.data_parallel == max(d for d in range(1, most + 1) if total % d == 0)


@pytest.mark.parametrize(
    ("name", "grains"),
    [("full", {"block"}), ("megatron", {"block"}), ("any", set(Grain)), ("phaze", set(Grain))],
)
def test_who_cuts_blocks_in_two(name, grains):
    assert {deep.grain for deep in pipelines(name)} == grains
    assert all(deep.pipeline_parallel > 1 for deep in pipelines(name) if deep.grain is Grain.LAYER)


def test_no_named_framework_cuts_blocks_in_two():
    for name in set(list_frameworks()) - {"ideal", "exposed"}:
        assert space_of("any", software=load_framework(name))[0].grains == (Grain.BLOCK,)


def test_equal_stages():
    assert all(7 % deep.parts == 0 for deep in pipelines("megatron", layers=7))
    assert not all(7 % deep.parts == 0 for deep in pipelines("full", layers=7))


def test_what_phaze_decides():
    space, _ = space_of("phaze")
    assert space.schedules == (Schedule.ONE_F_ONE_B,)
    assert space.zeros == (Zero.NONE,)
    assert space.recomputes == (Recompute.NONE, Recompute.FULL)
    assert not space.frugal
    assert space.sequence == (False,)


def test_zero_beside_pipelines():
    space, cluster = space_of("megatron")
    for deep in pipelines("megatron"):
        zeros, _ = space.choices(deep)
        assert max(zeros) <= (Zero.OPTIMIZER if deep.pipeline_parallel > 1 else Zero.WEIGHTS)
    assert cluster.devices == 12


def test_a_narrower_space_is_never_faster():
    e = estimator(devices=10, batch=24, workload=small_gpt(6))
    fastest = {}
    for name in list_plans():
        space = plan_space(e.workload, e.cluster, e.framework, load_plans(name))
        fastest[name] = best_plans(e, space, inf).best[0].iteration.iteration_s
    assert fastest["any"] <= fastest["full"] <= fastest["megatron"]
    assert fastest["any"] <= fastest["phaze"]


def test_what_a_framework_leaves():
    only = Choices(
        zero=(Zero.NONE,),
        schedules=("1f1b", "interleaved"),
        recompute=("none", "all-blocks"),
        divides=("tensor",),
    )
    space, _ = space_of("full", software=framework(plans=only))
    assert space.zeros == (Zero.NONE,)
    assert space.schedules == (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)
    assert set(space.recomputes) == {Recompute.NONE, Recompute.FULL}
    assert space.pipeline == space.context == (1,)
    assert max(space.tensor) > 1


def test_nothing_in_common_is_refused():
    with pytest.raises(InputError, match="have no zero in common"):
        space_of("phaze", software=framework(plans=Choices(zero=(Zero.WEIGHTS,))))


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"schedules": (Schedule.ZB_V,)}, "schedule zb-v; it has: 1f1b"),
        ({"zeros": (Zero.WEIGHTS,)}, "ZeRO 3; it has: 0"),
        ({"recomputes": (Recompute.SELECTIVE,)}, "recompute selective; it has: none, all-blocks"),
        ({"sequence": (True,)}, "sequence parallelism; it divides: data, pipeline, tensor"),
        ({"context": (2,)}, "context parallelism"),
        ({"tensor": (8,), "sequence": (False,), "zeros": (Zero.NONE,)}, None),
    ],
)
def test_what_is_held_and_not_there(held, words):
    why = load_plans("phaze").refusal(held)
    assert why == words if words is None else words in why


def test_zero_3_beside_pipelines_is_refused_by_name():
    held = {"zeros": (Zero.WEIGHTS,), "pipeline": (4,)}
    assert load_plans("megatron").refusal(held) == "ZeRO 3 beside pipelines; it has: 0, 1"
    assert load_plans("megatron").refusal(held | {"pipeline": (1,)}) is None


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\nsource: my own\nmicrobatches: [1]\nchunks: [1]\nschedules: [gpipe]\nzero: [1]\n"
    )
    space, _ = space_of(str(path))
    assert space.schedules == (Schedule.GPIPE,)
    assert space.zeros == (Zero.OPTIMIZER,)
    assert space.microbatches == (1,)


def test_unknown_words_are_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsource: my own\nmicrobatches: [1]\nchunks: [1]\nschedules: [fast]\n")
    with pytest.raises(InputError, match="schedules"):
        load_plans(path)


@pytest.mark.parametrize("name", list_frameworks())
def test_every_packaged_framework_finds_a_plan_that_it_runs(name):
    software = load_framework(name)
    e = estimator(devices=8, batch=16, software=software, workload=small_gpt(8))
    space = plan_space(e.workload, e.cluster, software, load_plans("full"))
    best = best_plans(e, space, inf).best[0].plan
    assert software.plans.refusal(chosen(best)) is None
    assert software.plans.ragged is not True


@pytest.mark.parametrize("name", [n for n in list_frameworks() if n not in ("ideal", "exposed")])
def test_every_named_framework_says_what_it_runs(name):
    plans = load_framework(name).plans
    assert None not in (plans.divides, plans.ragged, plans.recompute, plans.zero)
    assert plans.stages or not plans.divided(Dimension.PIPELINE)
    assert plans.schedules or not plans.divided(Dimension.PIPELINE)


def test_megatron_of_2021_runs_what_it_ran():
    plans = load_framework("megatron-lm-2021").plans
    for held, words in (
        ({"schedules": (Schedule.ZB_V,)}, "schedule zb-v; it has: 1f1b, interleaved"),
        ({"sequence": (True,)}, "sequence parallelism"),
        ({"zeros": (Zero.OPTIMIZER,)}, "ZeRO 1; it has: 0"),
        ({"recomputes": (Recompute.SELECTIVE,)}, "recompute selective"),
    ):
        assert words in plans.refusal(held)


@pytest.mark.parametrize("name", list_frameworks())
def test_a_device_keeps_some_memory_for_what_plans_do_not_count(name):
    software = load_framework(name)
    assert 0.9 < software.usable_memory < 1
    assert software.usable_bytes(80e9) == pytest.approx(software.usable_memory * 80e9)


def test_infeasible_plans_are_told_what_can_be_used():
    task = Task(small_gpt(8), 1, load_network("default"), global_batch=8)
    full = load_architecture("a100")
    needed = find_best_plan(task, full).best.memory_bytes
    chip = full.replace("small", hbm_capacity_bytes=needed * 0.2)
    with pytest.raises(InfeasibleError) as told:
        find_best_plan(task, chip)
    (short,) = told.value.shortfalls
    assert short.what == "memory of one device (96 % of it can be used)"
    assert short.limit == pytest.approx(needed * 0.2)


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize("by_operator", [False, True])
def test_selective_recompute_is_a_choice_where_it_spares_something(attention, by_operator):
    """Whatever the software would run by itself, the layers tell: flash attention keeps no scores as it is."""
    software, workload = framework(keeps_products=by_operator), small_gpt(4, attention)
    task = Task(workload, 4, load_network("default"), 8, framework=software)
    saved = [
        sum(chain.layers[i].saved_bytes for i in chain.index)
        for on in (False, True)
        for chain in (workload.chain(1, 1, selective=on, keeps_products=by_operator),)
    ]
    spares = attention is not Attention.FLASH or by_operator
    assert (saved[1] < saved[0]) is spares
    assert (Recompute.SELECTIVE in task.plan_space.recomputes) is spares
    held = replace(task, held={"recomputes": (Recompute.SELECTIVE,)})
    if spares:
        assert held.plan_space.recomputes == (Recompute.SELECTIVE,)
    else:
        with pytest.raises(InputError, match="spares nothing of small"):
            _ = held.plan_space


def test_experts_are_dealt_among_groups_that_divide_their_number():
    task = Task(load_workload("mixtral-8x7b"), 64, load_network("default"), global_batch=64)
    assert set(task.plan_space.expert) == {1, 2, 4, 8}
    with pytest.raises(InputError, match="degree 16 is not possible for mixtral-8x7b; possible: 1, 2, 4, 8"):
        _ = replace(task, held={"expert": (16,)}).plan_space
