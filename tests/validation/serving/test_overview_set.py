"""Most throughput of models served by TensorRT-LLM, as its overview publishes it."""

from __future__ import annotations

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.serving import overview_runs

ROW = {
    "model": "Llama 3.3 70B",
    "device": "H200",
    "tp": 1,
    "pp": 1,
    "format": "fp8",
    "isl": 1000,
    "osl": 1000,
    "output_tokens_per_s": 2000.0,
}


def judged(tmp_path, *rows):
    path = tmp_path / "serving_tensorrt_llm_overview.csv"
    lines = [",".join(ROW), *(",".join(map(str, (ROW | row).values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return overview_runs.throughputs(read_columns(path, TABLES[path.stem]))


def test_more_requests_than_places_are_bound_by_memory_and_arithmetic(tmp_path):
    """70.6 billion weights in 8 bits: below what the arrays take for all tokens, above a fifth of it."""
    found = judged(tmp_path, {}, {"isl": 2048, "osl": 128})
    assert found.measured.tolist() == [2000.0, 2000.0]
    even, short = found.predicted[Fidelity.CALIBRATED]
    peak = 1979e12 / (2 * 70.6e9)  # tokens per second
    for tokens_per_s, each in ((even, 2.0), (short, 1 + 2048 / 128)):
        assert 0.2 * peak / each < tokens_per_s < peak / each


def test_rows_that_are_left_out_say_why(tmp_path):
    found = judged(
        tmp_path,
        {"model": "Llama 5"},
        {"device": "H300"},
        {"device": "RTX PRO 6000", "tp": 2, "format": "fp4"},
    )
    assert sum(found.excluded.values()) == 3
    assert len(found.excluded) == 3
    assert found.excluded["a system whose network is not known"] == 1
    assert len(found.measured) == 0


@pytest.mark.parametrize("output", [128, 2048])
def test_two_stages_of_a_device_are_no_slower_than_one(tmp_path, output):
    """Twice the memory for caches, and half of the weights to read on each."""
    one, two = judged(tmp_path, {"osl": output}, {"osl": output, "pp": 2}).predicted[Fidelity.ANALYTIC]
    assert two > one
