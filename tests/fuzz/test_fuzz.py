"""Hostile inputs of every kind end in an answer or in one clear sentence, in bounded time and memory.

A case is told by its kind and number, and is the same everywhere; `pytest tests/fuzz -k 'space-3'` plays one batch.
"""

from __future__ import annotations

import json
import math
import random
from functools import cache

import pytest
import yaml
from instances import PLACEMENT, SCHEDULE
from kinds import RUNS, kinds, line
from player import LONGEST_S
from small_cases import DECODER

KINDS = (
    *("workload", "architecture", "space", "network", "framework", "plans", "calibration"),
    *("schedule", "placement", "document", "command line"),
)
BATCH, BATCHES, SOAKED = 27, 2, 28
EXPECTED = frozenset({0, 2, 3})
LONGEST_SENTENCE = 2_000

SMALL = {
    "schema_version": 1,
    "name": "small",
    "base": "tpuv4",
    "axes": [{"fields": ["tensor_cores"], "values": [4, 8]}, {"fields": ["hbm_stacks"], "values": [4, 6]}],
}


@pytest.fixture(scope="session")
def place(tmp_path_factory, player):
    """A folder with a workload, a space, instances, and finished runs of three verbs."""
    folder = tmp_path_factory.mktemp("fuzz-runs")
    (folder / "tiny.yaml").write_text(DECODER)
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    (folder / "schedule.json").write_text(json.dumps(SCHEDULE))
    (folder / "placement.json").write_text(json.dumps(PLACEMENT))
    own = {
        "run": ("--space", "small.yaml", "--no-cache"),
        "sweep": ("--space", "small.yaml", "--trials", "3", "--no-cache"),
        "plan": ("--arch", "a100"),
    }
    for verb in RUNS:
        words = (verb, "--workload", "tiny.yaml", "--devices", "2", *own[verb], "--out", verb)
        outcome = player.play(words, folder)
        assert outcome.code == 0, outcome.err
    return folder


@cache
def command_line():
    """Every command with its options, which take a while to build."""
    from typer.main import get_command

    from phaze.cli.main import app

    return get_command(app)


def options_of(words):
    """Options of the command that words begin with, each with whether it takes a value."""
    command = command_line()
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return [
        (parameter.opts[0], not parameter.is_flag)
        for parameter in command.params
        if parameter.opts[0].startswith("--")
        and parameter.opts[0] not in {"--executor", "--storage", "--workers"}
    ]


def check(kind, number, place, player, folder):
    """Play a case; what is wrong with how it ended, and how it can be seen, or nothing."""
    chance = random.Random(f"{kind} {number}")
    folder.mkdir()
    options = line(chance, place, options_of) if kind == "command line" else None
    arguments = options or kinds(place)[kind].case(chance, folder)
    outcome = player.play(arguments, folder)
    wrong = fault(outcome, arguments)
    shown = " ".join(arguments)[:300]
    return f"{kind} {number}: {wrong}: dse {shown}\n    {outcome.err[-300:].strip()}" if wrong else None


def fault(outcome, arguments):
    allowed = (
        EXPECTED
        | ({5} if arguments[0] == "certify" else set())
        | ({4} if "--time-limit" in arguments else set())
    )
    if outcome.code not in allowed:
        return f"exit code {outcome.code}"
    if outcome.seconds > LONGEST_S:
        return f"took {outcome.seconds:.1f} s"
    if outcome.code in {2, 3} and not (outcome.code == 3 and arguments[0] == "solve" and not outcome.err):
        return unclear(outcome)
    told = "--json" in arguments and outcome.code != 4  # which is an answer only where there was time for one
    return impossible(outcome.out) if told else None


def unclear(outcome):
    """What is wrong with the sentence of an error, which is the last thing said."""
    sentences = [text for text in outcome.err.splitlines() if text.startswith("dse: ")]
    if len(sentences) != 1 or "Traceback" in outcome.err:
        return f"{len(sentences)} sentences"
    if len(sentences[0]) > LONGEST_SENTENCE:
        return f"a sentence of {len(sentences[0])} characters"
    if outcome.code == 2 and not outcome.err.rstrip().endswith(sentences[0].rstrip()):
        return "something after the sentence"
    return None if len(sentences[0]) > 15 else "no sentence"


def impossible(text):
    """What no machine can do in a document."""
    try:
        found = json.loads(text)
    except ValueError:
        return "no JSON"
    wrong = [f"{key} = {value!r}" for key, value in figures(found) if not possible(key, value)]
    return "impossible: " + ", ".join(wrong[:3]) if wrong else None


def figures(value):
    """Every number of a document by the key it stands under."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ((key, item),) if is_number(item) else figures(item)
    elif isinstance(value, list):
        for item in value:
            yield from figures(item)


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def possible(key, value):
    if key in {"mfu", "hfu"}:
        return 0 <= value <= 1 + 1e-9
    endings = ("_s", "_bytes", "_w", "_mm2", "_j", "_per_s", "gap")
    return math.isfinite(value) and (value >= -1e-15 or not key.endswith(endings))


def check_batch(kind, numbers, place, player, tmp_path):
    faults = [check(kind, n, place, player, tmp_path / str(n)) for n in numbers]
    found = list(filter(None, faults))
    assert not found, f"{len(found)} of {len(faults)} cases\n" + "\n".join(found)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_inputs_end_in_an_answer_or_a_sentence(kind, batch, place, player, tmp_path):
    check_batch(kind, range(batch * BATCH, (batch + 1) * BATCH), place, player, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(BATCHES, BATCHES + SOAKED))
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_hostile_inputs(kind, batch, place, player, tmp_path):
    check_batch(kind, range(batch * BATCH, (batch + 1) * BATCH), place, player, tmp_path)
