"""`dse plan`, `dse plan export`, `dse whatif` and fixed plans of `dse evaluate`, as they are typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import pytest

from phaze.parallel.recount.plan_checker import PlanError

SMALL = ("--arch", "h100", "--workload", "gpt3-xl", "--devices", "8", "--global-batch", "64")
FEW = ("--microbatch", "4", "--schedule", "1f1b", "--chunks", "1")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    """A plan with a pipeline, as `--json` prints it."""
    run = [sys.executable, "-c", "from phaze.cli.entry import main; main()", "plan", *SMALL, *FEW]
    done = subprocess.run(
        [*run, "--pipeline-parallel", "2", "--json"], capture_output=True, text=True, check=True
    )
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(done.stdout)
    return path


def test_plan_tells_time_memory_and_proof(dse):
    code, out, _ = dse("plan", *SMALL, *FEW)
    assert code == 0
    for words in ("Best plan", "Time of an iteration", "Memory of the fullest device", "Proved best of"):
        assert words in out


def test_plan_document(plan_file):
    document = json.loads(plan_file.read_text())
    best, proof = document["best"], document["certificate"]
    assert document["schema"] == "dse-plan/3"
    assert best["strategy"]["pipeline_parallel"] == 2
    assert best["strategy"]["microbatch_size"] == 4
    parts = [v for k, v in best["breakdown"].items() if k != "hidden_s"]
    assert sum(parts) == pytest.approx(best["iteration_time_s"])
    assert sum(v for k, v in best["memory"].items() if k != "total_bytes") == pytest.approx(
        best["memory_bytes"]
    )
    assert proof["space_size"] == proof["out_of_memory"] + proof["pruned"] + proof["evaluated"]
    assert 0.2 < best["mfu"] < 1


def test_next_plans_are_slower(plan_file):
    document = json.loads(plan_file.read_text())
    times = [one["iteration_time_s"] for one in (document["best"], *document["next_best"])]
    assert times == sorted(times)


def test_fixed_plan_in_evaluate(dse):
    code, out, _ = dse(
        "evaluate",
        *SMALL,
        "--zero",
        "3",
        "--data-parallel",
        "8",
        "--microbatch",
        "8",
        "--recompute",
        "full",
        "--json",
    )
    assert code == 0
    (result,) = json.loads(out)["best"]["workloads"].values()
    plan = result["placement"]["plan"]
    assert (plan["zero_stage"], plan["data_parallel"], plan["recompute"]) == (3, 8, "full")


def test_layers_that_stay_whole(dse, tmp_path):
    fixed = (*SMALL, *FEW, "--tensor-parallel", "4", "--pipeline-parallel", "1")
    path = tmp_path / "plan.json"
    path.write_text(dse("plan", *fixed, "--whole", "mlp", "--json")[1])
    document = json.loads(path.read_text())
    strategy = document["best"]["strategy"]
    assert (strategy["whole_layers"], strategy["sequence_parallel"]) == (["mlp"], True)
    assert document["request"]["held"]["whole"] == ["mlp"]
    for software in ("megatron-lm", "torchtitan", "maxtext"):
        assert "stay whole (mlp)" in dse("plan", "export", str(path), "--for", software)[2]
    assert "whole mlp" in " ".join(dse("plan", *fixed, "--whole", "mlp")[1].split())


def test_the_best_layers_to_keep_whole(dse):
    fixed = (*SMALL, *FEW, "--tensor-parallel", "4", "--pipeline-parallel", "1")
    code, out, _ = dse("whatif", *fixed, "--vary", "whole=any,none,attention+mlp", "--json")
    assert code == 0
    best, *others = (point["plan"]["best"] for point in json.loads(out)["points"])
    assert best["iteration_time_s"] <= min(one["iteration_time_s"] for one in others)
    assert [one["strategy"]["whole_layers"] for one in others] == [[], ["attention", "mlp"]]


def test_selective_recompute_in_the_certified_planner(dse):
    code, out, _ = dse("evaluate", *SMALL, "--attention", "unfused", "--recompute", "selective", "--json")
    assert code == 0
    assert json.loads(out)["best"]["workloads"]["gpt3-xl"]["placement"]["recompute"] == "selective"


def test_no_recipe_where_stages_end_inside_blocks(dse, tmp_path):
    """Half blocks are what no framework cuts; the plan itself is told and played."""
    path = tmp_path / "plan.json"
    deep = ("--pipeline-parallel", "5", "--data-parallel", "1", "--tensor-parallel", "1")
    path.write_text(dse("plan", *SMALL, "--plans", "phaze", *deep, "--json")[1])
    document = json.loads(path.read_text())
    assert any("cut between any two layers" in line for line in document["certificate"]["scope"])
    strategy = document["best"]["strategy"]
    assert strategy["grain"] == "layer"
    assert sum(strategy["blocks"] or [48]) == 48
    code, _, err = dse("plan", "export", str(path))
    assert (code, "end inside blocks" in " ".join(err.split())) == (2, True)
    assert "stages of half blocks" in " ".join(dse("plan", *SMALL, "--plans", "phaze", *deep)[1].split())


def test_export_for_megatron(dse, plan_file):
    code, out, _ = dse("plan", "export", str(plan_file))
    s = json.loads(plan_file.read_text())["best"]["strategy"]
    assert code == 0
    told = dict(re.findall(r"--([\w-]+) (\d+)", out))
    assert int(told["tensor-model-parallel-size"]) == s["tensor_parallel"]
    assert int(told["pipeline-model-parallel-size"]) == 2
    assert int(told["micro-batch-size"]) == 4
    assert int(told["global-batch-size"]) == 64
    assert int(told["num-layers"]) == 24


def test_export_for_torchtitan(dse, plan_file):
    code, out, _ = dse("plan", "export", str(plan_file), "--for", "torchtitan")
    assert code == 0
    told = tomllib.loads(out)
    degrees = told["parallelism"]
    assert (
        degrees["data_parallel_shard_degree"]
        * degrees["data_parallel_replicate_degree"]
        * degrees["tensor_parallel_degree"]
        * degrees["pipeline_parallel_degree"]
        == json.loads(plan_file.read_text())["best"]["devices_used"]
    )
    assert degrees["pipeline_parallel_schedule"] == "1F1B"
    assert told["training"]["seq_len"] == 2048


def test_export_for_maxtext(dse, plan_file):
    code, out, err = dse("plan", "export", str(plan_file), "--for", "maxtext")
    assert code == 0
    told = dict(re.findall(r"(\w+)=([\d.]+)", out))
    assert float(told["per_device_batch_size"]) * 8 == 64
    assert "dcn_" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan",), "needs --arch and --workload"),
        (("plan", *SMALL, "--schedule", "zb"), "--schedule 'zb' is not known"),
        (("plan", *SMALL, "--tensor-parallel", "7"), "tensor-parallel width 7"),
        (("plan", *SMALL, "--data-parallel", "16"), "no plan has the degrees"),
        (("plan", *SMALL, "--whole", "mpl"), "--whole 'mpl' is not known"),
        (("plan", *SMALL, "--whole", "mlp", "--tensor-parallel", "1"), "--whole needs sequence parallelism"),
        (("plan", "--arch", "h100", "--workload", "mixtral-8x7b", "--whole", "mlp"), "sort mlp"),
        (("plan", *SMALL, "--framework", "nope"), "no framework is named"),
        (("plan", "export", "nope.json"), "is missing"),
        (("whatif", *SMALL, "--vary", "devices"), "is not NAME=V1,V2"),
        (("whatif", *SMALL, "--vary", "devices=a"), "not a whole number"),
        (("whatif", *SMALL, "--vary", "flux=1"), "nor a hardware field is called so"),
        (("whatif", *SMALL, "--vary", "devices=8", "--plot", "x.png"), "must end in .svg or .html"),
    ],
)
def test_bad_input_is_one_sentence(dse, arguments, words):
    code, out, err = dse(*arguments)
    assert code == 2
    assert words in err
    assert out == ""
    assert err.count("\n") == 1


def test_what_does_not_fit_says_what_would(dse):
    code, _, err = dse("plan", "--arch", "h100", "--workload", "gpt3", "--devices", "2", *FEW)
    assert code == 3
    assert "smallest feasible" in err


def test_whatif_varies_and_draws(dse, tmp_path):
    picture = tmp_path / "devices.svg"
    code, out, _ = dse(
        "whatif", *SMALL[:-4], *FEW, "--vary", "devices=8,16", "--global-batch", "64", "--plot", str(picture)
    )
    assert code == 0
    assert "devices 8:" in out
    assert "devices 16:" in out
    assert picture.read_text().startswith("<svg")


def test_whatif_over_a_hardware_field(dse):
    code, out, _ = dse(
        "whatif",
        *SMALL,
        *FEW,
        "--vary",
        "link_bandwidth_bytes_per_s=100GB/s,450GB/s",
        "--tensor-parallel",
        "8",
        "--json",
    )
    assert code == 0
    slow, fast = (point["plan"]["best"]["iteration_time_s"] for point in json.loads(out)["points"])
    assert slow > fast


@pytest.mark.parametrize("verb", [("plan",), ("whatif", "--vary", "microbatch=2,4")])
def test_no_plan_is_told_that_the_checker_has_not_passed(dse, monkeypatch, verb):
    checked, few = [], FEW if verb[0] == "plan" else FEW[2:]

    def refuses(_, strategy, *__):
        checked.append(strategy)
        if len(checked) > 1:
            raise PlanError("is wrong")

    monkeypatch.setattr("phaze.explore.evaluation.planned_iteration.check_plan", refuses)
    code, out, _ = dse(*verb, *SMALL, *few)
    assert code != 0
    assert len(checked) == 2
    assert "Best plan" not in out
