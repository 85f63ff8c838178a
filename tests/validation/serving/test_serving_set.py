"""Time per token of served models: rows that are judged, why others are not, and a bound from the bytes of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.serving import engine_runs

STANDARD = {
    **{
        "model_family": "llama-3.1-70b",
        "system": "h200_sxm",
        "engine": "vllm",
        "mode": "agg",
        "gemm_quant": "fp8",
        "precision": "",
    },
    **{"speculative_decoding": "", "flags": "", "source_kind": "gap_analysis_run", "isl": 256, "osl": 128},
    **{
        "concurrency": 4,
        "gpus_likely": 8,
        "tp_size": 8,
        "attention_dp_size": 1,
        "moe_tp_size": "",
        "moe_ep_size": "",
    },
    **{
        "decode_batch_size": "",
        "decode_tp_size": "",
        "decode_attention_dp_size": "",
        "decode_moe_tp_size": "",
    },
    **{"decode_moe_ep_size": "", "ttft_ms": 100.0, "tpot_ms": 10.0, "batch_size": ""},
}


@pytest.fixture
def judge(tmp_path: Path):
    def of(*rows: dict[str, object], judged=engine_runs.token_times):
        path = tmp_path / "serving_aiconfigurator.csv"
        lines = [",".join(STANDARD), *(",".join(map(str, (STANDARD | row).values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        return judged(read_columns(path, TABLES[path.stem]))

    return of


def test_a_token_takes_the_time_of_all_weights_and_little_more(judge):
    judged = judge(
        {"concurrency": 1},
        {"concurrency": 8},
        {"concurrency": 8, "mode": "disagg", "decode_batch_size": 8} | {"decode_tp_size": 8},
    )
    chip = to_table([load_architecture("h200")])
    weights = 80 * (8192 * 10240 + 8192**2 + 3 * 8192 * 28672) + 2 * 8192 * 128256
    least = weights / 8 / float(hbm_bandwidth_bytes_per_s(chip)[0])
    alone, several, decoding = judged.predicted[Fidelity.ANALYTIC]
    assert least < alone < 3 * least  # 160 reductions, launches
    assert alone < decoding < several  # prompts go beside
    assert judged.measured.tolist() == [0.01] * 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"model_family": "abacus"}, "model is not represented"),
        ({"system": "abacus"}, "no template for the chip"),
        ({"gemm_quant": ""}, engine_runs.NO_PRECISION),
        ({"speculative_decoding": "mtp"}, engine_runs.SPECULATIVE),
        ({"tp_size": ""}, engine_runs.NO_DEGREES),
        ({"mode": "disagg", "flags": "pools_incomplete"}, engine_runs.NO_WORKERS),
        ({"engine": "abacus"}, "engine is not represented"),
        ({"flags": "repeats_differ"}, engine_runs.REPEATS),
        ({"model_family": "kimi-k2.5", "moe_tp_size": 4, "moe_ep_size": 1}, engine_runs.CONTRADICTION),
        ({"tp_size": 16, "source_kind": "inferencex_dated_table"}, engine_runs.ALL_AS_WIDTH),
        ({"mode": "disagg", "decode_batch_size": 8, "decode_tp_size": 16}, engine_runs.ALL_AS_WIDTH),
    ],
)
def test_why_a_row_is_left_out(judge, row, reason):
    judged = judge({"tpot_ms": 11.0}, row)
    assert len(judged.measured) == 1
    ((found, count),) = judged.excluded.items()
    assert count == 1
    assert found == reason or reason.startswith("no template")


def test_degrees_of_experts_say_nothing_of_a_model_without(judge):
    judged = judge({}, {"moe_tp_size": 1, "moe_ep_size": 1}, {"gemm_quant": "", "precision": "bf16"})
    assert not judged.excluded
    narrow, same, whole = judged.predicted[Fidelity.ANALYTIC]
    assert narrow == same < whole


def test_the_same_reading_of_runs_that_differ_is_left_out_wherever_it_stands(judge):
    judged = judge({"tpot_ms": 11.0}, {"flags": "repeats_differ", "tp_size": 4}, {"tp_size": 8})
    assert judged.excluded == {engine_runs.REPEATS: 2}


def test_degrees_that_were_multiplied(judge):
    """Of 8 devices: 64 of one kind stand for 8, and rows that say 8 see the same."""
    dealt = {"model_family": "kimi-k2.5", "isl": 64, "osl": 32, "moe_tp_size": 8, "moe_ep_size": 8}
    flagged = dealt | {"flags": "degrees_multiplied", "concurrency": 16}
    said = dealt | {"concurrency": 16, "moe_tp_size": 1}
    for narrow, wide in (("tp_size", "attention_dp_size"), ("attention_dp_size", "tp_size")):
        times = judge(flagged | {narrow: 1, wide: 64}, said | {narrow: 1, wide: 8}).predicted
        squared, once = times[Fidelity.ANALYTIC]
        assert squared == once


def test_data_parallel_devices_that_were_counted_as_groups(judge):
    """Sixteen devices on a board of eight: four that share experts, as the same run with its own degrees."""
    told = {
        "model_family": "minimax-m2.5",
        "system": "b300_sxm",
        "engine": "vllm",
        "gemm_quant": "fp8",
        "concurrency": 32,
    }
    squared = told | {"tp_size": 4, "attention_dp_size": 4, "moe_tp_size": 1, "moe_ep_size": 16}
    plain = told | {"tp_size": 1, "attention_dp_size": 4, "moe_tp_size": 1, "moe_ep_size": 4}
    judged = judge(squared, plain)
    one, other = judged.predicted["calibrated"]
    assert one == other


def test_clients_beyond_memory_wait_for_a_place(judge):
    """70 GB of weights on one H200: at 8,192 tokens some twenty sequences fit, however many clients ask."""
    rows = [{"tp_size": 1, "gpus_likely": 1, "isl": 8192, "osl": 64, "concurrency": n} for n in (4, 200, 400)]
    few, many, more = judge(*rows).predicted[Fidelity.ANALYTIC]
    assert few < many == pytest.approx(more)
    judged = judge(*rows, judged=engine_runs.first_times)
    assert judged.excluded == {engine_runs.PLACES: 2}


def test_first_tokens_take_the_prefill_and_the_wave_of_the_beginning(judge):
    rows = [{"concurrency": n, "isl": 8192} for n in (1, 8)] + [
        {"mode": "disagg", "decode_batch_size": 8} | {"decode_tp_size": 8}
    ]
    judged = judge(*rows, judged=engine_runs.first_times)
    assert judged.excluded == {engine_runs.APART: 1}
    alone, eight = judged.predicted[Fidelity.ANALYTIC]
    assert 1.1 < eight / alone < 3  # a tenth of the requests wait for four and a half prompts on average


def test_clients_that_wait_for_a_first_token_are_in_no_decode_batch(judge):
    """By Little's law: with as long for the first token as for all others half of the clients decode."""
    pool = {"mode": "disagg", "decode_tp_size": 8, "isl": 64, "osl": 65}
    quick = judge(*(pool | {"ttft_ms": 0.0001, "decode_batch_size": n} for n in (16, 32)))
    half_s, whole_s = quick.predicted[Fidelity.ANALYTIC]
    busy = judge(pool | {"ttft_ms": half_s * 64 * 1e3, "decode_batch_size": 32})
    (settled_s,) = busy.predicted[Fidelity.ANALYTIC]
    assert settled_s == pytest.approx(half_s, rel=1e-3)
    assert half_s < whole_s


def test_clients_of_several_instances_are_those_of_one(judge):
    """448 clients of 32 instances: 14 of each."""
    told = {"concurrency": 448, "batch_size": 14, "flags": "batch_not_concurrency_over_dp"}
    apart, same = judge(told, {"concurrency": 14}).predicted[Fidelity.ANALYTIC]
    assert apart == same


def test_throughput_follows_from_both_times(judge):
    """Little's law, of what is measured and of what is predicted."""
    rows = {"concurrency": 4}, {"concurrency": 16}
    tokens, first, rate = (
        judge(*rows, judged=f)
        for f in (engine_runs.token_times, engine_runs.first_times, engine_runs.throughputs)
    )
    outputs = np.array([float(STANDARD["osl"])] * 2)
    for rung, found in rate.predicted.items():
        request_s = first.predicted[rung] + (outputs - 1) * tokens.predicted[rung]
        assert found == pytest.approx(np.array([4, 16]) * outputs / request_s, rel=1e-9)
    assert rate.measured[1] == pytest.approx(4 * rate.measured[0])
