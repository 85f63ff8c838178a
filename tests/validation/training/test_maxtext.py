"""MaxText's runs: slices, models by name, how FLOPs are counted, and rows that cannot be compared."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import load_architecture
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import dimensions_of
from phaze.validation.sets.training import maxtext_runs, trainium_runs
from phaze.validation.sets.training.maxtext_runs import Job, built, extents, least_slices, slice_network

SCALED = "head_dim 128, gated MLP, vocab 32000, MHA"
V5E: dict[str, object] = {
    **{"chip": "TPU v5e", "model": "MaxText-32B", "n_chips": 256, "slices": 1},
    **{"tflops_per_chip": 132, "mfu_pct": 66.86, "tokens_per_s_per_chip": ""},
    **{
        "seq_len": 2048,
        "per_device_batch": 4,
        "remat": "full",
        "ici_tensor_parallel": "",
        "precision": "bf16",
    },
    **{"hidden": 8192, "layers": 32, "heads": 64, "ffn": 28672, "arch_note": SCALED},
}
MAXTEXT = tuple(V5E)
RECIPES = (
    *("chip", "model", "n_chips", "global_batch", "seq_len", "precision", "step_s", "tokens_per_step"),
)


def columns(names: tuple[str, ...], *rows: tuple[object, ...]) -> Columns:
    text = dict(zip(names, zip(*(map(str, row) for row in rows), strict=True), strict=True))
    return Columns(Path("rows.csv"), text, len(rows))


def changed(**cells: object) -> tuple[object, ...]:
    return tuple({**V5E, **cells}.values())


@pytest.mark.parametrize(
    ("model", "tokens", "gflop_per_token"),
    [  # published TFLOP/s over published tokens/s, TPU v6e
        ("Llama3.1-8B", 8192, 417.397 / 7.20734),
        ("Llama3.1-70B", 8192, 462.297 / 0.960248),
        ("Llama2-70B", 4096, 402.274 / 0.905021),
        ("Mixtral-8x7B", 4096, 302.311 / 3.6452),
    ],
)
def test_flops_are_counted_as_maxtext_does(model, tokens, gflop_per_token):
    workload = built(dimensions_of(model, tokens), tokens)
    assert workload.chain(1, 1).model_flops / tokens == pytest.approx(gflop_per_token * 1e9, rel=1e-5)


@pytest.mark.parametrize(
    ("row", "billions"),
    [
        (changed(), 31.7),
        (changed(model="MaxText-22B", hidden=6144, layers=48, heads=24, ffn=24576, arch_note=""), 22.1),
        (changed(model="MaxText-52B", hidden=12288, layers=32, heads=32, ffn=49152, arch_note=""), 52.3),
    ],
)
def test_models_have_the_parameters_of_their_names(row, billions):
    found = maxtext_runs._Said(columns(MAXTEXT, row)).job(0)
    assert isinstance(found, Job)
    assert found.workload.parameter_count / 1e9 == pytest.approx(billions, abs=0.05)


def test_a_run_is_predicted_and_sharded_over_its_slice():
    judged = maxtext_runs.training(
        columns(MAXTEXT, changed(), changed(n_chips=1024, slices=4, tflops_per_chip=126))
    )
    assert not judged.excluded
    assert judged.assumed == 0
    one, four = judged.predicted[Fidelity.CALIBRATED]
    assert judged.measured[0] == pytest.approx(12.09, abs=0.01)
    assert four > one == pytest.approx(judged.measured[0], rel=0.1)


def test_what_a_row_does_not_say_is_assumed_and_counted():
    unsaid = changed(remat="", per_device_batch="", tflops_per_chip="", tokens_per_s_per_chip=700)
    rows = unsaid, changed(remat="custom"), changed(remat="none", per_device_batch=0.5, ici_tensor_parallel=8)
    judged = maxtext_runs.training(columns(MAXTEXT, *rows))
    assert judged.assumed == 2
    assert judged.measured[0] == pytest.approx(32768 / 700)
    assert judged.measured[2] == pytest.approx(judged.measured[1] / 8)


def test_rows_that_cannot_be_compared_are_counted():
    judged = maxtext_runs.training(
        columns(
            MAXTEXT,
            changed(chip="Unheard of"),
            changed(chip="V100"),
            changed(hidden=""),
            changed(precision="int8"),
            changed(seq_len=""),
            changed(tflops_per_chip="", mfu_pct=""),
        )
    )
    assert judged.excluded == {
        "no template of this chip": 1,
        "no network of this chip": 1,
        "no dimensions of this model": 1,
        "a format of operands that the model does not know": 1,
        "no sequence length, no number of chips, or nothing measured": 2,
    }


def test_recipes_by_their_log_lines():
    line = ("TPU v6e Trillium", "Mistral-7B", 8, "", 8192, "bf16", 6.32, 393216)
    judged = maxtext_runs.recipe_training(
        columns(
            RECIPES,
            line,
            (*line[:1], "gemma9-2b", *line[2:]),
            (*line[:5], "fp8_full", *line[6:]),
            ("TPU v7x Ironwood", "llama3.1-70b", 256, 64, 131072, "bf16", 34.02, ""),
            (*line[:4], "", *line[5:]),
        )
    )
    assert sum(judged.excluded.values()) == 4
    assert len(judged.excluded) == 4
    assert judged.assumed == 1
    assert judged.predicted[Fidelity.CALIBRATED] == pytest.approx(judged.measured, rel=0.1)


def test_trainium_by_its_layout_over_cores():
    names = (
        "accelerator",
        "model",
        "n_chips",
        "topology",
        "micro_batch",
        "global_batch",
        "seq_len",
        "step_s",
    )
    run = ("AWS Trainium1", "Llama-3.1-8B pre-training", 512, "TP=32 DP=32 PP=1 ZeRO-1", 1, 1024, 8192, 21.36)
    judged = trainium_runs.training(
        columns(
            names,
            run,
            (*run[:6], "", *run[7:]),
            (*run[:3], "[32xNC(DP)]", *run[4:]),
            (*run[:3], "TP=32 DP=16", *run[4:]),
            (run[0], "ViT", *run[2:]),
        )
    )
    assert judged.excluded == {
        "no sequence length, no number of chips, or nothing measured": 1,
        "layout over chips not given": 2,
        "no dimensions of this model": 1,
    }
    assert judged.predicted[Fidelity.CALIBRATED] == judged.predicted[Fidelity.ANALYTIC]
    assert judged.predicted[Fidelity.ROOFLINE] < judged.predicted[Fidelity.ANALYTIC] < judged.measured


@pytest.mark.parametrize(
    "name", ["MaxText-1024B", "Llama2-13B", "Llama3.1-405B", "Mixtral-8x22B", "GPT3-175B"]
)
@pytest.mark.parametrize("chip", ["TPU v5p", "TPU v6e", "TPU v7x Ironwood", "H100"])
def test_models_and_chips_of_no_given_row_are_predicted(name, chip):
    sizes = {"hidden": 16384, "layers": 128, "heads": 256, "ffn": 114688}
    row = changed(chip=chip, model=name, n_chips=512, remat="minimal", mfu_pct=50, **sizes)
    judged = maxtext_runs.training(columns(MAXTEXT, row))
    assert not judged.excluded
    analytic, calibrated, least = (
        judged.predicted[r][0] for r in (Fidelity.ANALYTIC, Fidelity.CALIBRATED, Fidelity.ROOFLINE)
    )
    assert least < min(analytic, calibrated) < max(analytic, calibrated) < 4 * least


@pytest.mark.parametrize("chips", [8, 16, 32, 64, 128, 192, 256, 384, 512, 1024, 2048, 6144])
def test_slices_are_as_near_to_a_cube_as_their_chips_allow(chips):
    sides = extents(chips)
    assert math.prod(sides) == chips
    assert chips < 64 or all(side % 4 == 0 for side in sides)
    assert chips.bit_count() > 1 or sides[2] <= 2 * sides[0]
    network = slice_network(load_architecture("tpuv5p"), chips)
    assert network.tiers[0].devices == chips
    assert len(network.tiers) == 2


def test_two_dimensional_pods_are_no_larger_than_a_pod():
    chip = load_architecture("tpuv6e")
    assert [least_slices(chip, chips) for chips in (8, 256, 512)] == [1, 1, 2]
    assert slice_network(chip, 64).tiers[0].dims == (16, 16)
    assert slice_network(load_architecture("v100"), 64) is None
    assert dimensions_of("gemma9-2b", 8192) is None
