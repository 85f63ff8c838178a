"""What `dse ui` shows and starts: runs, a question, a search that is seen, stopped, or left behind by its parent."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from local_page import Client, local_page

from phaze.explore.documents.compare_document import CompareDocument
from phaze.inputs.option_texts import flag, read_texts, words
from phaze.inputs.options.option_model import Effect
from phaze.inputs.options.search_options import RunOptions
from phaze.runs.run_directory import write_answer
from phaze.testing.figure_contract import HOSTILE, Markup, hostile
from phaze.testing.small_problem import DECODER, SPACE
from phaze.ui import pages
from phaze.ui.child_runs import ChildRuns, progress
from phaze.ui.question_form import checked, question_form

PATIENCE_S = 120


@pytest.fixture(scope="module")
def home(document, tmp_path_factory):
    """A folder with a workload, a space and a folder of runs, in which commands start."""
    folder = tmp_path_factory.mktemp("ui")
    (folder / "tiny.yaml").write_text(DECODER)
    (folder / "few.yaml").write_text(SPACE)
    later = document.model_copy(update={"best": document.next_best[0]})
    side = CompareDocument(
        request={}, designs={"a": document.best}, infeasible={}, manifest=document.manifest
    )
    for name, answer in (("one", document), ("two", later), ("side", side)):
        (folder / "runs" / name).mkdir(parents=True)
        write_answer(folder / "runs" / name, answer)
    return folder


@pytest.fixture(scope="module")
def client(home):
    before = os.getcwd()  # noqa: PTH109
    os.chdir(home)
    with local_page(home / "runs") as client:
        yield client.enter()
    os.chdir(before)


def ended(client, address):
    """The state of a command when it has ended."""
    end = time.monotonic() + PATIENCE_S
    while (state := json.loads(client.get(f"{address}/state")))["state"] == "working":
        assert time.monotonic() < end, state
        time.sleep(0.1)
    return state


def test_the_list_names_every_run(client):
    found = Markup(client.get("/"))
    assert {"/runs/one", "/runs/two", "/runs/side"} <= set(found.values("href"))
    assert found.values("value") == ["one", "two"] or found.values("value") == ["two", "one"]


def test_a_run_has_its_whole_frontier_under_the_slider(client, document):
    text = client.get("/runs/one")
    designs = json.loads(re.search(r'id="frontier-designs">(.*?)</script>', text)[1])
    assert [row["id"] for row in designs["rows"]] == [point.id for point in document.frontier]
    assert Markup(text).values("max") == [str(len(document.frontier) - 1)]


def test_runs_come_together(client):
    assert "2 runs side by side" in client.get("/together?run=one&run=two")


def test_names_stay_names(document):
    for source in (
        pages.run_page(HOSTILE, hostile(document), [], ["result.json"]),
        pages.at_work_page("1", [HOSTILE]),
        pages.message_page(HOSTILE, HOSTILE),
    ):
        found = Markup(source)
        assert "img" not in found.names
        assert found.handlers == []


def test_the_form_has_every_option_that_is_part_of_a_question():
    asked = {name for name, (_, one) in RunOptions.described().items() if one.effect is not Effect.NOTHING}
    found = Markup(question_form())
    assert set(found.values("name")) == asked
    assert {f"option-{name}" for name in asked} <= set(found.values("id"))
    assert {f"option-{name}" for name in asked} == set(found.values("for"))


@pytest.mark.parametrize(
    ("texts", "field", "words"),
    [
        ({"workload": "gpt3", "power": "400 apples"}, "power", "apples"),
        ({"workload": "gpt3", "power": "400mm2"}, "power", "mm2"),
        ({"workload": "gpt3", "devices": "many"}, "devices", "whole number"),
        ({"workload": "gpt3", "devices": "0"}, "devices", "at least 1"),
        ({"workload": "gpt3", "objective": "fame"}, "objective", "fame"),
        ({"workload": "gtp3"}, "workload", "gpt3"),
        ({"power": "400W"}, "workload", "not given"),
        ({"workload": "gpt3", "time_limit": "1 parsec"}, "time_limit", "parsec"),
        ({"workload": "gpt3", "serve": "many"}, "serve", "not a load"),
        ({"workload": "gpt3", "serve": "saturated", "tokens": "1e9"}, "tokens", "not for a service"),
    ],
)
def test_a_wrong_value_is_told_at_its_field(client, texts, field, words):
    status, found = client.post("/check", **texts)
    assert (status, found["field"]) == (200, field)
    assert words in found["error"]


def test_the_chip_of_a_service_is_a_question():
    found = checked({"workload": "llama3-8b", "serve": "concurrency=8", "tpot": "50ms"})
    assert found["error"] == ""
    assert "--serve concurrency=8" in " ".join(found["command"])


def test_a_good_question_shows_its_command():
    found = checked(
        {"workload": "gpt3 bert-large", "power": "400W", "dvfs": "on", "fix": "tensor_cores=8 hbm=hbm3x6"}
    )
    assert found["error"] == ""
    told = " ".join(found["command"])
    for part in (
        "--workload gpt3 --workload bert-large",
        "--power 400W",
        "--fix tensor_cores=8 --fix hbm=hbm3x6",
    ):
        assert part in told
    assert len(found["command"]) == 2 + 4 + 2 + 4 + 1
    assert found["command"][:2] == ["dse", "run"]


def test_words_are_read_by_the_command_as_texts_are_read_here(monkeypatch):
    """The same options, whether the form or the command line reads them."""
    from phaze.cli.derived_options import takes

    seen = []
    command = takes(RunOptions)(seen.append)
    texts = {
        "workload": "gpt3", "devices": "8", "tdp_margin": "1.5", "dvfs": "on", "bind": "a=1 b=2", "gap": "0.01",
        "power": "400W", "axes": "tdp,throughput", "weight": "gpt3=2",
    }  # fmt: skip
    import typer
    from typer.testing import CliRunner

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, words(RunOptions, texts)).exit_code == 0
    assert seen == [read_texts(RunOptions, texts)]
    assert flag("sequence_parallel", RunOptions.described()["workload"][1]) == "--workload"


def test_a_search_is_started_seen_and_shown(client, home):
    status, found = client.post("/start", workload="tiny.yaml", space="few.yaml", devices="4", power="300W")
    assert status == 200
    assert "dse run --space few.yaml" in client.get(found["go"]) or "tiny.yaml" in client.get(found["go"])
    state = ended(client, found["go"])
    assert (state["state"], state["said"]) == ("done", [])
    assert state["progress"]["stage"]
    name = state["target"].removeprefix("/runs/")
    assert (home / "runs" / name / "result.json").is_file()
    assert "frontier-designs" in client.get(state["target"])
    # its report, then a plan on a design of its frontier, each in a click
    _, go = client.post(f"/runs/{name}/report")
    state = ended(client, go["go"])
    assert "What limits it" in client.get(state["target"])
    design = json.loads((home / "runs" / name / "result.json").read_text())["frontier"][0]["id"]
    assert f"name: {design}" in client.get(f"/runs/{name}/architecture?design={design}")
    status, go = client.post(f"/runs/{name}/plan", design=design)
    assert status == 200, go
    state = ended(client, go["go"])
    assert state["state"] == "done", state
    assert client.post(f"/runs/{name}/plan", design="nobody")[0] == 400
    status, found = client.post(f"/runs/{name}/serving", design=design, prompt="none")
    assert (status, found["error"]) == (400, "--prompt 'none' is not a whole number")
    assert client.post(f"/runs/{name}/serving", design=design, simulate="9")[0] == 400
    serving = {"devices": "1", "prompt": "64", "output_tokens": "16"}
    status, go = client.post(f"/runs/{name}/serving", design=design, **serving)
    assert status == 200, go
    state = ended(client, go["go"])
    assert state["state"] == "done", state
    written = {path.name for path in home.iterdir()}
    assert written == {"tiny.yaml", "few.yaml", "runs"}  # nothing beside the runs


def test_a_question_that_cannot_be_met_is_told(client):
    _, found = client.post("/start", workload="tiny.yaml", space="few.yaml", devices="4", power="1W")
    state = ended(client, found["go"])
    assert state["state"] == "failed"
    assert any("feasible" in line or "no design" in line or "W" in line for line in state["said"])


def test_a_search_is_stopped(client):
    _, found = client.post("/start", workload="gpt3", devices="1024", time_limit="10min")
    time.sleep(1.0)
    client.post(f"{found['go']}/stop")
    client.post(f"{found['go']}/stop")  # at once
    assert ended(client, found["go"])["state"] in ("stopped", "done")


def test_progress_is_read_from_the_log(tmp_path):
    log = tmp_path / "log.txt"
    assert progress(log) is None
    log.write_text(
        "2026-01-01T00:00:00.000+00:00  started, phaze-dse 0.1.0: dse run\n"
        "2026-01-01T00:00:01.000+00:00  refining: 823 of 1,880; 195.3 samples/s, bound 208.2, gap 6.6 %\n"
        "2026-01-01T00:00:02.000+00:00  ended\n"
    )
    note = "195.3 samples/s, bound 208.2, gap 6.6 %"
    assert progress(log) == {"stage": "searching", "done": 0, "total": 0, "note": note}
    with log.open("a") as file:
        file.write("2026-01-01T00:00:03.000+00:00  describing: 1 of 1,200; the winner\n")
    assert progress(log) == {"stage": "describing", "done": 1, "total": 1200, "note": "the winner"}


PARENT = """
import sys, time
from pathlib import Path
from phaze.ui.child_runs import ChildRuns
runs = ChildRuns()
out = sys.argv[1]
number = runs.start(["run", "-w", "gpt3", "--time-limit", "10min", "--out", out], Path(out), "/")
print(runs.run(number).process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_child_does_not_outlive_its_parent(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    os.kill(child, 0)  # it is there
    parent.kill()
    parent.wait()
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if "Z" in _state(child):
            return  # dead, and nobody has asked how
        time.sleep(0.05)
    raise AssertionError("it is still there")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs signals")
def test_the_command_prints_its_address_and_ends_by_ctrl_c(tmp_path):
    words = "import sys; from phaze.cli.main import main; sys.argv = ['dse', *sys.argv[1:]]; main()"
    command = [sys.executable, "-c", words, "ui", str(tmp_path), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", address)
    base, _, token = address.partition("/?token=")
    client = Client(int(base.rpartition(":")[2]), token).enter()
    assert "no runs here yet" in client.get("/")
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=PATIENCE_S)
    assert (server.returncode, out, err) == (0, "", "Ctrl-C ends it\n")


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_no_more_than_some_at_once(tmp_path, monkeypatch):
    from phaze.errors import InputError
    from phaze.ui import child_runs

    monkeypatch.setattr(child_runs, "MOST_AT_ONCE", 1)
    runs = ChildRuns()
    try:
        runs.start(["run", "--workload", "gpt3", "--out", str(tmp_path / "a")], tmp_path / "a", "/")
        with pytest.raises(InputError, match="at most 1 commands run"):
            runs.start(["workloads"], tmp_path / "b", "/")
    finally:
        runs.end()
    assert all(run.process.poll() is not None for run in runs.at_work.values())
