"""The functions of the top package: what they take, what comes back, and that `dse` says the same."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import typer

import phaze
from phaze.cli.main import app
from phaze.errors import InfeasibleError, InputError
from phaze.explore.documents.result_manifest import describe_request
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.runs.run_directory import load_run
from phaze.workload.workload_loader import load_workload

NO_ARGUMENT = {
    "explore": {
        *("json", "quiet", "no_cache"),
        *(
            "serve",
            "prompt",
            "output_tokens",
            "ttft",
            "tpot",
            "disaggregate",
            "engine",
            "expert_skew",
            "redundant_experts",
        ),  # another document comes back
    },
    "evaluate": {"json", "quiet"},
    "compare": {"json", "quiet", "more"},
    "sweep": {"json", "quiet", "no_cache"},
    "plan": {"json", "quiet"},
    "validate": {"json", "quiet", "out", "only"},
}


def same(left, right):
    """Whether two documents say the same but for when and how long."""
    return left.model_copy(update={"manifest": right.manifest}) == right


def test_importing_is_cheap_and_names_load_when_asked_for():
    code = (
        "import sys, phaze; heavy = {'numpy', 'pydantic', 'rich', 'optuna', 'pandas', 'onnx'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert set(phaze.__all__) <= set(dir(phaze))\n"
        "phaze.evaluate, phaze.explore\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_public_names_are_there():
    for name in phaze.__all__:
        assert getattr(phaze, name)
    with pytest.raises(AttributeError, match="exploree"):
        phaze.exploree  # noqa: B018


def test_the_room_and_the_function_share_a_name():
    import phaze.explore.answers.main_job

    assert callable(phaze.explore)
    assert phaze.explore is sys.modules["phaze.explore"]
    assert inspect.signature(phaze.explore) == inspect.signature(phaze.api.explore)


@pytest.mark.parametrize("name", NO_ARGUMENT)
def test_the_arguments_are_the_options(name):
    verb = typer.main.get_command(app).commands["run" if name == "explore" else name]
    options = {option.name: option.default for option in verb.params if option.name not in NO_ARGUMENT[name]}
    told = inspect.signature(getattr(phaze, name)).parameters
    assert set(options) <= set(told)
    assert set(told) - set(options) <= {"progress", "sets"}
    for argument, default in options.items():
        mine = told[argument].default
        if default is not None and mine is not inspect.Parameter.empty and argument != "objectives":
            assert mine == default, argument


@pytest.fixture
def requests(monkeypatch, found):
    """What the explorer is asked, which answers at once."""
    asked_for = []

    def search(request, progress=None, clock=None, resources=None):
        asked_for.append(request)
        return found.answer

    monkeypatch.setattr("phaze.explore.answers.main_job.explore", search)
    return asked_for


def test_the_command_line_asks_the_same(asked, requests, dse, tmp_path):
    phaze.explore(
        **asked, power=600.0, fix={"tensor_cores": 8}, axes=["throughput", "area"], max_latency=2.0, dvfs=True
    )
    words = ["--workload", asked["workload"], "--space", asked["space"], "--devices", 4, "--power", "600W"]
    words += ["--fix", "tensor_cores=8", "--axes", "throughput,area", "--max-latency", "2s", "--dvfs"]
    assert dse("run", *words, "--out", tmp_path / "r")[0] == 0
    mine, told = requests
    assert describe_request(mine) == describe_request(told)
    assert (mine.axes, mine.budgets) == (told.axes, told.budgets)


def test_a_run_directory_is_kept_where_asked_for(found):
    assert load_run(found.folder).best == found.best


def test_objects_are_taken_as_names_and_paths_are(asked, requests):
    workload, space = load_workload(str(asked["workload"])), load_space(asked["space"])
    phaze.explore(workload, space=space, network=load_network("default"), devices=4, power="0.6kW")
    phaze.explore(**asked, power=600)
    mine, named = requests
    assert mine.task.workload is workload
    assert mine.space == space
    assert describe_request(mine) == describe_request(named)


def test_architectures_are_taken_as_names_are(asked):
    chip = load_architecture("a100")
    one, two = (phaze.evaluate(arch, asked["workload"], devices=4) for arch in (chip, "a100"))
    assert same(one.document, two.document)
    rows = phaze.compare([chip, "v100"], asked["workload"], devices=4)
    assert rows.designs["a100"] == one.design
    assert list(rows.to_dataframe()["architecture"]) == ["a100", "v100"]


@pytest.mark.parametrize("fix", [{"tensor_cores": 8}, ["tensor_cores=8"], "tensor_cores=8"])
def test_fields_are_held_as_mappings_or_texts(asked, requests, fix):
    phaze.explore(**asked, fix=fix)
    assert requests[0].space.size == 2


def test_several_workloads_with_weights(asked, requests, tmp_path):
    second = tmp_path / "second.yaml"
    second.write_text(asked["workload"].read_text())
    phaze.explore([asked["workload"], second], space=asked["space"], devices=4, weight={"tiny": 2})
    assert [task.workload.name for task in requests[0].tasks] == ["tiny", "second"]
    assert requests[0].weights == (2, 1)


def test_a_sweep_leaves_nothing_behind_unless_asked(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    question = {**asked, "trials": 4, "sampler": "random", "objectives": ["throughput", "area"]}
    swept = phaze.sweep(**question)
    assert list(tmp_path.iterdir()) == []
    assert swept.trials == 4
    kept = phaze.sweep(**question, out="kept")
    assert kept.result == swept.result
    assert (tmp_path / "kept" / "designs.csv").is_file()
    assert phaze.sweep(**{**question, "trials": 6}, out="kept", resume=True).trials == 6


def test_a_plan(asked):
    planned = phaze.plan("a100", asked["workload"], devices=4, data_parallel=2, microbatch=1)
    assert planned.best.strategy.data_parallel == 2
    assert {plan.strategy.microbatch_size for plan in planned.plans} == {1}
    loaded = phaze.plan(
        "a100", load_workload(str(asked["workload"])), devices=4, data_parallel=2, microbatch=1
    )
    assert same(loaded.document, planned.document)


def test_validation(tmp_path):
    path = tmp_path / "validation"
    path.mkdir()
    with pytest.raises(InputError, match="no data set here"):
        phaze.validate(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"power": "5kg"}, "^power '5kg' is not a power"),
        ({"power": -5.0}, "^power -5.0 must be"),
        ({"power": True}, "^power True is not a power"),
        ({"objective": "speed"}, "^objective 'speed' is not known"),
        ({"tdp_margin": 0}, "^tdp_margin 0 must be"),
        ({"tokens": 5, "samples": 5}, "^tokens and samples are two ways to say the same"),
        ({"evaluations": 5}, "name one with strategy$"),
        ({"weight": {"gpt3": 2}}, "^weight is for several workloads"),
        ({"workload": 7}, "^workload 7 is neither a name, nor a path, nor a workload"),
    ],
)
def test_errors_name_arguments(asked, arguments, words):
    with pytest.raises(InputError, match=words):
        phaze.explore(**{**asked, **arguments})


def test_a_loaded_workload_is_not_loaded_in_another_way(asked):
    loaded = load_workload(str(asked["workload"]))
    with pytest.raises(InputError, match="tiny is loaded already: mode, fusion are for"):
        phaze.evaluate("a100", loaded, mode="prefill", fusion="none")


def test_one_workload_where_one_is_meant(asked):
    with pytest.raises(InputError, match=r"only phaze\.explore looks for one design"):
        phaze.evaluate("a100", ["gpt3", "bert-large"])


def test_infeasible_says_what_would_do(asked):
    with pytest.raises(InfeasibleError) as caught:
        phaze.explore(**asked, power="5W")
    assert caught.value.shortfalls[0].demand > 5
    assert "--" not in "".join(caught.value.shortfalls[0].levers) + str(caught.value)
