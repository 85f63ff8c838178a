"""`dse solve placement` on graphs: the format's own page, PHAZE's rules, mutated instances."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from instances import PLACEMENT
from test_solve_fuzz import FUZZ, check, mutated

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "placement-2.md"
GRAPH = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("placement") / "instance.json"


def test_the_file_chooses_the_solver(solve, file):
    file.write_text(json.dumps(GRAPH))
    done = solve("placement", file, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["time_per_batch_s"], answer["num_stages"], answer["data_parallel"]) == (43.5, 2, 4)
    assert (answer["depth"], answer["tensor_parallel"], answer["devices_used"]) == (2, 1, 8)
    first = {"device_type": "chip", "tensor_parallel": 1, "recompute": "full", "zero": 1}
    assert answer["stages"][0] == {"layers": [0, 2], "devices": 1, **first}


def test_phaze_rules_replace_those_of_the_instance(solve, file):
    file.write_text(json.dumps(GRAPH))
    done = solve("placement", file, "--json", "--compat", "phaze")
    assert json.loads(done.stdout)["time_per_batch_s"] == 42.0
    file.write_text(json.dumps(PLACEMENT))
    done = solve("placement", file, "--json", "--compat", "phaze")
    assert json.loads(done.stdout)["time_per_batch_s"] == 53.25
    done = solve("placement", file, "--compat", "phase")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean phaze" in done.stderr


def test_a_graph_that_is_too_large_is_bad_input(solve, file):
    layers = [{**GRAPH["models"][0]["layers"][0], "id": i} for i in range(40)]
    file.write_text(json.dumps({**GRAPH, "models": [{**GRAPH["models"][0], "layers": layers, "edges": []}]}))
    done = solve("placement", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dse: {file}: $.models[0].edges: too many ways to cut the graph")
    assert done.stderr.count("\n") == 1


def test_a_graph_that_fits_nowhere_is_exit_code_3(solve, file):
    file.write_text(json.dumps({**GRAPH, "device_types": [{"name": "chip", "count": 1, "memory_bytes": 1}]}))
    done = solve("placement", file, "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["stages"] == []


@FUZZ
@given(document=mutated(GRAPH))
def test_mutated(document, file):
    check("placement", json.dumps(document), file)
