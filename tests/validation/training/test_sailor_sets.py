"""Sailor's rows as runs: stages, mixed devices, flags, memory."""

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.training import deepspeed_runs

NAMES = (
    *("hidden", "heads", "layers", "vocab", "seq_len", "gpus_per_node", "n_gpus", "tp", "pp", "dp"),
    *("layers_per_stage", "gpu_per_stage_replica", "model", "micro_batch", "global_batch"),
    *("iteration_s", "peak_mem_bytes", "flag"),
)
MODEL = (1024, 16, 24, 50272, 2048)
NEO = (2560, 20, 32, 50257, 2048)
SCORES = 2048 * 50272 // 4 * 4  # bytes of a sample's scores of the vocabulary, by four devices
HIDDEN = 2048 * 1024 * 4  # bytes of a sample between two blocks


def row(
    degrees,
    stages="26",
    devices="GH200",
    microbatch=1,
    model=MODEL,
    node=4,
    flag="",
    name="OPT-350M",
    peak=4e10,
):
    tp, pp, dp = degrees
    sizes = (*model, node, tp * pp * dp, tp, pp, dp, stages, devices, name, microbatch, 64, 1.0, peak, flag)
    return tuple(map(str, sizes))


def columns(*rows):
    return Columns(Path("rows.csv"), dict(zip(NAMES, zip(*rows, strict=True), strict=True)), len(rows))


def seconds(*rows):
    return deepspeed_runs.times(columns(*rows)).predicted[Fidelity.CALIBRATED]


def test_embedding_and_head_count_as_layers_of_the_outer_stages():
    even, uneven = seconds(row((4, 2, 1), "13;13", microbatch=8), row((4, 2, 1), "8;18", microbatch=8))
    assert 1.2 < uneven / even < 1.6  # 17 blocks where the longest stage had 12


def test_the_slowest_of_several_devices_sets_the_pace():
    mixed, slow, fast = seconds(
        *(row((2, 1, 2), devices=d, node=2) for d in ("RTX-3090+RTX-2080", "RTX-2080", "RTX-3090"))
    )
    assert mixed == slow > fast


def test_devices_of_smaller_nodes_have_more_of_the_adapter():
    whole, half = (deepspeed_runs._nodes_of(deepspeed_runs.network_of("mit-ethernet"), n) for n in (8, 2))
    assert half.tiers[-1].bandwidth_bytes_per_s == 4 * whole.tiers[-1].bandwidth_bytes_per_s
    assert [tier.devices for tier in half.tiers] == [2, None]


def test_doubtful_rows_and_unknown_devices_are_counted():
    judged = deepspeed_runs.times(
        columns(row((4, 1, 1), flag="a copy"), row((4, 1, 1), devices="Unheard-of"))
    )
    assert judged.excluded == {"flagged as doubtful by the file": 1, "no template of this chip": 1}


def bytes_of(*rows):
    return deepspeed_runs.memory(columns(*rows)).predicted[Fidelity.ANALYTIC]


def test_memory_grows_with_what_the_code_keeps_of_a_sample():
    judged = deepspeed_runs.memory(columns(row((4, 1, 1)), row((4, 1, 1), microbatch=8)))
    small, large = judged.predicted[Fidelity.ANALYTIC]
    # a block of OPT by four devices keeps 14 tensors: norms' inputs and results 4, a quarter of queries, keys and
    # values 0.75, softmax 8, a quarter of the heads' results 0.25, ReLU 1; while one runs, two gradients of scores live
    kept = (24 * 14 + 2 * 8) * HIDDEN + 3 * SCORES
    assert (large - small) / 7 == pytest.approx(kept, rel=0.01)
    assert Fidelity.ROOFLINE not in judged.predicted


def test_gelu_keeps_its_input_and_relu_does_not():
    relu, gelu = bytes_of(row((4, 1, 1)), row((4, 1, 1), name="GPT-Neo"))
    assert gelu - relu == pytest.approx(24 * HIDDEN)


def test_rows_whose_plan_needs_more_than_was_measured_are_counted():
    judged = deepspeed_runs.memory(
        columns(row((4, 1, 1), microbatch=8, peak=2e10), row((4, 1, 1), microbatch=8))
    )
    assert judged.excluded == {
        "less memory than weights, optimizer and kept activations of the row's plan take": 1
    }
    assert judged.measured.tolist() == [4e10]


def test_other_models_and_more_nodes_are_predicted():
    three = "RTX-3090+RTX-2080;Titan-RTX+RTX-2080;RTX-3090+Titan-RTX"
    rows = (row((4, 2, 2), "16;18", model=NEO), row((8, 3, 2), "8;9;9", three, node=8))
    assert np.isfinite(seconds(*rows)).all()
    assert np.isfinite(deepspeed_runs.memory(columns(*rows)).predicted[Fidelity.ANALYTIC]).all()
