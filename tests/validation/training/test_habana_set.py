"""Runs of optimum-habana: which rows are judged, and what a case is as a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Zero
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.training.habana_runs import INFERENCE, NOT_TOLD, TOTAL, TWICE, training

HEAD = "suite,test,device,metric,value"
RATE = "train_samples_per_second"


@pytest.fixture
def judged(tmp_path: Path):
    def of(*rows: str):
        path = tmp_path / "e2e_optimum_habana.csv"
        path.write_text("\n".join([HEAD, *rows]) + "\n")
        return training(read_columns(path, TABLES[path.stem]))

    return of


def test_a_case_is_a_run_on_eight_cards(judged):
    found = judged(f"examples,test_run_clm_gpt2-xl_deepspeed,gaudi2,{RATE},128")
    (run,) = found.runs
    assert found.measured.tolist() == [1.0]  # 8 cards with 16 sequences each
    assert (run.cluster.devices, run.cluster.global_batch, run.workload.sequence_length) == (8, 128, 1024)
    assert (run.strategy.recompute, run.strategy.zero) == (Recompute.FULL, Zero.GRADIENTS)
    assert 1.5e9 < run.workload.parameter_count < 1.6e9
    assert 0.1 < found.predicted[Fidelity.ANALYTIC][0] < 3.0


def test_recompute_and_sharding_take_their_time(judged):
    cases = (
        "mlm_roberta-large_multi_card",
        "clm_gpt-neox-20b_deepspeed",
        "clm_CodeLlama-13b-Instruct-hf_deepspeed",
    )
    found = judged(*(f"examples,test_run_{case},gaudi2,{RATE},100" for case in cases))
    roberta, neox, code_llama = found.runs
    assert roberta.workload.parameter_count == pytest.approx(355e6, rel=0.06)
    assert neox.workload.parameter_count == pytest.approx(20.6e9, rel=0.02)
    assert code_llama.workload.parameter_count == pytest.approx(13.0e9, rel=0.01)
    assert code_llama.strategy.zero is Zero.OPTIMIZER


def test_all_other_rows_are_left_out_for_a_reason(judged):
    found = judged(
        f"examples,test_run_clm_gemma-2b-it_single_card,gaudi2,{RATE},14.06",
        f"examples,test_run_clm_gemma-2b-it_single_card,gaudi2,{RATE},8.6",
        "examples,test_run_clm_gemma-2b-it_multi_card,gaudi2,train_runtime,82",
        f"examples,test_run_lora_clm_llama-7b_multi_card,gaudi2,{RATE},107",
        f"examples,test_run_clm_gpt2-xl_deepspeed,gaudi1,{RATE},16",
        "text_generation_example,test_text_generation_bf16_1x,gaudi2,throughput,100",
    )
    assert len(found.runs) == 0
    assert found.excluded == {TWICE: 2, TOTAL: 1, NOT_TOLD: 1, INFERENCE: 1, "no template of this chip": 1}
