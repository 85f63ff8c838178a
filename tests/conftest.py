from __future__ import annotations

import itertools
import os
import sys
import tempfile

import one_thread  # noqa: F401 - before NumPy
import pytest

from phaze.cli import main as cli
from phaze.explore.documents.result_document import (
    Breakdown,
    Certificate,
    Comparison,
    Design,
    FrontierPoint,
    Manifest,
    Placement,
    ResultDocument,
    Stage,
    WorkloadResult,
)

# Never the user's own cache: fixtures of a module share one, and every test has another one to itself.
os.environ["DSE_CACHE"] = tempfile.mkdtemp(prefix="dse-cache-")
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """The folder of this test's cache, which is not there yet."""
    folder = tmp_path_factory.getbasetemp() / f"cache-{next(_NUMBERS)}"
    monkeypatch.setenv("DSE_CACHE", str(folder))
    return folder


ARCHITECTURE = {
    "tensor_cores": 8,
    "tensor_core_rows": 128,
    "tensor_core_columns": 128,
    "vector_cores": 2,
    "vector_core_alus": 2048,
    "global_buffer_bytes": 134217728,
    "hbm_generation": "HBM3",
    "hbm_stacks": 6,
    "clock_hz": 1.05e9,
    "link_bandwidth_bytes_per_s": 3e11,
}


def make_result(throughput: float, stages: int = 32) -> WorkloadResult:
    time = 1536 / throughput
    return WorkloadResult(
        iteration_time_s=time,
        throughput_samples_per_s=throughput,
        mfu=0.5,
        devices=1024,
        devices_used=1024,
        global_batch=1536,
        energy_per_iteration_j=1e7,
        memory_bytes=60 * 2**30,
        placement=Placement(
            data_parallel=4,
            tensor_parallel=8,
            pipeline_parallel=stages,
            microbatch_size=1,
            recompute="full",
            stages=[
                Stage(
                    layers=[f"block{3 * i + j}" for j in range(3)], devices=8, load_s=0.2, memory_bytes=6e10
                )
                for i in range(stages)
            ],
        ),
        breakdown=Breakdown(
            compute_s=0.7 * time,
            memory_s=0.1 * time,
            collective_s=0.1 * time,
            bubble_s=0.075 * time,
            optimizer_s=0.025 * time,
        ),
    )


def make_design(name: str, throughput: float, tdp_w: float) -> Design:
    return Design(
        id=name,
        architecture=ARCHITECTURE,
        area_mm2=600.0,
        tdp_w=tdp_w,
        area_parts_mm2={"mac": 300.0, "global_buffer": 200.0, "io": 100.0},
        power_parts_w={"mac": tdp_w / 2, "hbm": tdp_w / 2},
        workloads={"gpt3": make_result(throughput)},
    )


def make_frontier(count: int) -> list[FrontierPoint]:
    return [
        FrontierPoint(
            id=f"tc{2**i}x128x128-vc64x2048-gb128MiB-hbm3ex6",
            throughput_samples_per_s=10.0 + i,
            tdp_w=100.0 + 20 * i,
            area_mm2=300.0 + 10 * i,
            energy_per_sample_j=9e3,
            memory_bytes=6e10,
            mfu=0.4,
            architecture=ARCHITECTURE,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def document() -> ResultDocument:
    return ResultDocument(
        request={"workload": "gpt3", "power_w": 400.0, "devices": 1024},
        best=make_design("tc8x128x128-vc2x2048-gb128MiB-hbm3x6", 30.0, 398.0),
        certificate=Certificate(
            optimal=True,
            objective="throughput",
            objective_value=30.0,
            upper_bound=30.0,
            gap=0.0,
            scope=["analytic model", "contiguous stages", "1F1B"],
            space_size=2_000_000,
            over_budget=1_500_000,
            pruned=499_900,
            evaluated=100,
            pruned_by={"roofline": 400_000, "path": 99_900},
            frontier_complete=True,
        ),
        frontier=make_frontier(23),
        next_best=[make_design(f"tc4x128x128-vc{i}x2048-gb64MiB-hbm3x6", 29.0 - i, 390.0) for i in range(5)],
        comparison=[
            Comparison(
                name="h100",
                note="clock lowered from 1.45 GHz to 0.9 GHz to fit 400 W",
                area_mm2=920.0,
                tdp_w=399.0,
                clock_hz=0.9e9,
                result=make_result(24.0),
            ),
            Comparison(
                name="v100",
                note="the model does not fit its memory",
                area_mm2=908.0,
                tdp_w=371.0,
                clock_hz=1.38e9,
                result=None,
            ),
        ],
        manifest=Manifest(
            versions={"phaze": "0.1.0"},
            command=["dse", "run"],
            seed=0,
            inputs_sha256={},
            started_utc="2026-01-01T00:00:00+00:00",
            wall_time_s=1.0,
        ),
    )


@pytest.fixture
def dse(monkeypatch, capfd):
    """Runs one command line in this process: (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dse", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            cli.main()
        out, err = capfd.readouterr()
        return leave.value.code, out, err

    return call
