"""Published training runs as strategies: which rows are kept, and what plans they say."""

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.training import bridge_runs, mlperf_runs

ROW = {
    "release": "26.04 NeMo Container",
    "model": "LLAMA3_8B",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn_or_expert_ffn": "14336",
    "vocab": "128256",
    "arch": "dense",
    "system": "DGX-GB200",
    "n_gpus": "8",
    "precision": "MXFP8",
    "gbs": "128",
    "mbs": "2",
    "seq_len": "8192",
    "fsdp": "0",
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "vp": "n/a",
    "ep": "",
    "iteration_s": "4",
}
QWEN = ROW | {
    "model": "Qwen3_30B_a3B",
    "layers": "48",
    "hidden": "2048",
    "kv_heads": "4",
    "ffn_or_expert_ffn": "768",
    "vocab": "151936",
    "arch": "moe 128e top8",
    "gbs": "64",
    "seq_len": "4096",
    "ep": "8",
}
LATENT = QWEN | {"arch": "moe 256e top8 + 1 shared, MLA"}
DEEPSEEK = LATENT | {
    "model": "DeepSeekV3",
    "layers": "61",
    "hidden": "7168",
    "heads": "128",
    "kv_heads": "",
    "ffn_or_expert_ffn": "2048",
    "vocab": "129280",
    "n_gpus": "256",
    "gbs": "4096",
    "mbs": "1",
    "pp": "4",
    "vp": "4",
    "ep": "64",
}


def judged(judge, *rows):
    text = {name: tuple(row[name] for row in rows) for name in rows[0]}
    return judge(Columns(Path("rows.csv"), text, len(rows)))


def seconds(*rows):
    return judged(bridge_runs.training, *rows).predicted[Fidelity.CALIBRATED]


def test_rows_that_do_not_say_enough_are_counted():
    found = judged(
        bridge_runs.training,
        ROW,
        ROW | {"layers": ""},
        ROW | {"seq_len": ""},
        ROW | {"system": "DGX-Rubin"},
        LATENT | {"hidden": "4096"},
    )
    assert found.excluded == {
        bridge_runs.NO_DIMENSIONS: 2,
        "no template of this chip": 1,
        bridge_runs.NO_LATENT: 1,
    }
    assert len(found.measured) == 1
    # within what its chips can do, and not half as slow again as what was published
    assert found.predicted[Fidelity.ROOFLINE][0] / 2 < found.predicted[Fidelity.CALIBRATED][0] < 6


def test_fewer_bits_are_faster():
    rows = [ROW | {"precision": p} for p in ("BF16", "FP8", "", "MXFP8", "FP8-CS (FP8-MX)", "NVFP4")]
    wide, tensor, unsaid, blocks, both, four = seconds(*rows)
    assert four < blocks < tensor < wide
    assert unsaid == both == tensor


@pytest.mark.parametrize("system", ["H100", "B200", "B300", "GB200", "GB300"])
def test_every_system_has_a_network(system):
    (found,) = seconds(QWEN | {"system": f"DGX-{system}"})
    assert np.isfinite(found)


def test_releases_that_run_mixtures_as_graphs_are_faster():
    before, after = seconds(QWEN, QWEN | {"release": "26.06.01 NeMo Container"})
    assert after < 0.9 * before
    dense = seconds(ROW, ROW | {"release": "26.06 NeMo Container"})
    assert dense[0] == dense[1]


def test_modules_for_more_tokens_take_time():
    plain, more = seconds(DEEPSEEK | {"model": "DeepSeekV3 (w/o MTP)"}, DEEPSEEK)
    assert plain < more < 1.1 * plain


@pytest.mark.parametrize(
    ("blocks", "parts", "expected"),
    [
        (80, 40, ()),
        (61, 16, (4,) * 15 + (1,)),  # "Et*4|(t*4|)*14tmL"
        (94, 8, (11, *(12,) * 6, 11)),  # embedding and loss as a block each
        (126, 64, (1, *(2,) * 62, 1)),
        (61, 32, ()),
        (5, 1, ()),
    ],
)
def test_layouts_of_published_recipes(blocks, parts, expected):
    found = bridge_runs.stages(blocks, parts)
    assert found == expected
    assert not found or (sum(found), len(found)) == (blocks, parts)


def test_interleaving_where_it_runs():
    assert bridge_runs.interleaved(4, 5, 16) == (Schedule.INTERLEAVED, 5)
    assert bridge_runs.interleaved(4, 5, 6) == (Schedule.ONE_F_ONE_B, 1)
    assert bridge_runs.interleaved(1, 5, 6) == (Schedule.ONE_F_ONE_B, 1)
    assert bridge_runs.interleaved(4, 1, 16) == (Schedule.ONE_F_ONE_B, 1)


STEP = {
    "round": "v3.1",
    "accelerator": "NVIDIA H100-SXM5-80GB",
    "n_accelerators": "512",
    "layers": "96",
    "hidden": "12288",
    "heads": "96",
    "seq_len": "2048",
    "vocab": "51200",
    "global_batch": "2048",
    "tp": "4",
    "pp": "8",
    "micro_batch": "1",
    "precision": "fp8 (TransformerEngine)",
    "step_s": "11",
}


def test_submissions():
    found = judged(
        mlperf_runs.training,
        STEP,
        STEP | {"round": "v4.1"},
        STEP | {"round": "v4.1", "accelerator": "NVIDIA B200-SXM-180GB", "n_accelerators": "64"},
        STEP | {"tp": "", "pp": ""},
        STEP | {"step_s": ""},
        STEP | {"accelerator": "Cerebras WSE"},
    )
    assert found.excluded == {
        mlperf_runs.NO_PLAN: 1,
        mlperf_runs.NO_RATE: 1,
        "no template of this chip": 1,
    }
    older, newer, fewer = found.predicted[Fidelity.CALIBRATED]
    assert 0.85 < older / 11 < 1.15
    assert newer == older < fewer  # one set of constants for both generations (decisions/0050)
