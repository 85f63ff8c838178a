"""Whole models on one device: the works of a row, and what is left out."""

from collections import Counter
from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.training import neusight_runs
from phaze.workload.work import Format

NAMES = (
    *("device", "model", "mode", "option", "seq_len", "batch_size"),
    *("layers", "hidden", "heads", "ffn", "vocab", "latency_ms"),
)
SIZES = dict(
    zip(("layers", "hidden", "heads", "ffn", "vocab", "seq_len"), (2, 1024, 8, 4096, 30522, 512), strict=True)
)
HELD_OUT = ("NVIDIA H100 80GB HBM3", "NVIDIA L4", "AMD Instinct MI250")


def columns(*rows):
    text = dict(zip(NAMES, zip(*(map(str, row) for row in rows), strict=True), strict=True))
    return Columns(Path("rows.csv"), text, len(rows))


def row(device="Tesla T4", model="gpt2", mode="forward", option="eager"):
    sizes = (SIZES[name] for name in ("layers", "hidden", "heads", "ffn", "vocab"))
    return (device, model, mode, option, SIZES["seq_len"], 2, *sizes, 5.0)


def works(model, *, training=False, compiled=False, headless=False):
    workload = neusight_runs.workload_for(model, SIZES, training=training, compiled=compiled)
    return neusight_runs.works_of(workload.chain(2, 1), headless=headless)


def test_rows_without_a_chip_or_a_form_are_counted():
    judged = neusight_runs.neusight_single_device(
        columns(row(), row(device="Unheard of"), row(model="mamba"))
    )
    assert len(judged.measured) == 1
    assert judged.excluded == {"no template of this chip": 1, neusight_runs.UNKNOWN_FORM: 1}


@pytest.mark.parametrize("device", HELD_OUT)
@pytest.mark.parametrize("model", ["bert_large", "gpt2_large", "opt_13", "switchxl4"])
def test_every_chip_and_model_has_a_prediction_above_the_roofline(device, model):
    judged = neusight_runs.neusight_single_device(
        columns(row(device, model), row(device, model, mode="train_fwd_bwd"))
    )
    forward, training = judged.predicted[Fidelity.CALIBRATED]
    assert (judged.predicted[Fidelity.CALIBRATED] > judged.predicted[Fidelity.ROOFLINE]).all()
    most = 8 if model.startswith("bert") else 4  # scores of the vocabulary in training alone
    assert 2 * forward < training < most * forward
    assert judged.predicted[Fidelity.ANALYTIC] == pytest.approx(
        judged.predicted[Fidelity.CALIBRATED], rel=0.5
    )


@pytest.mark.parametrize("model", ["bert", "gpt", "opt", "switch"])
def test_products_of_a_model_in_fp32(model):
    """As many multiply-accumulates as its matrices and scores have, all of them in fp32."""
    found = works(model)
    gemms = [(gemm, times) for work, times in found.items() for gemm in work.gemms]
    assert {gemm.operands for gemm, _ in gemms} == {Format.FP32}
    tokens, hidden = 2 * SIZES["seq_len"], SIZES["hidden"]
    inner = 8 * 128 if model == "switch" else hidden
    attention = 4 * hidden * inner + 2 * SIZES["seq_len"] * inner
    block, cross = attention + 2 * hidden * SIZES["ffn"], attention if model == "switch" else 0
    stacks = 2 if model == "switch" else 1
    head = hidden * SIZES["vocab"] + (hidden**2 if model == "bert" else 0)
    expected = tokens * (SIZES["layers"] * (stacks * block + cross) + head)
    assert sum(times * gemm.macs for gemm, times in gemms) == expected


def test_a_headless_model_has_no_scores_of_the_vocabulary():
    def widths(found):
        return {gemm.n for work in found for gemm in work.gemms}

    assert SIZES["vocab"] in widths(works("bert"))
    assert SIZES["vocab"] not in widths(works("bert", headless=True))


def test_a_compiler_fuses_what_an_eager_framework_launches():
    eager, compiled = works("gpt"), works("gpt", compiled=True)
    assert Counter(eager).total() > 1.5 * Counter(compiled).total()
    moved = [sum(times * work.moved_bytes for work, times in found.items()) for found in (eager, compiled)]
    assert moved[0] > 1.5 * moved[1]


DISTRIBUTED = (*NAMES, "n_devices")


def passes(*options, device="NVIDIA A100-SXM4-40GB", batch=4):
    """Training passes of the model on four devices."""
    rows = [(*row(device, mode="train_fwd_bwd", option=option), 4) for option in options]
    rows = [(*r[:5], batch, *r[6:]) for r in rows]
    text = dict(zip(DISTRIBUTED, zip(*(map(str, r) for r in rows), strict=True), strict=True))
    return neusight_runs.neusight_several_devices(Columns(Path("rows.csv"), text, len(rows)))


def test_one_microbatch_passes_stage_after_stage():
    """A pipeline takes what one device would, and the transfers; replicas and tensor groups a share of it."""
    judged = passes("pp2_1", "dp4", "tp4")
    pipeline, data, tensor = judged.predicted[Fidelity.CALIBRATED]
    alone = neusight_runs.seconds_of(
        neusight_runs.works_of(neusight_runs.workload_for("gpt2", SIZES, training=True).chain(4, 1)),
        chip_of("NVIDIA A100-SXM4-40GB"),
    )[Fidelity.CALIBRATED]
    assert pipeline == pytest.approx(alone, rel=0.02)
    assert alone / 4 < data < alone
    assert alone / 4 < tensor < alone


def test_what_a_row_of_four_devices_lacks_is_counted():
    assert passes("dp4", "zigzag").excluded == {"a strategy that the row does not say": 1}
    assert passes("dp4", "tp4", batch=2).excluded == {"a strategy that the row does not say": 1}
    assert passes("dp4", device="Unheard of").excluded == {"no template of this chip": 1}
    assert passes("pp2_1", device="NVIDIA H100 80GB HBM3").predicted[Fidelity.CALIBRATED][0] > 0
