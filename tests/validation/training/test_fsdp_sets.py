"""Training runs with FSDP: what a row stands for, and what models and chips that nothing was fitted on come to."""

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_runs import PublishedRuns
from phaze.validation.sets.training import fsdp_runs, torchtitan_runs

MPT = {
    "gpu": "a100_40gb",
    "model": "MPT-125M",
    "n_params": 125311488,
    "d_model": 768,
    "heads": 12,
    "layers": 12,
    "vocab": 50368,
    "seq_len": 2048,
    "n_gpus": 16,
    "micro_batch": 4,
    "grad_accum": 1,
    "global_batch_seqs": 64,
    "precision": "amp_bf16",
    "sharding": "FULL_SHARD",
    "act_ckpt": "False",
    "act_offload": "False",
    "iteration_s": 0.1,
}
SEVEN = {"model": "MPT-7B", "d_model": 4096, "heads": 32, "layers": 32, "n_params": 6657974272}
LLAMA = {
    "gpu": "NVIDIA H100 96GB HBM2e 2.4TB/s 500W",
    "model": "Llama-3.1-8B",
    "n_gpus": 8,
    "local_batch": 2,
    "seq_len": 8192,
    "parallelism": "FSDP8",
    "options": "torch.compile",
    "precision": "bf16",
    "act_ckpt": "selective",
    "tokens_per_s_per_gpu": 6000.0,
    "memory_gib": 70.0,
    "provenance": "torchtitan 202412",
}


def columns(base, *changes):
    rows = [{**base, **change} for change in changes]
    return Columns(
        Path("rows.csv"), {name: tuple(str(row[name]) for row in rows) for name in base}, len(rows)
    )


def predicted(judged):
    return judged.predicted[Fidelity.CALIBRATED]


@pytest.fixture
def taken(monkeypatch):
    """Runs that a set takes in."""
    found = []
    keep = PublishedRuns.keep
    monkeypatch.setattr(PublishedRuns, "keep", lambda self, run: (found.append(run), keep(self, run))[1])
    return found


def test_rows_without_a_chip_or_a_known_sharding_are_counted():
    judged = fsdp_runs.llm_foundry(columns(MPT, {}, {"gpu": "Unheard of"}, {"sharding": "SOME_SHARD"}))
    assert len(judged.measured) == 1
    assert judged.excluded == {"no template of this chip": 1, "sharding not known": 1}


def test_the_form_of_mpt_follows_from_its_parameters(taken):
    plain, alibi = 125311488, 123636480
    fsdp_runs.llm_foundry(columns(MPT, {}, {"n_params": alibi}))
    assert [run.workload.parameter_count for run in taken] == [plain, alibi]


def test_held_out_sizes_clusters_and_precisions_have_sensible_times():
    rows = (
        {**SEVEN, "n_gpus": 8, "global_batch_seqs": 32, "act_ckpt": "True"},
        {**SEVEN, "n_gpus": 512, "global_batch_seqs": 2048, "act_ckpt": "True"},
        {**SEVEN, "gpu": "h100_80gb", "n_gpus": 512, "global_batch_seqs": 2048},
        {**SEVEN, "gpu": "h100_80gb", "n_gpus": 512, "global_batch_seqs": 2048, "precision": "amp_fp8"},
        {**SEVEN, "n_gpus": 8, "global_batch_seqs": 32, "act_offload": "True"},
    )
    judged = fsdp_runs.llm_foundry(columns(MPT, *rows))
    node, cluster, hopper, narrow, offloaded = predicted(judged)
    assert (predicted(judged) > judged.predicted[Fidelity.ROOFLINE]).all()
    assert node < cluster < 1.5 * node
    assert narrow < hopper < cluster / 1.5
    assert offloaded > node / 1.4


def test_recompute_costs_about_a_third_more():
    with_, without = predicted(fsdp_runs.llm_foundry(columns(MPT, {"act_ckpt": "True"}, {})))
    assert 1.15 < with_ / without < 1.34


def test_degrees_of_torchtitan(taken):
    torchtitan_runs.times(
        columns(LLAMA, {"n_gpus": 512, "local_batch": 32, "parallelism": "FSDP8 TP8 PP8"}, {})
    )
    piped, plain = (run.strategy for run in taken)
    assert (piped.data_parallel, piped.sharding.tensor, piped.pipeline_parallel) == (8, 8, 8)
    assert (piped.microbatch, plain.microbatch) == (4, 2)
    assert piped.sharding.sequence
    assert piped.stays_whole
    assert plain.reshards


def test_tokens_per_second_become_seconds():
    judged = torchtitan_runs.times(columns(LLAMA, {}))
    assert judged.measured == pytest.approx([16 * 8192 / (8 * 6000.0)])


def test_options_of_torchtitan_order_its_times():
    sharded = {"n_gpus": 64, "local_batch": 12, "parallelism": "FSDP8 TP8"}
    rows = (
        {"options": "eager"},
        {},
        {"precision": "fp8 linear"},
        sharded,
        {**sharded, "options": "torch.compile+AsyncTP"},
        {**sharded, "precision": "fp8 tensorwise"},
        {**sharded, "precision": "fp8 rowwise"},
    )
    eager, compiled, narrow, tensor, hidden, tensorwise, rowwise = predicted(
        torchtitan_runs.times(columns(LLAMA, *rows))
    )
    assert eager > compiled > narrow
    assert tensor > hidden
    assert tensor > rowwise > tensorwise


@pytest.mark.parametrize("model", ["Llama-3.1-70B", "Llama-3.1-405B"])
def test_larger_models_of_torchtitan_have_sensible_times(model):
    row = {
        "model": model,
        "n_gpus": 512,
        "local_batch": 16,
        "parallelism": "FSDP8 TP8 PP8",
        "act_ckpt": "full",
    }
    judged = torchtitan_runs.times(columns(LLAMA, row, {**row, "options": "torch.compile, interleaved 1F1B"}))
    assert (predicted(judged) > judged.predicted[Fidelity.ROOFLINE]).all()
    assert (predicted(judged) < 8 * judged.predicted[Fidelity.ROOFLINE]).all()
    assert predicted(judged)[1] < predicted(judged)[0]


def test_memory_of_torchtitan_is_compared_where_it_is_published():
    judged = torchtitan_runs.memory(columns(LLAMA, {}, {"n_gpus": 128}, {"memory_gib": ""}))
    assert judged.excluded == {"memory not published": 1}
    few, many = predicted(judged) / 2**30
    assert few - many == pytest.approx(8.03e9 * 16 * (1 / 8 - 1 / 128) / 2**30, rel=0.02)
    assert Fidelity.ROOFLINE not in judged.predicted
    assert np.isfinite(predicted(judged)).all()


def test_models_of_torchtitan_without_dimensions_are_counted():
    assert torchtitan_runs.times(columns(LLAMA, {"model": "Llama-9-1B"})).excluded == {
        "no dimensions of the model": 1
    }
