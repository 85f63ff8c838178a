"""Published runs of Megatron-LM: anchors, the plans that rows stand for, and what is left out."""

from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import load_architecture
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.pipelines.chunk_times import even_chunks
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_runs import PublishedRun, StatedRun, count_or, estimator
from phaze.validation.sets.training import literature_runs, megatron_runs

A100 = load_architecture("a100-80gb")
GIB = 2.0**30

# Table 1 of SC'21: parameters as printed (billions), layers, hidden size, heads.
TABLE = (
    (1.7, 24, 2304, 24),
    (3.6, 30, 3072, 32),
    (7.5, 36, 4096, 32),
    (18.4, 40, 6144, 48),
    (39.1, 48, 8192, 64),
    (76.1, 60, 10240, 80),
    (145.6, 80, 12288, 96),
    (310.1, 96, 16384, 128),
    (529.6, 105, 20480, 128),
    (1008.0, 128, 25600, 160),
)

# Models of arXiv 2205.05198 (table 3): layers, hidden size, heads, stages, chunks per device, batch, microbatch.
KORTHIKANTI = {
    "22B": (48, 6144, 64, 1, 1, 4, 4),
    "175B": (96, 12288, 96, 8, 3, 64, 1),
    "530B": (105, 20480, 128, 35, 3, 280, 1),
    "1T": (128, 25600, 160, 64, 1, 512, 1),
}


def columns(*rows):
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    text = {name: tuple(str(row.get(name, "")) for row in rows) for name in names}
    return Columns(Path("rows.csv"), text, len(rows))


def iteration(run):
    return estimator(run, Fidelity.CALIBRATED).iteration(run.strategy)


@pytest.mark.parametrize(("billions", "layers", "hidden", "heads"), TABLE)
def test_parameters_as_printed(billions, layers, hidden, heads):
    stated = StatedRun(layers, hidden, heads, 51200, 2048, 1, 1, 1, 1)
    parameters = stated.workload(load_framework("megatron-lm-2021")).parameter_count
    assert round(parameters / 1e9, 1) == billions


@pytest.mark.parametrize(
    ("stages", "chunks", "microbatches"), [(4, 1, 8), (4, 2, 8), (8, 3, 16), (35, 3, 280)]
)
def test_bubble_is_stages_less_one_over_chunks_and_microbatches(stages, chunks, microbatches):
    schedule = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B
    even = even_chunks(stages * chunks, 1.0, 1.0, 1.0)
    ideal = 3.0 * microbatches * chunks
    bubble = pipeline_s(schedule, microbatches, stages, even) / ideal - 1
    assert bubble == pytest.approx((stages - 1) / (chunks * microbatches))


def test_gpt3_on_1024_a100_takes_about_32_seconds():
    """Batch 1536 at 140 TFLOP/s by the formula of SC'21 (section 5.1); 16 stages are assumed."""
    stated, framework = (
        StatedRun(96, 12288, 96, 51200, 2048, 8, 16, 1024, 1536),
        load_framework("megatron-lm-2021"),
    )
    plan = replace(stated.strategy(1), recompute=Recompute.FULL)
    run = PublishedRun(A100, stated.workload(framework), stated.cluster("hgx-a100"), framework, plan, 32.0)
    assert iteration(run).iteration_s == pytest.approx(32.0, rel=0.03)


@pytest.mark.parametrize("model", KORTHIKANTI)
@pytest.mark.parametrize("recompute", [Recompute.FULL, Recompute.SELECTIVE])
def test_runs_of_korthikanti_fit_in_80_gib(model, recompute):
    layers, hidden, heads, stages, chunks, batch, microbatch = KORTHIKANTI[model]
    stated = StatedRun(layers, hidden, heads, 51200, 2048, 8, stages, 8 * stages, batch)
    framework = load_framework("megatron-lm-2022")
    plan = stated.strategy(microbatch, chunks, sequence=recompute is Recompute.SELECTIVE)
    workload, cluster = stated.workload(framework), stated.cluster("hgx-a100")
    run = PublishedRun(A100, workload, cluster, framework, replace(plan, recompute=recompute), 1.0)
    assert 40 * GIB < iteration(run).memory_bytes < 80 * GIB


def korthikanti_row(metric, config, **said):
    sizes = {"layers": 48, "hidden": 6144, "heads": 64, "vocab": 51200, "seq_len": 2048, "tp": 8, "pp": 1}
    rest = {"n_gpus": 8, "global_batch": 4, "micro_batch": 4, "interleave_stages": "", "value": 1.0}
    return {**sizes, **rest, "metric": metric, "config": config, **said}


