"""The checker of plans: it passes what the model works out, and sees every figure that is told otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from random_plans import costs, plans
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.recount.plan_checker import PlanError, check_plan
from phaze.parallel.recount.recounted_parts import RecountedPass
from phaze.parallel.recount.recounted_times import Recount
from phaze.parallel.training.iteration import MemoryBreakdown, TimeBreakdown
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.kind_times import kind_times
from phaze.workload.parallel_degrees import Sharding

TIMES = [f.name for f in fields(TimeBreakdown)]
BYTES = [f.name for f in fields(MemoryBreakdown)]
PLANS = {
    "plain": ("ideal", ParallelPlan(1, 4, 4, Sharding(2), recompute=Recompute.FULL, recomputed=1)),
    "zero": ("hides", ParallelPlan(1, 8, 2, Sharding(2, sequence=True), zero=Zero.WEIGHTS)),
    "dualpipe": ("launches", ParallelPlan(2, 2, 4, schedule=Schedule.DUALPIPE, zero=Zero.GRADIENTS)),
    "offload": ("waits", ParallelPlan(2, 8, 2, zero=Zero.OPTIMIZER, offload=frozenset(Offload))),
}


def told(of="plain"):
    """A plan with all that is told of it."""
    under, strategy = PLANS[of]
    e = costs("dense", under)
    return e, strategy, e.iteration(strategy), kind_times(e, strategy)


def spoilt(e, **methods):
    """An estimator that answers otherwise to some questions."""
    kind = type("Spoilt", (Estimator,), methods)
    return kind(e.workload, e.table, e.cluster, e.framework)


@pytest.mark.parametrize(
    ("seed", "count", "chips"), [(1, 250, ("a100", "h100", "gh200")), (2, 30, ("tpuv4",))]
)
def test_plans_of_all_kinds_pass(seed, count, chips):
    for e, strategy in plans(seed, count, chips):
        check_plan(e, strategy, e.iteration(strategy), kind_times(e, strategy))


def test_equal_groups_are_looked_at_once(monkeypatch):
    """However many blocks a chunk has; and whether replicas divide some is asked once for a plan."""
    counts = Counter()
    for kind, name in (
        (RecountedPass, "join"),
        (RecountedPass, "add"),
        (Recount, "working_bytes"),
        (Recount, "_gradient_sync"),
    ):
        counted(monkeypatch, kind, name, counts)
    found = []
    for blocks in (8, 80):
        counts.clear()
        e = estimator(4, 64, "a100", framework(hides_gathers=True), workload=small_gpt(blocks))
        strategy = ParallelPlan(1, 4, zero=Zero.WEIGHTS, recompute=Recompute.FULL, recomputed=1)
        check_plan(e, strategy, e.iteration(strategy))
        found.append(dict(counts))
    assert found[0] == found[1]
    assert found[0]["_gradient_sync"] == 1


def counted(monkeypatch, kind, name, counts):
    """Count how often a method is called."""
    method = getattr(kind, name)

    def called(self, *given):
        counts[name] += 1
        return method(self, *given)

    monkeypatch.setattr(kind, name, called)


@pytest.mark.parametrize("of", PLANS)
def test_the_plans_to_be_spoilt_pass(of):
    check_plan(*told(of))


@pytest.mark.parametrize("of", PLANS)
@pytest.mark.parametrize("name", TIMES)
def test_a_part_of_time_that_is_wrong(of, name):
    """Alone the parts no longer sum up; what another part makes up for is counted again."""
    e, strategy, right, kinds = told(of)
    for made_up in ("", "bubble_s" if name != "bubble_s" else "product_s"):
        more = {name: getattr(right.time, name) + 1e-6 * right.iteration_s}
        if made_up and name != "hidden_s":
            more[made_up] = getattr(right.time, made_up) - 1e-6 * right.iteration_s
        with pytest.raises(PlanError):
            check_plan(e, strategy, replace(right, time=replace(right.time, **more)), kinds)


@pytest.mark.parametrize("of", PLANS)
@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_wrong(of, name):
    e, strategy, right, kinds = told(of)
    for device in range(len(right.memory)):
        memory = list(right.memory)
        wrong = getattr(memory[device], name) * (1 + 1e-6) + 1e3
        memory[device] = replace(memory[device], **{name: wrong})
        with pytest.raises(PlanError, match=f"{name} of device {device}"):
            check_plan(e, strategy, replace(right, memory=tuple(memory)), kinds)


@pytest.mark.parametrize("name", ["iteration_s", "model_flops", "microbatches"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_figure_of_the_iteration_that_is_wrong(name, factor):
    e, strategy, right, _ = told()
    with pytest.raises(PlanError):
        check_plan(
            e, strategy, replace(right, **{name: type(getattr(right, name))(getattr(right, name) * factor)})
        )


def test_a_kind_of_operator_that_is_wrong():
    e, strategy, right, kinds = told()
    with pytest.raises(PlanError, match="kinds"):
        check_plan(e, strategy, right, kinds[1:])
    with pytest.raises(PlanError, match="waits"):
        check_plan(e, strategy, right, [replace(k, stall_s=2 * k.time_s) for k in kinds])


def test_too_little_memory():
    e, strategy, right, kinds = told()
    check_plan(e, strategy, right, kinds, right.memory_bytes)
    with pytest.raises(PlanError, match="needs"):
        check_plan(e, strategy, right, kinds, right.memory_bytes * (1 - 1e-6))
    e, strategy, right, kinds = told("offload")
    small = spoilt(e, host_capacity_bytes=lambda *_: right.host_bytes / 2)
    with pytest.raises(PlanError, match="too small"):
        check_plan(small, strategy, right, kinds)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_parallel": 32}, "devices of 32"),
        ({"data_parallel": 2}, "microbatches of"),
        ({"microbatch": 3}, "microbatches of"),
        ({"shard_group": 3}, "shard groups"),
        ({"sharding": Sharding(2, expert=3)}, "groups of experts"),
        ({"schedule": Schedule.ZB_V}, "zb-v takes 2"),
        ({"zero": Zero.WEIGHTS}, "iteration"),
        ({"recomputed": 2}, "iteration"),
        ({"stages": (3, 2, 2, 1)}, "iteration"),
    ],
)
def test_a_plan_that_the_figures_are_not_of(changes, words):
    e, strategy, right, kinds = told()
    with pytest.raises(PlanError, match=words):
        check_plan(e, replace(strategy, **changes), right, kinds)


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        (lambda c: (*c[:2], c[3], c[2]), "in order"),
        (lambda c: (c[0], (c[1][0] + 1, c[1][1]), *c[2:]), "in order"),
        (lambda c: (*c[:3], (c[3][0], c[3][1] - 1)), "in order"),
        (lambda c: (c[0], c[1], (c[2][0], c[3][1])), "3 chunks"),
        (lambda c: ((0, c[0][1] + 2), (c[1][0] + 2, c[1][1] + 2), (c[2][0] + 2, c[3][0]), c[3]), "in order"),
    ],
)
def test_chunks_that_do_not_cover_the_model(chunks, words):
    e, strategy, right, kinds = told()
    d = e.division(strategy)
    wrong = Division(d.groups, d.body, chunks(d.chunks))
    with pytest.raises(PlanError, match=words):
        check_plan(spoilt(e, division=lambda *_: wrong), strategy, right, kinds)


@pytest.mark.parametrize("device", range(4))
def test_a_timeline_that_is_wrong(device):
    """A pass that is shorter, and one that starts too early, on every device."""
    e, strategy, right, kinds = told()
    for starts, ends in ((0.0, -1e-6), (-1e-6, -1e-6)):
        line = e.timeline(strategy)
        middle = len(line.starts_s[device]) // 2
        line.starts_s[device][middle:] += starts
        line.ends_s[device][middle:] += ends
        with pytest.raises(PlanError, match=r"takes|before"):
            check_plan(spoilt(e, timeline=lambda *_, line=line: line), strategy, right, kinds)


def test_an_estimate_with_other_seconds_or_bytes():
    """Everything a little faster, or layers that keep a little less, as if the model had a defect."""
    e, strategy, *_ = told("zero")
    loads = e.stage_times(strategy)

    def faster(*_):
        side = replace(loads.backward, kernels_s=0.999 * loads.backward.kernels_s)
        return replace(loads, backward=side)

    wrong = spoilt(e, stage_times=faster)
    with pytest.raises(PlanError, match="takes"):
        check_plan(wrong, strategy, wrong.iteration(strategy))
    needs = e.memory_footprint(strategy)
    less = spoilt(
        e, memory_footprint=lambda *_: replace(needs, saved_bytes=0.999 * np.asarray(needs.saved_bytes))
    )
    with pytest.raises(PlanError, match="activations_bytes"):
        check_plan(less, strategy, less.iteration(strategy))
