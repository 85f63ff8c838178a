from __future__ import annotations

import json
import subprocess
import sys

import pytest
from instances import MODES, PLACEMENT, SCHEDULE


def in_a_process(*arguments) -> subprocess.CompletedProcess[str]:
    """`dse solve` as a shell runs it; once for each verb is enough."""
    command = [sys.executable, "-m", "phaze.cli.main", "solve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def write(tmp_path):
    def write(document):
        path = tmp_path / "instance.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


@pytest.mark.parametrize("method", ["exact", "ilp", "critical-path"])
def test_schedule(solve, write, method):
    done = solve("schedule", write(SCHEDULE), "--method", method, "--time-limit", "20s", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    # Operator 2 runs beside operator 1: 2 s + 3 s.
    assert answer["makespan_s"] == pytest.approx(5.0)
    assert answer["lower_bound_s"] <= answer["makespan_s"] * (1 + 1e-9)
    assert set(answer["starts_s"]) == set(answer["ends_s"]) == {"0", "1", "2"}
    assert max(answer["ends_s"].values()) == answer["makespan_s"]
    assert answer["cores"]["1"] == ["VC0"]
    assert answer["parallel"] == []
    if method != "critical-path":
        assert (answer["status"], answer["optimal"]) == ("optimal", True)


def test_a_name_that_no_terminal_can_show(write):
    operator = {"id": "\ud800", "unit": "TC", "latency_s": 1.0, "parallel_latency_s": 1.0}
    done = in_a_process("schedule", write(SCHEDULE | {"ops": [operator], "edges": []}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\ud800" in done.stdout


@pytest.mark.parametrize("suffix", [".svg", ".html", ".SVG"])
def test_the_schedule_is_drawn_beside_the_answer(solve, write, tmp_path, suffix):
    picture = tmp_path / f"layer{suffix}"
    done = solve("schedule", write(SCHEDULE), "--gantt", picture, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["makespan_s"] == pytest.approx(5.0)
    assert "makespan 5.00 s, lower bound 5.00 s, gap 0.0 %, proven optimal" in picture.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["instance.json", picture.name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layer.png", "must end in .svg or .html"),
        ("layer", "must end in .svg or .html"),
        ("nowhere/layer.svg", "No such file or directory"),
        ("instance.json/layer.svg", "Not a directory"),
        ("folder.svg", "is a folder"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_the_work(solve, write, tmp_path, name, words):
    (tmp_path / "folder.svg").mkdir()
    done = solve("schedule", write(SCHEDULE), "--gantt", tmp_path / name)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path / name) in done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.svg", "instance.json"]


@pytest.mark.parametrize("method", ["exact", "ilp", "critical-path"])
def test_schedule_with_modes(solve, write, method):
    done = solve("schedule", write(MODES), "--method", method, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    # Side by side the first two take 3 s, one after the other 4 s; then 1 s on all cores, beside the link.
    assert answer["makespan_s"] == pytest.approx(4.0)
    assert sorted(answer["cores"]["0"] + answer["cores"]["1"]) == ["TC0", "TC1"]
    assert answer["parallel"] == ["2"]


def test_placement(write):
    done = in_a_process("placement", write(PLACEMENT), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["time_per_batch_s"] == pytest.approx(53.25, rel=1e-12)
    assert (answer["num_stages"], answer["data_parallel"], answer["tensor_parallel"]) == (2, 2, 1)
    assert answer["stages"] == [{"layers": [0], "devices": 1}, {"layers": [1, 2], "devices": 1}]


def test_a_placement_that_fits_nowhere_is_exit_code_3(solve, write):
    done = solve("placement", write({**PLACEMENT, "device_memory_bytes": 1}), "--json")
    assert done.returncode == 3
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["time_per_batch_s"], answer["stages"]) == ("infeasible", None, [])


def test_without_json_it_reads_as_text(solve, write):
    done = solve("placement", write(PLACEMENT))
    assert "time_per_batch_s: 53.25" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["0", "0", "1"] in rows
    assert ["1", "1", "2", "1"] in rows
    done = solve("schedule", write(SCHEDULE))
    assert "makespan_s: 5" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if " TC " in line or " VC " in line] == [
        *"012"
    ]


@pytest.mark.parametrize(
    ("verb", "document", "words"),
    [
        ("schedule", {**SCHEDULE, "ops": [{**SCHEDULE["ops"][0], "latency_s": "fast"}]}, "ops[0].latency_s"),
        ("schedule", {**SCHEDULE, "edges": [[0, 9]]}, "edges[0]"),
        ("schedule", {**SCHEDULE, "edges": [[0, 1], [1, 0]]}, "cycle"),
        ("schedule", {**SCHEDULE, "ops": [{**SCHEDULE["ops"][0], "latency_s": 10**400}]}, "ops[0].latency_s"),
        ("schedule", {**SCHEDULE, "ops": [{**SCHEDULE["ops"][0], "latency_s": 5e-324}]}, "ops[0].latency_s"),
        ("schedule", {**SCHEDULE, "ops": [{**SCHEDULE["ops"][0], "unit": "GPU"}]}, "ops[0].unit"),
        ("schedule", {**SCHEDULE, "num_vector_cores": 0}, "num_vector_cores"),
        ("schedule", {**SCHEDULE, "num_vector_cores": 10**30}, "num_vector_cores"),
        ("schedule", json.dumps(SCHEDULE).replace("2.0", "NaN"), "NaN"),
        ("schedule", "{", "not valid JSON"),
        ("schedule", '{"ops": [], "ops": []}', "twice"),
        ("schedule", "[]", "expected an object"),
        ("placement", {**PLACEMENT, "format": "dse-placement/3"}, "'dse-placement/1' or 'dse-placement/2'"),
        ("placement", {**PLACEMENT, "format": ["dse-placement/1"]}, "$.format"),
        ("placement", {**PLACEMENT, "num_devices": 0}, "$.num_devices"),
        ("placement", {**PLACEMENT, "models": []}, "$.models"),
        ("placement", {**PLACEMENT, "optimizer": "Lion"}, "$.optimizer"),
        ("placement", PLACEMENT["models"], "object"),
    ],
)
def test_a_malformed_instance_names_file_and_path(solve, write, verb, document, words):
    path = write(document)
    done = solve(verb, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dse: {path}")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
