"""`dse solve layers`, as it is typed; the instance and the Python are those of its page."""

from __future__ import annotations

import json
import re

import pytest
from page_instances import PAGES, page_instance

PAGE = PAGES / "solve.md"


@pytest.fixture
def instance(tmp_path):
    return tmp_path / "layers.json", page_instance("solve.md")


def test_the_layers_of_the_page(solve, instance):
    file, data = instance
    file.write_text(json.dumps(data))
    done = solve("layers", str(file), "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"], found["gap"]) == (0, "optimal", 0)
    assert (found["time_s"], found["memory_bytes"]) == (pytest.approx(29.1), 49.5e9)
    assert [(row["layers"], row["strategy"], row["first"], row["last"]) for row in found["layers"]] == [
        ("embedding", "sharded", 0, 0),
        ("block", "tensor", 1, 23),
        ("block", "replicated", 24, 24),
    ]
    wide = json.loads(solve("layers", str(file), "--memory", "60GB", "--json").stdout)
    assert (wide["time_s"], wide["memory_limit_bytes"]) == (pytest.approx(27.1), 60e9)
    assert "29.1" in solve("layers", str(file)).stdout


def test_the_python_of_the_page(capsys):
    *_, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "{'p1-d8': 1, 'p1-s8': 5, 'p1-s8-r': 22}\n"


BLOCK = {"name": "block", "time_s": [1, 1, 1], "memory_bytes": [1, 1, 1]}


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"memory_limit_bytes": 10e9}, 3, "hold 2.45e+10 bytes, and the limit is 1e+10"),
        ({"memory_limit_bytes": -1}, 2, "memory_limit_bytes"),
        ({"change_s": [[0, 1, 1], [1, 0, 1]]}, 2, "change_s must be 3 lists of 3 seconds"),
        ({"strategies": ["a", "b", "a"]}, 2, "two strategies have one name"),
        ({"layers": [BLOCK | {"repeat": 600}] * 2}, 2, "there are 1200 layers, more than 1000"),
        ({"layers": [BLOCK | {"time_s": [1, 1]}]}, 2, "block needs one time_s and one memory_bytes"),
        (
            {"layers": [BLOCK | {"time_s": [1, None, 1]}]},
            2,
            "only one of time_s and memory_bytes under sharded",
        ),
        ({"layers": [BLOCK | {key: [None] * 3 for key in ("time_s", "memory_bytes")}]}, 2, "has no strategy"),
    ],
)
def test_what_makes_no_sense(solve, instance, change, code, told):
    file, data = instance
    file.write_text(json.dumps(data | change))
    done = solve("layers", str(file), "--json")
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr.partition("\n")[0]
