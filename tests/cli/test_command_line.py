from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
from small_cases import small_decoder

from phaze.cli import main as cli
from phaze.errors import InfeasibleError, OutOfTimeError, Shortfall
from phaze.hardware.spaces.space_file import load_space
from phaze.runs.run_directory import load_run

DESIGNS = {
    "id": np.array(["a", "b", "c"]),
    "tdp_w": np.array([100.0, 200.0, 300.0]),
    "throughput_samples_per_s": np.array([1.0, 3.0, 2.0]),
}


@dataclass(frozen=True)
class Exploration:
    document: object
    designs: object


@pytest.fixture
def explorer(monkeypatch, document):
    """An explorer that answers at once with the sample document and remembers what it was asked."""
    api = ModuleType("phaze.explore.answers.main_job")
    api.asked = []

    def explore(request, progress, clock, means):
        api.asked.append(request)
        progress.update("bounding", 1, 2, "")
        return Exploration(document, DESIGNS)

    def evaluate(task, architecture, *, tdp_margin=1.0):
        api.asked.append((task, architecture))
        return document.best

    def evaluate_document(task, architecture, *, tdp_margin=1.0):
        evaluate(task, architecture, tdp_margin=tdp_margin)
        return document

    api.explore, api.evaluate, api.evaluate_document = explore, evaluate, evaluate_document
    monkeypatch.setitem(sys.modules, "phaze.explore.answers.main_job", api)
    return api


