"""Sailor's rows as runs: stages, mixed devices, flags, memory."""

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.rung import Rung
from phaze.validation.columns import Columns
from phaze.validation.sets import sailor

NAMES = (
    *("hidden", "heads", "layers", "vocab", "seq_len", "gpus_per_node", "n_gpus", "tp", "pp", "dp"),
    *("layers_per_stage", "gpu_per_stage_replica", "micro_batch", "global_batch"),
    *("iteration_s", "peak_mem_bytes", "flag"),
)
MODEL = (1024, 16, 24, 50272, 2048)
NEO = (2560, 20, 32, 50257, 2048)


def row(degrees, stages="26", devices="GH200", microbatch=1, model=MODEL, node=4, flag=""):
    tp, pp, dp = degrees
    sizes = (*model, node, tp * pp * dp, tp, pp, dp, stages, devices, microbatch, 64, 1.0, 1e10, flag)
    return tuple(map(str, sizes))


def columns(*rows):
    return Columns(Path("rows.csv"), dict(zip(NAMES, zip(*rows, strict=True), strict=True)), len(rows))


def seconds(*rows):
    return sailor.times(columns(*rows)).predicted[Rung.CALIBRATED]


def test_embedding_and_head_count_as_layers_of_the_outer_stages():
    even, uneven = seconds(row((4, 2, 1), "13;13", microbatch=8), row((4, 2, 1), "8;18", microbatch=8))
    assert 1.2 < uneven / even < 1.6  # 17 blocks where the longest stage had 12


def test_the_slowest_of_several_devices_sets_the_pace():
    mixed, slow, fast = seconds(
        *(row((2, 1, 2), devices=d, node=2) for d in ("RTX-3090+RTX-2080", "RTX-2080", "RTX-3090"))
    )
    assert mixed == slow > fast


def test_devices_of_smaller_nodes_have_more_of_the_adapter():
    whole, half = (sailor._nodes_of(sailor.network_of("mit-ethernet"), n) for n in (8, 2))
    assert half.tiers[-1].bandwidth_bytes_per_s == 4 * whole.tiers[-1].bandwidth_bytes_per_s
    assert [tier.devices for tier in half.tiers] == [2, None]


def test_doubtful_rows_and_unknown_devices_are_counted():
    judged = sailor.times(columns(row((4, 1, 1), flag="a copy"), row((4, 1, 1), devices="Unheard-of")))
    assert judged.excluded == {"flagged as doubtful by the file": 1, "no template of this chip": 1}


def test_memory_grows_with_the_samples_kept():
    judged = sailor.memory(columns(row((4, 1, 1)), row((4, 1, 1), microbatch=8)))
    small, large = judged.predicted[Rung.ANALYTIC]
    assert (large - small) / 7 == pytest.approx(3.27e9, rel=0.02)
    assert Rung.ROOFLINE not in judged.predicted


def test_other_models_and_more_nodes_are_predicted():
    three = "RTX-3090+RTX-2080;Titan-RTX+RTX-2080;RTX-3090+Titan-RTX"
    rows = (row((4, 2, 2), "16;18", model=NEO), row((8, 3, 2), "8;9;9", three, node=8))
    assert np.isfinite(seconds(*rows)).all()
    assert np.isfinite(sailor.memory(columns(*rows)).predicted[Rung.ANALYTIC]).all()
