"""Time per token of served models: rows that are judged, why others are not, and a bound from the bytes of weights."""

from __future__ import annotations

from pathlib import Path

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
    **{"decode_moe_ep_size": "", "tpot_ms": 10.0},
}


@pytest.fixture
def judge(tmp_path: Path):
    def of(*rows: dict[str, object]):
        path = tmp_path / "serving_aiconfigurator.csv"
        lines = [",".join(STANDARD), *(",".join(map(str, (STANDARD | row).values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        return engine_runs.token_times(read_columns(path, TABLES[path.stem]))

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
        ({"model_family": "abacus"}, "a model that is not represented"),
        ({"system": "abacus"}, "no template for the chip"),
        ({"gemm_quant": ""}, engine_runs.NO_PRECISION),
        ({"speculative_decoding": "mtp"}, engine_runs.SPECULATIVE),
        ({"tp_size": ""}, engine_runs.NO_DEGREES),
        ({"mode": "disagg", "flags": "pools_incomplete"}, engine_runs.NO_WORKERS),
        ({"model_family": "kimi-k2.5", "moe_tp_size": 4, "moe_ep_size": 1}, engine_runs.CONTRADICTION),
        ({"tp_size": 16, "source_kind": "inferencex_dated_table"}, engine_runs.ALL_AS_WIDTH),
        ({"concurrency": 4096}, engine_runs.TOO_MANY),
        ({"isl": 512, "osl": 4, "concurrency": 64}, engine_runs.PROMPTS),
    ],
)
def test_why_a_row_is_left_out(judge, row, reason):
    judged = judge({}, row)
    assert len(judged.measured) == 1
    ((found, count),) = judged.excluded.items()
    assert count == 1
    assert found == reason or reason.startswith("no template")


def test_degrees_of_experts_say_nothing_of_a_model_without(judge):
    judged = judge({}, {"moe_tp_size": 1, "moe_ep_size": 1}, {"gemm_quant": "", "precision": "bf16"})
    assert not judged.excluded
    narrow, same, whole = judged.predicted[Fidelity.ANALYTIC]
    assert narrow == same < whole
