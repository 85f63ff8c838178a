"""Where time and energy go, on real workloads and chips."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_cases import small_decoder, varied_architectures

from phaze.cost.energy import static_w
from phaze.cost.model import CostModel
from phaze.cost.optimizer import optimizer_s_per_parameter
from phaze.explore.api import evaluate
from phaze.explore.request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived import hbm_capacity_bytes
from phaze.hardware.network import load_network
from phaze.hardware.power import tdp_w
from phaze.placement.account import Account
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.planner import Planner, Rates
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import Effort
from phaze.workload.load import load_workload
from phaze.workload.workload import Mode


def accounts(workload, devices=12):
    """Every third architecture, in settings with and without collectives and recomputation."""
    table, network, numerics = varied_architectures(), load_network(), workload.numerics
    cluster = Cluster(devices, workload.global_batch(devices), network)
    capacity_bytes = float(hbm_capacity_bytes(table)[0])
    for width, recompute in ((1, Recompute.NONE), (2, Recompute.FULL), (4, Recompute.NONE)):
        timed = TimedChain(workload.chain(1, width), CostModel(table, network), table)
        redo = recompute if workload.mode is Mode.TRAINING else Recompute.NONE
        planner = Planner(timed.chain, numerics, cluster, redo, capacity_bytes, FixedDegrees())
        for row in range(0, len(table), 3):
            one = table.take(np.array([row]))
            _, times = timed.exact(np.array([row]), Effort(lambda: 20.0))
            rates = Rates(one["link_bandwidth_bytes_per_s"], optimizer_s_per_parameter(one, numerics))
            yield Account(planner.best(times, rates), timed, row, cluster, numerics)


@pytest.mark.parametrize("mode", list(Mode))
def test_time_parts_add_up_and_energy_is_within_the_power_of_the_chip(tmp_path, mode):
    for account in accounts(small_decoder(tmp_path, mode)):
        parts = astuple(account.time_parts(Effort(lambda: 20.0)))
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(account.plan.iteration_s, rel=1e-9)
        hurried = astuple(account.time_parts(Effort(lambda: 0.0)))
        assert min(hurried) >= 0
        assert sum(hurried) == pytest.approx(account.plan.iteration_s, rel=1e-9)
        power_w = account.energy_j() / (account.plan.iteration_s * account.cluster.devices)
        assert static_w(account.table)[0] < power_w < tdp_w(account.table)[0]


def test_idle_devices_cost_their_idle_power_and_no_more(tmp_path):
    account = next(accounts(small_decoder(tmp_path)))
    cluster = account.cluster
    larger = replace(account, cluster=replace(cluster, devices=cluster.devices + 5))
    idle_w = float(static_w(account.table)[0])
    extra = larger.energy_j() - account.energy_j()
    assert extra == pytest.approx(5 * idle_w * account.plan.iteration_s, rel=1e-9)


RESNET50 = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
GPT3 = FixedDegrees(tensor_parallel=8, microbatch=1, recompute=Recompute.FULL)
ONE_SIZE = FixedDegrees(microbatch=16)


@pytest.mark.parametrize(
    ("workload", "chip", "devices", "fixed"),
    [
        ("gpt3", "tpuv4", 1024, GPT3),
        ("gpt3", "a100-80gb", 1024, GPT3),
        (RESNET50, "tpuv4", 8, ONE_SIZE),
        (RESNET50, "a100-80gb", 8, ONE_SIZE),
    ],
)
def test_average_power_lies_between_idle_and_tdp(workload, chip, devices, fixed):
    architecture = load_architecture(chip)
    task = Task(load_workload(str(workload)), devices, load_network(), fixed=fixed)
    (result,) = evaluate(task, architecture).workloads.values()
    power_w = result.energy_per_iteration_j / (result.iteration_time_s * devices)
    table = to_table([architecture])
    assert static_w(table)[0] < power_w < tdp_w(table)[0]
