"""Statistical efficiency: Pollux's own code, its measured noise scales, and the best batch of a small task by hand."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest
from small_cases import small_decoder

from phaze.errors import InputError
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import two_tiers
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.failures.domain_survival import OnFailure
from phaze.parallel.failures.failure_record import load_failures
from phaze.parallel.failures.goodput import FailingCluster
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.statistical_efficiency import BatchChoice, NoiseScale, doublings, of_training
from phaze.workload.workload_loader import load_workload

ADAPTDL = (
    (663.1356598586539, (0.2, 5.7, 200), 400, 641.3935070764029),
    (726.9842653327396, (0.2, 5.7, 200), 3200, 481.9333893778836),
    (1544.215072061347, (0.02, 1.5, 128), 2048, 1289.674126117169),
)
"""Throughput; squared norm, variance and initial batch; batch; goodput: by adaptdl 0.2.11, `GoodputFunction`."""

IMAGENET = (
    *((0.18899, 4.32780), (0.17790, 4.81056), (0.17388, 5.01080), (0.17228, 5.12158), (0.17223, 5.18251)),
    *((0.17292, 5.23690), (0.17136, 10.11401), (0.27562, 15.83168), (0.34642, 19.67245), (0.38551, 21.70037)),
    *((0.40221, 22.64528), (0.40865, 23.30789), (0.33821, 24.66593), (0.39457, 28.16397)),
    *((0.44523, 31.77354), (0.50793, 36.33183), (0.55811, 40.34817), (0.60371, 43.54730)),
)
"""Squared norm and variance of gradients in batches of 200, after every fifth epoch (Pollux's artifact)."""


@pytest.mark.parametrize(("throughput", "gradients", "batch", "goodput"), ADAPTDL)
def test_goodput_as_pollux_has_it(throughput, gradients, batch, goodput):
    squared, variance, initial = gradients
    noise = NoiseScale(initial * variance / squared)
    assert throughput * noise.efficiency(batch, initial) == pytest.approx(goodput, rel=1e-12)
    assert noise.efficiency(batch, initial) == pytest.approx(
        noise.efficiency(batch) / noise.efficiency(initial), rel=1e-12
    )


def test_efficiency_is_1_of_small_batches_and_a_half_at_the_noise_scale():
    noise = NoiseScale(1e6)
    assert noise.efficiency(1) == pytest.approx(1, abs=2e-6)
    assert noise.efficiency(10**6) == 0.5
    for wrong in (0.0, -1.0, float("nan"), 1e13):
        with pytest.raises(InputError, match="noise scale"):
            NoiseScale(wrong)


def test_one_noise_scale_for_a_training():
    """It tells the samples of a training whose noise grows, for every batch; ResNet-50 as shipped."""
    scales = [200 * variance / squared for squared, variance in IMAGENET]
    whole = of_training(scales, 200)
    for batch in (1, 200, 3200, 10**6):
        samples = fsum(1 / NoiseScale(one).efficiency(batch, 200) for one in scales) / len(scales)
        assert 1 / whole.efficiency(batch, 200) == pytest.approx(samples, rel=1e-12)
    assert min(scales) < whole.samples < max(scales)
    assert load_workload("resnet50").noise_scale == pytest.approx(whole.samples, rel=1e-3)
    with pytest.raises(InputError, match="without noise scales"):
        of_training([], 1)


def test_gpt3_as_kaplan_has_it():
    loss = 2.57 * 3640**-0.048
    tokens = 2e8 / loss ** (1 / 0.21)
    assert load_workload("gpt3").noise_scale == pytest.approx(tokens / 2048, rel=1e-3)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    workload = small_decoder(tmp_path_factory.mktemp("decoder"))
    held = {"microbatches": (1, 2), "chunks": (1,)}
    return Task(workload, 8, two_tiers(4, 200e9, 1e-6, 25e9, 5e-6), 16, held=held)


@pytest.mark.parametrize("failures", [None, "llama3-2024"])
@pytest.mark.parametrize("noise", [3.0, 100.0, 1e9])
def test_the_best_batch_is_that_of_all_plans(task, noise, failures):
    """Of all plans of all batches: those of the most samples/s x noise / (noise + batch)."""
    batches, chip = doublings(4, 64), load_architecture("h100")
    record = load_failures(failures) if failures else None
    failing = record and FailingCluster.of(task.workload, task.cluster, record, OnFailure.NTP)
    found = find_best_plan(task, chip, failing, BatchChoice(NoiseScale(noise), batches))
    goodput, plans = [], 0
    for batch in batches:
        one = replace(task, global_batch=batch)
        table = to_table([chip])
        every = best_plans(
            estimator_of(one, table), one.plan_space, float(hbm_capacity_bytes(table)[0]), 10**6
        )
        fails = record and FailingCluster.of(one.workload, one.cluster, record, OnFailure.NTP)
        goodput += [
            batch / e.iteration.iteration_s * noise / (noise + batch)
            * (fails.goodput(e.plan).share if fails else 1)
            for e in every.best
        ]  # fmt: skip
        plans += every.account.total
    told = [one.convergence.goodput_samples_per_s for one in (found.best, *found.next_best)]
    assert told == pytest.approx(sorted(goodput, reverse=True)[:5], rel=1e-12)
    assert found.certificate.space_size == plans
    assert found.request["global_batch"] == found.best.convergence.global_batch
    if noise == 1e9 and not failures:
        assert found.best.convergence.global_batch == 64
    if noise == 3.0:
        assert found.best.convergence.global_batch < 64


def test_the_noise_scale_alone_changes_no_plan(task):
    chip = load_architecture("h100")
    plain, told = find_best_plan(task, chip), find_best_plan(task, chip, None, BatchChoice(NoiseScale(48.0)))
    assert told.best.strategy == plain.best.strategy
    assert told.best.convergence.efficiency == 0.75
    assert told.best.convergence.goodput_samples_per_s == pytest.approx(
        0.75 * plain.best.throughput_samples_per_s
    )
    assert plain.best.convergence is None
