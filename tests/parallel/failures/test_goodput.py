"""Goodput: a published failure record, and the best plan of a small space by looking at all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_cases import small_decoder

from phaze.errors import InputError
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network, two_tiers
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.failures.checkpoint_interval import Interruptions
from phaze.parallel.failures.domain_survival import OnFailure
from phaze.parallel.failures.failure_record import list_failures, load_failures
from phaze.parallel.failures.goodput import FailingCluster
from phaze.parallel.plan_search.best_first_search import best_plans

DAY_S = 86_400.0


def test_llama_3_as_published():
    """54 days on 16,384 H100s: 419 interruptions and 47 planned ones, effective time above 90 % (arXiv 2407.21783)."""
    record = load_failures("llama3-2024")
    counts = [54 * DAY_S * record.interruptions_per_s(16_384, 8, planned=one) for one in (False, True)]
    assert counts == pytest.approx([419, 47], rel=1e-3)
    rates = [record.interruptions_per_s(16_384, 8, planned=one) for one in (False, True)]
    state_bytes = 405e9 * 14  # weights in bf16, copies and two moments in fp32
    job = Interruptions(1 / rates[0], record.write_s(state_bytes), record.restart_s, 1 / rates[1])
    assert 0.90 < job.shares().work < 0.94
    assert (
        replace(job, restart_s=12 * 60).shares().work > 0.90 > replace(job, restart_s=15 * 60).shares().work
    )


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    workload = small_decoder(tmp_path_factory.mktemp("decoder"))
    held = {"microbatches": (1, 2), "chunks": (1,)}
    return Task(workload, 8, two_tiers(4, 200e9, 1e-6, 25e9, 5e-6), 16, held=held)


FRAGILE = """
schema_version: 1
name: fragile
host_devices: 2
components:
  - {fails: device, mtbf: 20h, repair: 2h, source: made up}
  - {fails: domain, mtbf: 100h, repair: 10h, source: made up}
restart: {time: 20min, source: made up}
checkpoint: {time: 10s, source: made up}
"""


@pytest.fixture
def fragile(tmp_path):
    path = tmp_path / "fragile.yaml"
    path.write_text(FRAGILE)
    return path


@pytest.fixture(scope="module")
def every(task):
    """All plans that fit."""
    table = to_table([load_architecture("h100")])
    estimator, capacity = estimator_of(task, table), float(hbm_capacity_bytes(table)[0])
    return best_plans(estimator, task.plan_space, capacity, top=100_000)


@pytest.mark.parametrize("policy", OnFailure)
def test_the_best_goodput_is_that_of_all_plans(task, every, fragile, policy):
    failing = FailingCluster.of(task.workload, task.cluster, load_failures(fragile), policy)
    found = find_best_plan(task, load_architecture("h100"), failing)
    batch = task.cluster.global_batch
    goodput = [batch / e.iteration.iteration_s * failing.goodput(e.plan).share for e in every.best]
    told = [one.goodput.goodput_samples_per_s for one in (found.best, *found.next_best)]
    assert told == pytest.approx(sorted(goodput, reverse=True)[:5], rel=1e-12)
    assert found.certificate.space_size == every.account.total
    assert found.certificate.pruned > 0
    shares = found.best.goodput
    parts = ("working", "checkpoint", "lost", "restart", "planned")
    assert sum(getattr(shares, f"{part}_share") for part in parts) == pytest.approx(1)
    assert shares.share == pytest.approx(shares.working_share * shares.replicas_kept)


def test_without_failures_nothing_changes(task, fragile):
    chip = load_architecture("h100")
    fragile.write_text(FRAGILE.replace("20h", "8e6h").replace("100h", "8e6h").replace("10s", "0s"))
    failing = FailingCluster.of(task.workload, task.cluster, load_failures(fragile), OnFailure.DROP)
    plain, found = find_best_plan(task, chip), find_best_plan(task, chip, failing)
    assert found.best.iteration_time_s == plain.best.iteration_time_s
    assert found.best.goodput.share == pytest.approx(1, abs=1e-3)


def test_records_that_are_shipped():
    assert list_failures() == ("llama3-2024",)
    assert load_network("nvl72").in_domains(8).scale_up_devices == 8
    with pytest.raises(InputError, match="torus"):
        load_network("tpu-v4-pod").in_domains(8)


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("fails: device", "fails: gpu", "device"),
        ("mtbf: 20h", "mtbf: 0h", "components.0.mtbf"),
        ("mtbf: 20h", "mtbf: 20W", "components.0.mtbf"),
        (", repair: 2h", "", "a device has a repair time"),
        ("fails: device", "fails: job", "no repair time"),
        ("time: 10s", "time: 10s, bandwidth: 1GB/s", "either a time or a bandwidth"),
        ("time: 10s, ", "", "either a time or a bandwidth"),
        ("time: 20min", "time: -1s", "restart.time"),
        ("name: fragile", "nam: fragile", "nam"),
    ],
)
def test_records_that_make_no_sense(fragile, wrong, right, told):
    fragile.write_text(FRAGILE.replace(wrong, right, 1))
    with pytest.raises(InputError, match=told):
        load_failures(fragile)
