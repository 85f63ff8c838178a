"""Mean power of GPUs over requests: rows that are judged, and the law by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import running_w
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.package_power import energy_constants
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.kernels.request_power import watts

HEAD = "model,gpu,tp,prompt_tokens,batch,output_tokens,prompt_ms,token_ms,average_power_fraction"
ROW = "{model},a100-80gb,{tp},128,1,128,{prompt},{token},{power}"


@pytest.fixture
def judge(tmp_path: Path):
    def of(*rows: dict[str, object]):
        standard = {"model": "llama2-70b", "tp": 2, "prompt": 80, "token": 50, "power": 0.7}
        path = tmp_path / "power_splitwise.csv"
        path.write_text("\n".join([HEAD, *(ROW.format(**(standard | row)) for row in rows)]) + "\n")
        return watts(read_columns(path, TABLES[path.stem]))

    return of


def test_a_token_reads_all_weights(judge):
    judged = judge({"prompt": 1e-3})
    table = to_table([load_architecture("a100-80gb")])
    table = table.replace(clock_hz=table["peak_clock_hz"])
    running, e = running_w(table)[0], energy_constants(table)
    weights = 80 * (8192 * (8192 + 2048) + 8192**2 + 3 * 8192 * 28672) + 8192 * 32000
    memory_w = 2 * weights / 2 * e.hbm_j_per_byte[0] / 50e-3
    products_w = weights / 2 * (e.mac_j + e.operand_j_per_mac)[0] / 50e-3
    least = running + memory_w + products_w
    assert least < judged.predicted[Fidelity.ANALYTIC][0] < 1.15 * least  # buffers, caches of keys
    assert judged.measured.tolist() == [280]


def test_more_gpus_and_slower_tokens_draw_less_and_prompts_draw_the_limit(judge):
    two, eight, slow, prompt = judge({}, {"tp": 8}, {"token": 500}, {"prompt": 1e6, "token": 1e-2}).predicted[
        Fidelity.ANALYTIC
    ]
    assert slow < eight < two < 400
    idle = judge({"token": 1e9, "prompt": 1e-3}).predicted[Fidelity.ANALYTIC][0]
    assert np.isclose(prompt, idle, rtol=0.05)  # a prompt that takes as long, too
    assert judge({"prompt": 1.0, "token": 1e-6}).predicted[Fidelity.ANALYTIC][0] == pytest.approx(400)


def test_rows_without_power_are_left_out(judge):
    judged = judge({}, {"power": ""}, {"power": 0.18}, {"model": "bloom-176b"})
    assert (len(judged.measured), sum(judged.excluded.values())) == (1, 3)