def test_iterations_and_layers_of_korthikanti_are_told_apart():
    full, both = "full recompute, no sequence parallel", "selective recompute + sequence parallel"
    rows = columns(
        korthikanti_row("iteration time", full),
        korthikanti_row("iteration time", both),
        korthikanti_row("layer forward time", "sequence parallel", layers=1),
        korthikanti_row("layer backward (incl. recompute) time", "no recompute (baseline)", layers=1),
        korthikanti_row("layer backward (incl. recompute) time", "full recompute", layers=1),
    )
    judged = megatron_runs.recompute_iterations(rows)
    slower, faster = judged.predicted[Fidelity.CALIBRATED]
    assert (len(judged.measured), sum(judged.excluded.values())) == (2, 3)
    assert slower > faster > judged.predicted[Fidelity.ROOFLINE][1]
    (forward,) = megatron_runs.forward(rows).predicted[Fidelity.CALIBRATED]
    plain, again = megatron_runs.backward(rows).predicted[Fidelity.CALIBRATED]
    assert plain + 0.9 * forward < again < plain + 1.2 * forward
    assert 0.8 * faster < 48 * (forward + plain) < faster  # the optimizer, embeddings and recompute beside


def table_row(table, scheme, **said):
    sizes = {"layers": 24, "hidden": 2304, "heads": 24, "vocab": 51200, "seq_len": 2048, "tp": 1, "pp": 1}
    rest = {"n_gpus": 32, "global_batch": 512, "micro_batch": "", "gpu": "A100-SXM 80GB (Selene)"}
    times = {"iteration_s_derived": 3.5, "iteration_ms_reported": ""}
    return {**sizes, **rest, **times, "table": table, "scheme": scheme, **said}


def test_plans_of_the_tables():
    h100 = {"gpu": "H100-SXM 80GB", "hidden": 2048, "heads": 16, "n_gpus": 48, "global_batch": 192}
    v100 = {"gpu": "V100-SXM3 32GB (DGX-2)", "n_gpus": 1, "global_batch": 8, "seq_len": 1024}
    reported = {"iteration_s_derived": "", "iteration_ms_reported": 1000}
    zero = {"micro_batch": 16}
    judged = megatron_runs.published_tables(
        columns(
            table_row("SC21 Table 1 weak scaling", "PTD-P"),
            table_row("SC21 Table 2 vs ZeRO-3", "ZeRO-3 without model parallelism", **zero),
            table_row("Megatron-LM repo 2020-09", "tensor + data parallel", **v100, **reported),
            table_row("Megatron-Core r0.8", "3D parallel", **h100),
            table_row("SC21 Table 1 weak scaling", "PTD-P", gpu="Abacus"),
        )
    )
    assert judged.measured.tolist() == [3.5, 3.5, 1.0, 3.5]
    assert judged.assumed == 1  # the microbatch of the H100
    assert sum(judged.excluded.values()) == 1
    table, zero3, _, core = judged.predicted[Fidelity.CALIBRATED]
    assert core < table < zero3
    assert (judged.predicted[Fidelity.CALIBRATED] > judged.predicted[Fidelity.ROOFLINE]).all()


def test_choices_are_those_that_batch_and_layers_allow():
    assert StatedRun(24, 2048, 16, 51200, 2048, 1, 1, 4, 24).choices((1, 2, 4, 8)) == [(1, 1), (2, 1)]
    eight = StatedRun(16, 2048, 16, 51200, 2048, 1, 4, 4, 12)
    assert eight.choices((1, 4)) == [
        (1, 1),
        (1, 2),
        (1, 4),
        (4, 1),
    ]  # 3 microbatches make no round of 4 stages
    assert (count_or(nan, 3), count_or(2.0, 3)) == (3, 2)


def paper_row(**said):
    sizes = {"layers": 8, "hidden": 2048, "heads": 16, "vocab": 50304, "seq_len": 1024, "n_accelerators": 16}
    plan = {
        "global_batch_seqs": 64,
        "accelerator": "A100-SXM 80GB",
        "parallelism": "TP4 PP2, interleaved 2 stages",
    }
    times = dict.fromkeys(
        ("step_s", "throughput_seqs_per_s", "tokens_per_s", "mfu_pct", "tflops_per_acc"), ""
    )
    return {**sizes, **plan, **times, "framework": "Megatron-LM", **said}


def test_times_of_papers_in_every_form():
    """The same run by seconds, sequences, tokens, utilisation and FLOP/s."""
    first = literature_runs.iterations(columns(paper_row(step_s=0.5)))
    flops = first.predicted[Fidelity.ROOFLINE][0] * 312e12  # model FLOPs per device
    others = literature_runs.iterations(
        columns(
            paper_row(throughput_seqs_per_s=128),
            paper_row(tokens_per_s=128 * 1024),
            paper_row(mfu_pct=100 * flops / 0.5 / 312e12),
            paper_row(tflops_per_acc=4 / 3 * flops / 0.5 / 1e12),
        )
    )
    assert others.measured == pytest.approx(np.full(4, 0.5), rel=2e-3)
    assert others.predicted[Fidelity.CALIBRATED] == pytest.approx(
        np.full(4, first.predicted[Fidelity.CALIBRATED][0])
    )
    assert others.assumed == 4


def test_papers_that_leave_too_much_open_are_counted():
    judged = literature_runs.iterations(
        columns(
            paper_row(),
            paper_row(layers="", step_s=1),
            paper_row(accelerator="Abacus", step_s=1),
            paper_row(framework="MegaScale", step_s=1),
            paper_row(framework="our own", step_s=1),
            paper_row(parallelism="TP8 PP8", step_s=1),
        )
    )
    assert not len(judged.measured)
    assert sorted(judged.excluded.values()) == [1] * 6
