"""Perfect software: no framework runs a plan faster, and none has a faster best plan."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest

from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.chunk_division import Grain, blocks
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, TensorOverlap, list_frameworks, load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_choices import Choices, load_plans
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import plan_space
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.workload_loader import load_workload

CASES = {
    "dense": ("gpt3-medium", "a100", 16, 64),
    "small batch": ("bert-base", "h100", 32, 64),
    "experts": ("qwen3-30b-a3b", "h200", 32, 64),
    "systolic": ("gpt3-medium", "tpuv4", 16, 64),
    "images": ("resnet18", "a100", 8, 256),
}
OTHERS = [n for n in list_frameworks() if n != "ideal" and not load_framework(n).trains_adapters]
"""Frameworks that train all weights: adapters alone are less work."""


@cache
def estimator(case: str, name: str) -> Estimator:
    model, arch, devices, batch = CASES[case]
    software = load_framework(name)
    workload = load_workload(model, attention=software.attention, fusion=software.fusion)
    cluster = Cluster(devices, batch, load_network("default"))
    return Estimator(workload, to_table([load_architecture(arch)]), cluster, software)


@cache
def some_plans(case: str) -> tuple[ParallelPlan, ...]:
    """Some of all, by chance; all blocks recompute or none, by which every framework means the same."""
    e, chosen = estimator(case, "ideal"), random.Random(case)
    space = plan_space(e.workload, e.cluster, e.framework, load_plans("any"))
    few = {"recomputes": (Recompute.NONE, Recompute.FULL), "frugal": False, "chunks": (1, 2)}
    space, found = replace(space, **few, microbatches=(1, 4)), []
    shapes = list(space.shapes(e.workload, e.cluster))
    for shape in chosen.sample(shapes, min(4, len(shapes))):
        plans = [
            variant
            for deep in space.pipelines(shape, e.cluster, blocks(e.layer_costs(shape).chain, shape.grain))
            for s in space.schedules_of(deep, e.microbatches(deep))
            for variant in space.variants(s)
        ]
        found += chosen.sample(plans, min(5, len(plans)))
    return tuple(found)


@pytest.mark.parametrize("case", CASES)
def test_no_framework_runs_a_plan_faster(case):
    ideal = [estimator(case, "ideal").iteration(s).iteration_s for s in some_plans(case)]
    for name in OTHERS:
        other = [estimator(case, name).iteration(s).iteration_s for s in some_plans(case)]
        for s, fast, slow in zip(some_plans(case), ideal, other, strict=True):
            assert not same_plan(case, name, s) or fast <= slow * (1 + 1e-9), (name, s)


def same_plan(case: str, name: str, s: ParallelPlan) -> bool:
    """Whether whole blocks are cut, or layers are those of ideal software: as many of another fusion are others."""
    one, other = (estimator(case, software).chain(s).names for software in ("ideal", name))
    return s.grain is Grain.BLOCK or one == other


def best_s(case: str, name: str, share: float = 1.0) -> float:
    e = estimator(case, name)
    space = plan_space(e.workload, e.cluster, e.framework, load_plans("full"))
    capacity = share * float(e.table["hbm_stacks"][0]) * 2**33
    found = best_plans(e, replace(space, microbatches=(4,), tensor=(1, 4), chunks=(1, 2)), capacity).best
    return found[0].iteration.iteration_s if found else float("inf")


@pytest.mark.parametrize("case", ["dense", "systolic"])
def test_no_framework_has_a_faster_best_plan(case):
    least = best_s(case, "ideal")
    assert all(least <= best_s(case, name) * (1 + 1e-9) for name in OTHERS)


def test_ideal_loses_nothing():
    ideal, plain = load_framework("ideal"), Framework(name="plain", source="")
    for field in (
        "stretch",
        "attention_stretch",
        "interference",
        "dispatch_s",
        "score_passes",
        "fusion",
        "waits",
    ):
        assert getattr(ideal, field) == getattr(plain, field)
    assert ideal.plans == Choices()


@pytest.mark.parametrize("field", ["hides_context", "hides_experts"])
def test_it_hides_as_large_a_share_as_any(field):
    assert getattr(load_framework("ideal"), field) == max(getattr(load_framework(n), field) for n in OTHERS)


@pytest.mark.parametrize("field", ["gathered_bytes", "reduced_bytes"])
def test_it_moves_as_few_bytes_as_any(field):
    told = [value for n in OTHERS if (value := getattr(load_framework(n), field)) is not None]
    assert getattr(load_framework("ideal"), field) == min(told)


def test_either_overlap_hides_no_less_than_each():
    e = estimator("dense", "exposed")
    plan = next(s for s in some_plans("dense") if s.sharding.tensor > 1)

    def seconds(overlap: TensorOverlap) -> float:
        return (
            replace(e, framework=e.framework.model_copy(update={"tensor_overlap": overlap}), _kept={})
            .iteration(plan)
            .iteration_s
        )

    both = seconds(TensorOverlap.EITHER)
    assert both <= min(seconds(TensorOverlap.CHUNKED), seconds(TensorOverlap.WEIGHT_GRADIENT))
    assert both < seconds(TensorOverlap.NONE)


def test_weights_of_16_bits_are_gathered_in_16_bits():
    software = load_framework("mlperf-2024")
    assert software.running(load_workload("gpt3-small")).gathered_bytes == 2
