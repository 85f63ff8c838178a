"""`--plans layers` as it is typed: what is told, exported and refused."""

from __future__ import annotations

import json

from phaze.explore.documents.plan_record import StrategyRecord
from phaze.explore.evaluation.planned_iteration import strategy_of, strategy_record

FEW = ("--tensor-parallel", "4", "--microbatch", "1")
TIGHT = ("--arch", "a100", "--workload", "llama3-8b", "--devices", "4", "--global-batch", "16", *FEW)


def test_layers_are_told_and_faster_than_blocks(dse, tmp_path):
    code, out, err = dse("plan", *TIGHT, "--plans", "layers", "--json")
    assert code == 0, err
    document = json.loads(out)
    record = document["best"]["strategy"]
    assert sum(run["blocks"] for run in record["layers"]) == 32
    assert {run["again"] for run in record["layers"]} >= {"mlp", "none"}
    assert any("layers of them alone" in one for one in document["certificate"]["scope"])
    told = StrategyRecord.model_validate(record)
    assert strategy_record(strategy_of(told), told.microbatches) == told
    code, out, _ = dse("plan", *TIGHT, "--json")
    assert document["best"]["iteration_time_s"] < 0.98 * json.loads(out)["best"]["iteration_time_s"]
    (tmp_path / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    code, out, err = dse("plan", "export", str(tmp_path / "plan.json"), "--for", "megatron-lm")
    assert code == 0
    assert "--recompute-granularity full --recompute-method block" in out
    assert "in place of of blocks" not in err
    assert "blocks each in its own way" in " ".join(err.split())


def test_the_line_of_a_plan_says_which_layers(dse):
    code, out, _ = dse("plan", *TIGHT, "--plans", "layers")
    assert code == 0
    assert "recompute of 27 mlp layers" in " ".join(out.split())


def test_software_that_recomputes_blocks_keeps_to_them(dse):
    code, out, err = dse("plan", *TIGHT, "--plans", "layers", "--framework", "torchtitan-2025", "--json")
    assert code == 0, err
    assert json.loads(out)["best"]["strategy"]["layers"] is None


def test_searches_over_chips_refuse_it(dse):
    for verb, more in (("run", ("--power", "300W")), ("sweep", ("--trials", "2"))):
        code, _, err = dse(verb, "--workload", "bert-base", "--devices", "2", *more, "--plans", "layers")
        assert code == 2
        assert "take --plans full" in " ".join(err.split())
