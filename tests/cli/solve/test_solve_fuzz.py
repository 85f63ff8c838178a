"""Mutated instances: `dse solve` answers, or says in one line what is wrong; it never falls over."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instances import MODES, PLACEMENT, SCHEDULE
from typer.testing import CliRunner

from phaze.cli.questions import solve
from phaze.errors import InfeasibleError, InputError

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from(
        [10**400, -1, 1e-320, 1e308, 2**70, 0.5, "", "7", "TC", [], {}, [[]], [0, 1], [1, 0], [0, 0]]
    ),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=3),
)


def places(value, path=()):
    """The path of every value in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@st.composite
def mutated(draw, document):
    """The document with one to three values replaced, removed or repeated."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        paths = [path for path in places(document) if path]
        if not paths:
            break
        *way, last = draw(st.sampled_from(paths))
        parent = document
        for key in way:
            parent = parent[key]
        action = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if action == "remove":
            del parent[last]
        elif action == "repeat" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        else:
            parent[last] = copy.deepcopy(draw(ODD))
    return document


def check(verb, text, path):
    path.write_text(text)
    done = CliRunner().invoke(solve.app, [verb, str(path), "--json"])
    if done.exit_code in {0, 3}:
        answer = json.loads(done.stdout)
        assert answer["status"] in {"optimal", "feasible"} if done.exit_code == 0 else {"infeasible"}
    else:
        assert isinstance(done.exception, InputError), repr(done.exception)
        assert str(path) in str(done.exception)
        assert "\n" not in str(done.exception)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "instance.json"


FUZZ = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FUZZ
@given(document=mutated(SCHEDULE))
def test_schedule(document, file):
    check("schedule", json.dumps(document), file)


@FUZZ
@given(document=mutated(MODES))
def test_schedule_with_modes(document, file):
    check("schedule", json.dumps(document), file)


@FUZZ
@given(document=mutated(PLACEMENT))
def test_placement(document, file):
    check("placement", json.dumps(document), file)


LAYERS = {
    "strategies": ["a", "b"],
    "layers": [
        {"name": "first", "time_s": [1, None], "memory_bytes": [4e9, None]},
        {"name": "block", "repeat": 3, "time_s": [1.0, 1.5], "memory_bytes": [3e9, 1e9]},
    ],
    "change_s": [[0, 0.1], [0.1, 0]],
    "memory_limit_bytes": 9e9,
}


@FUZZ
@given(document=mutated(LAYERS))
def test_layers(document, file):
    file.write_text(json.dumps(document))
    done = CliRunner().invoke(solve.app, ["layers", str(file), "--json"])
    if done.exit_code == 0:
        assert json.loads(done.stdout)["status"] == "optimal"
    else:
        assert isinstance(done.exception, InputError | InfeasibleError), repr(done.exception)
        assert "\n" not in str(done.exception)


FLEET = {
    "configs": [
        {
            "name": "t1",
            "price_usd_per_hour": 4,
            "devices": {"t1": 1},
            "requests_per_s": {"long": 1.0, "short": 1.2},
        },
        {
            "name": "t2",
            "price_usd_per_hour": 2,
            "devices": {"t2": 1},
            "requests_per_s": {"long": 0.9, "short": 0.9},
        },
    ],
    "requests": {"long": 80, "short": 20},
    "budget_usd_per_hour": 8,
    "available": {"t1": 2, "t2": 2},
}


@FUZZ
@given(document=mutated(FLEET), within=st.sampled_from([(), ("--within", "30s"), ("--within", "1ms")]))
def test_fleet(document, within, file):
    file.write_text(json.dumps(document))
    done = CliRunner().invoke(solve.app, ["fleet", str(file), *within, "--json"])
    if done.exit_code == 0:
        answer = json.loads(done.stdout)
        assert answer["status"] == "optimal"
        assert within or answer["lower_bound_s"] <= answer["time_s"]
    else:
        assert isinstance(done.exception, InputError | InfeasibleError), repr(done.exception)
        assert "\n" not in str(done.exception)


@FUZZ
@given(cut=st.integers(0, 200), verb=st.sampled_from(["schedule", "placement"]))
def test_truncated(cut, verb, file):
    check(verb, json.dumps(SCHEDULE if verb == "schedule" else PLACEMENT)[:cut], file)