def test_help_imports_nothing_heavy():
    code = (
        "import sys, phaze.cli.main as m; sys.argv = ['dse', '--help']\n"
        "try: m.main()\n"
        "except SystemExit: pass\n"
        "heavy = set('numpy pyomo onnx optuna pint pydantic pyarrow plotly networkx highspy'.split())\n"
        "sys.stderr.write(' '.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "sweep" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "No such command 'rnu'"),
        (["run"], "--workload"),
        (["run", "--workload", "gtp3", "--power", "400W"], "gpt3"),
        (
            ["evaluate", "--arch", "tpuv4", "--workload", "gpt3", "-w", "bert-large"],
            "given 2 times (gpt3, bert-large)",
        ),
        (["compare", "-w", "gpt3", "-w", "gpt3", "--arch", "a100"], "given 2 times"),
        (["workloads", "show", "x.onnx", "--yaml"], "x.onnx is no YAML file"),
        (["networks", "show", "defalt"], "default"),
        (["evaluate", "--workload", "gpt3", "--arch", "."], "architecture.yaml is missing"),
        (["run", "--workload", "gpt3", "--power", "400"], "--power '400' has no unit"),
        (["run", "--workload", "gpt3", "--power", "4kg"], "400W"),
        (["run", "--workload", "gpt3", "--power", "-4W"], "greater than zero"),
        (["run", "--workload", "gpt3", "--area", "8cm"], "800mm2"),
        (["run", "--workload", "gpt3", "--devices", "0"], "--devices"),
        (["run", "--workload", "gpt3", "--objective", "throughputt"], "did you mean throughput"),
        (["run", "--workload", "gpt3", "--mode", "decoding"], "training, prefill, decode"),
        (["run", "--workload", "gpt3", "--mode", "decode", "--context", "4096"], "2048 positions"),
        (["run", "--workload", "gpt3", "--context", "9"], "training keeps no key-value cache"),
        (["run", "--workload", "bert-large", "--mode", "decode"], "no key-value cache"),
        (["run", "--workload", "gpt3", "--mode", "decode", "--kv-cache", "page"], "contiguous, paged"),
        (["run", "--workload", "gpt3", "--fusion", "epilog"], "epilogue, bias, bias-gradient"),
        (["run", "--workload", "gpt3", "--time-limit", "soon"], "--time-limit 'soon'"),
        (["run", "--workload", "gpt3", "--space", "defalt"], "default"),
        (["run", "--workload", "gpt3", "--network", "nix.yaml"], "nix.yaml"),
        (["run", "--workload", "gpt3", "--tdp-margin", "0"], "--tdp-margin"),
        (["run", "--workload", "gpt3", "--tdp-margin", "nan"], "--tdp-margin"),
        (["run", "--workload", "gpt3", "--gap", "nan"], "--gap"),
        (["run", "--workload", "gpt3", "--node", "N4X"], "N5"),
        (["run", "--workload", "nix.onnx"], "nix.onnx"),
        (["run", "--workload", "nix.yaml"], "nix.yaml"),
        (["evaluate", "--workload", "gpt3", "--arch", "h1000"], "h100"),
        (["evaluate", "--workload", "gpt3", "--arch", "h100", "--recompute", "some"], "none, full"),
        (["sweep", "--workload", "gpt3", "--objectives", "speed"], "throughput"),
        (["sweep", "--workload", "gpt3", "--sampler", "grid"], "tpe, random, nsga2, gp, cmaes"),
        (["pareto", "nix"], "no run at nix"),
        (["explain", "clok"], "clock_hz"),
        (["archs", "show", "a10"], "a100"),
        (["spaces", "show", "defalt"], "default"),
        (["workloads", "show", "gpt5"], "gpt3"),
        (["solve", "placement", "nix.json"], "nix.json"),
        (["solve", "schedule", "nix.json", "--method", "magic"], "critical-path"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(dse, explorer, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = dse(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("dse: ")
    assert err.count("\n") == 1
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_run_prints_tables_and_leaves_a_run_directory(dse, explorer, tmp_path, document):
    code, out, err = dse("run", "-w", "gpt3", "--power", "400W", "--area", "8cm2", "--out", tmp_path / "r")
    assert code == 0
    assert "The best accelerator for gpt3" in out
    assert str(tmp_path / "r") in err
    request = explorer.asked[0]
    assert request.budgets.power_w == 400.0
    assert request.budgets.area_mm2 == pytest.approx(800.0)
    assert request.task.devices == 1024
    assert request.space == load_space("default")
    assert request.time_limit_s == 60.0
    stored = load_run(tmp_path / "r")
    assert stored.manifest.command[:4] == ["dse", "run", "-w", "gpt3"]
    assert set(stored.manifest.inputs_sha256) == {"workload", "space", "network", "plans", "framework"}
    assert stored.best == document.best


def test_json_prints_the_document_and_nothing_else(dse, explorer, tmp_path, document):
    code, out, err = dse("run", "-w", "gpt3", "--json", "--quiet", "--out", tmp_path / "r")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((tmp_path / "r" / "result.json").read_text())


def test_the_default_folder_is_below_results(dse, explorer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert dse("run", "-w", "gpt3")[0] == 0
    assert [p.name.split("-")[0] for p in (tmp_path / "results").iterdir()] == ["gpt3"]


def test_a_full_folder_is_refused_unless_resumed(dse, explorer, tmp_path):
    (tmp_path / "x").write_text("mine")
    code, _, err = dse("run", "-w", "gpt3", "--out", tmp_path)
    assert code == 2
    assert "--resume" in err
    assert explorer.asked == []
    code, _, err = dse("run", "-w", "gpt3", "--out", tmp_path, "--resume")
    assert code == 2
    assert "holds other files than those of a run" in err
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_node_and_clock_are_fixed_in_the_space(dse, explorer, tmp_path):
    dse("run", "-w", "gpt3", "--node", "N5", "--clock", "1.2GHz", "--out", tmp_path / "r")
    fields = explorer.asked[0].space.base.fields
    assert (fields["node"], fields["clock_hz"]) == ("N5", 1.2e9)


def test_infeasible_says_what_falls_short_and_what_helps(dse, explorer, tmp_path):
    def explore(request, progress, clock, means):
        raise InfeasibleError("no design keeps 5 W", (Shortfall("power", 5, 41.7, "W", ("a newer node",)),))

    explorer.explore = explore
    code, out, err = dse("run", "-w", "gpt3", "--power", "5W", "--out", tmp_path / "r")
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        "dse: no design keeps 5 W",
        "  power: given 5 W, smallest feasible 41.7 W",
        "    - a newer node",
    ]
    assert not (tmp_path / "r").exists()


def test_bytes_that_fall_short_are_told_in_gib(dse, explorer, tmp_path):
    def explore(request, progress, clock, means):
        raise InfeasibleError("too big", (Shortfall("memory", 80 * 2**30, 2949.3 * 2**30, "bytes"),))

    explorer.explore = explore
    _, _, err = dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    assert err.splitlines()[1] == "  memory: given 80 GiB, smallest feasible 2,949 GiB"


def test_names_are_found_whatever_their_spelling(dse, explorer, tmp_path):
    assert dse("run", "-w", "GPT-3", "--space", "Default", "--out", tmp_path / "r")[0] == 0
    assert load_run(tmp_path / "r").manifest.inputs_sha256["workload"]


def test_an_onnx_file_is_hashed_as_it_is(tmp_path):
    from phaze.inputs.options.search_options import RunOptions
    from phaze.inputs.recorded.input_files import input_files

    (tmp_path / "m.onnx").write_bytes(b"abc")
    assert input_files(RunOptions(workload=[str(tmp_path / "m.onnx")]))["workload"] == tmp_path / "m.onnx"


def test_a_bug_of_ours_is_one_line_and_exit_code_1(dse, explorer, tmp_path, monkeypatch):
    def explore(request, progress, clock, means):
        raise KeyError("broken")

    explorer.explore = explore
    code, out, err = dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    assert (code, out) == (1, "")
    assert err.startswith("dse: internal error: KeyError: 'broken'")
    assert err.count("\n") == 1
    assert not (tmp_path / "r").exists()
    monkeypatch.setenv("DSE_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["dse", "run", "-w", "gpt3", "--out", str(tmp_path / "r")])
    with pytest.raises(KeyError):
        cli.main()


def test_out_of_time_without_an_answer_is_exit_code_4(dse, explorer, tmp_path):
    def explore(request, progress, clock, means):
        raise OutOfTimeError("no answer within 1 s")

    explorer.explore = explore
    assert dse("run", "-w", "gpt3", "--out", tmp_path / "r")[0] == 4


def test_ctrl_c_ends_with_the_best_known(dse, explorer, tmp_path, document):
    def explore(request, progress, clock, means):
        progress.update("bounding", 0, 1, "the first designs")
        os.kill(os.getpid(), signal.SIGINT)
        assert clock.over
        return Exploration(document, DESIGNS)

    explorer.explore = explore
    before = signal.getsignal(signal.SIGINT)
    code, out, _ = dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    assert code == 130
    assert "The best accelerator" in out
    assert load_run(tmp_path / "r").best == document.best
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_any_answer_is_no_matter_of_time(dse, explorer, tmp_path):
    def explore(request, progress, clock, means):
        progress.update("bounding", 0, 1, "the first designs")
        os.kill(os.getpid(), signal.SIGINT)
        raise OutOfTimeError("the time limit passed")

    explorer.explore = explore
    code, out, err = dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "dse: interrupted before any answer was known"
    assert not (tmp_path / "r").exists()


def test_ctrl_c_while_loading_leaves_no_trace(monkeypatch, capfd):
    from phaze.cli import entry

    class Impatient:
        def find_spec(self, name, path=None, target=None):
            if name == "phaze.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "phaze.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    with pytest.raises(SystemExit) as leave:
        entry.main()
    assert leave.value.code == 130
    assert capfd.readouterr() == ("", "")


def test_a_second_ctrl_c_ends_at_once(dse, explorer, tmp_path):
    def explore(request, progress, clock, means):
        progress.update("bounding", 0, 1, "the first designs")
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")

    explorer.explore = explore
    code, out, err = dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert not (tmp_path / "r").exists()


def test_ctrl_c_before_a_search_has_begun_ends_at_once(dse, explorer, tmp_path):
    def explore(request, progress, clock, means):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")

    explorer.explore = explore
    code, out, err = dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "dse: interrupted before any answer was known"
    assert not (tmp_path / "r").exists()


def test_ctrl_c_ends_any_verb_with_a_word(dse, monkeypatch):
    def impatient(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr("phaze.inputs.plan_inputs.plan_answer", impatient)
    assert dse("plan", "--arch", "h100", "-w", "gpt3") == (130, "", "dse: interrupted\n")


def test_evaluate_and_compare(dse, explorer, document):
    code, out, _ = dse("evaluate", "--arch", "a100", "-w", "gpt3", "--tensor-parallel", 8, "--json")
    assert code == 0
    assert json.loads(out)["best"]["tdp_w"] == document.best.tdp_w
    task, chip = explorer.asked[0]
    assert (task.held["tensor"], chip.name) == ((8,), "a100")
    code, out, _ = dse("compare", "--arch", "a100", "h100", "-w", "gpt3")
    assert code == 0
    assert "a100" in out
    assert "h100" in out


def test_pareto_exports_what_run_has_written(dse, explorer, tmp_path):
    dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    code, out, _ = dse("pareto", tmp_path / "r")
    assert code == 0
    assert [line.split(",")[0] for line in out.splitlines()] == ["id", "a", "b"]
    dse("pareto", tmp_path / "r", "--format", "svg", "--out", tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text().startswith("<svg")
    for suffix in ("html", "parquet"):
        assert dse("pareto", tmp_path / "r", "--format", suffix, "--out", tmp_path / f"f.{suffix}")[0] == 0
    assert (tmp_path / "f.html").read_text().startswith("<!DOCTYPE html>")
    code, out, err = dse("pareto", tmp_path / "r", "--axes", "tdp,throughput,throughput_per_tdp")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert err.startswith("2 designs; no knee below three designs; hypervolume ")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--x", "area"], "area_mm2"),
        (["--format", "parquet"], "--out"),
        (["--axes", "tdp"], "two metrics"),
        (["--x", "tdp", "--y", "tdp"], "each once"),
        (["--z", "throughput_per_tdp", "--format", "svg"], "html"),
        (["--reference", "1,a"], "'1,a' is not a list of numbers"),
        (["--reference", "1,nan"], "'1,nan' is not a list of numbers"),
        (["--reference", "1"], "1 values for 2 axes"),
    ],
)
def test_pareto_explains_what_it_cannot_do(dse, explorer, tmp_path, options, complaint):
    dse("run", "-w", "gpt3", "--out", tmp_path / "r")
    code, _, err = dse("pareto", tmp_path / "r", *options)
    assert code == 2
    assert complaint in err


SWEPT = """
schema_version: 1
name: swept
axes:
  - {fields: [tensor_cores], powers_of_two: [2, 8]}
  - {fields: [hbm_generation, hbm_stacks], values: [[HBM2e, 4], [HBM3, 6]]}
"""


def swept_task(folder):
    """A small model on eight devices over a few architectures, its files written into the folder."""
    small_decoder(folder)
    (folder / "swept.yaml").write_text(SWEPT)
    size = ("--devices", 8, "--global-batch", 8)
    return ("-w", folder / "tiny.yaml", *size, "--space", folder / "swept.yaml")


def test_sweep_runs_resumes_and_exports(dse, tmp_path):
    task = swept_task(tmp_path)
    sweep = ("sweep", *task, "--out", tmp_path / "s", "--json")
    code, out, _ = dse(*sweep, "--trials", 4)
    assert code == 0
    first = json.loads(out)
    assert first["trials"] == 4
    assert first["frontier"][0]["workloads"]["tiny"]["throughput_samples_per_s"] > 0
    code, _, err = dse(*sweep, "--trials", 6)
    assert (code, "add --resume" in err) == (2, True)
    code, out, _ = dse(*sweep, "--trials", 6, "--resume")
    assert json.loads(out)["trials"] == 6
    code, out, _ = dse("pareto", tmp_path / "s", "--format", "json")
    assert code == 0
    assert json.loads(out)["points"][0]["tensor_cores"] > 0


def test_sweep_into_a_database_shows_no_password(dse, tmp_path):
    task = swept_task(tmp_path)
    sweep = (
        "sweep",
        *task,
        "--trials",
        2,
        "--storage",
        f"sqlite:///{tmp_path / 'all.db'}",
        "--study",
        "mine",
    )
    code, out, err = dse(*sweep, "--out", tmp_path / "s")
    assert (code, "non-dominated designs of 2 trials" in out) == (0, True)
    assert "study mine in sqlite:///" in err
    code, _, err = dse(*sweep, "--out", tmp_path / "t")
    assert code == 2
    assert "holds 2 trials; add --resume to continue it, --join to do so together" in err
    code, out, err = dse(*sweep, "--join", "--out", tmp_path / "t")
    assert (code, "non-dominated designs of 2 trials" in out) == (0, True)
    assert "this host evaluated 0 designs" in err
    secret = ("--storage=postgresql+nodriver://me:secret@localhost/x", "--out", tmp_path / "u")
    code, _, err = dse("sweep", *task, *secret)
    assert (code, "secret" in err) == (2, False)


def test_lists_have_the_built_in_things(dse):
    assert {row["name"] for row in json.loads(dse("workloads", "--json")[1])} >= {"gpt3", "bert-large"}
    assert {row["name"] for row in json.loads(dse("archs", "list", "--json")[1])} >= {"a100", "h100", "tpuv4"}
    spaces = {row["name"]: row["architectures"] for row in json.loads(dse("spaces", "--json")[1])}
    assert (spaces["default"], spaces["phaze"]) == (load_space().size, 29_360)
    domains = {row["name"]: row["scale_up_devices"] for row in json.loads(dse("networks", "--json")[1])}
    assert (domains["default"], domains["nvl72"]) == (8, 72)
    assert "scale_out:" in dse("networks", "show", "default")[1]
    assert "source:" in dse("archs", "show", "TPU-v4")[1]
    assert "name: gpt3" in dse("workloads", "show", "gpt3", "--yaml")[1]


def test_explain_knows_words_fields_and_results(dse):
    code, out, _ = dse("explain", "tdp")
    assert code == 0
    assert "HBM and links included" in " ".join(out.split())
    assert dse("explain", "tdp_w")[1] == out
    assert out.count("power of one accelerator at full load") == 1  # a field of many parts of the document
    assert "source: " in dse("explain", "HBM-stacks")[1]
    assert "result field of Breakdown" in dse("explain", "bubble_s")[1]
    assert max(len(line) for line in out.splitlines()) <= 80
    assert json.loads(dse("explain", "gap", "--json")[1])[0]["kind"] == "word"


def test_version_and_schema(dse, document):
    from phaze import __version__

    assert dse("--version")[1] == f"phaze-dse {__version__}\n"
    schema = json.loads(dse("schema")[1])
    assert schema["$id"] == "phaze-result/4"
    assert set(schema["properties"]) == set(json.loads(document.model_dump_json(by_alias=True)))


def test_a_closed_pipe_is_no_error():
    command = [sys.executable, "-m", "phaze.cli.main", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (0, b"")


def test_no_color_and_narrow_pipes(monkeypatch):
    from phaze.cli.console_output import console

    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert console().width == 80
    assert console().is_terminal is False
