"""What a terminal shows: tables that fit, colours only where they are wanted, nothing of either in a pipe."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from phaze.report.terminal.design_tables import print_design
from phaze.report.terminal.search_tables import print_result
from phaze.report.terminal.side_by_side import print_comparison

LISTS = [
    ("workloads",),
    ("workloads", "show", "gpt3"),
    ("archs",),
    ("spaces",),
    ("spaces", "show", "default"),
    ("networks",),
    ("networks", "cost", "hgx-h100"),
    ("frameworks",),
    ("graph", "bert-base"),
    ("graph", "bert-base", "--layer", "2"),
    ("explain", "hbm_stacks"),
]
LONG = "a-workload-whose-name-is-much-longer-than-any-column-of-any-table-can-be"


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_what_is_piped_fits_eighty_columns_without_any_colour(dse, words):
    code, out, err = dse(*words)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


@pytest.fixture
def long_named(document):
    """The sample document with long names wherever a user gives them."""
    best = document.best
    results = {LONG: best.workloads["gpt3"]}
    design = best.model_copy(update={"workloads": results, "id": f"{best.id}-{LONG}"})
    chips = [chip.model_copy(update={"name": LONG, "note": LONG}) for chip in document.comparison]
    return document.model_copy(update={"best": design, "comparison": chips, "next_best": [design]})


@pytest.mark.parametrize("width", [80, 60, 40])
def test_tables_with_long_names_stay_within_the_terminal(long_named, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_result(long_named, console)
    print_design(long_named.best, console)
    print_comparison({LONG: long_named.best, f"{LONG}2": f"{LONG} does not fit"}, console)
    assert max(map(len, console.file.getvalue().splitlines())) <= width


def on_a_terminal(*words, **environment):
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    told = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    command = [sys.executable, "-m", "phaze.cli.main", *words]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=told):
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:  # Linux says so where the other end is closed
            pass
    os.close(ours)
    return seen.decode()


COLOUR = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|4[0-7]|9[0-7]|[34]8;)")


def test_no_color_is_heeded_on_a_terminal():
    shown = on_a_terminal("evaluate", "--help", NO_COLOR="1")
    assert not COLOUR.search(shown)
    assert "Exit codes: 0 answered" in shown
    assert not COLOUR.search(on_a_terminal("archs", NO_COLOR="1"))


def test_headings_are_bold_on_a_terminal_and_plain_in_a_pipe(dse):
    assert "\x1b[1mExamples:\x1b[0m" in on_a_terminal("help", "runs")
    assert "\x1b" not in dse("help", "runs")[1]


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["repotr"], "report"),
        (["run", "--workloda", "gpt3"], "--workload"),
        (["run", "--workload", "resnet5"], "resnet50"),
        (["run", "--workload", "gpt3", "--strategy", "whamm"], "wham"),
        (["help", "sweeep"], "sweep"),
        (["plan", "exprot", "x.json"], "export"),
        (["evaluate", "-w", "gpt3", "--arch", "h10"], "h100"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(dse, words, suggestion):
    code, out, err = dse(*words)
    assert (code, out) == (2, "")
    assert suggestion in err
    assert err.count("\n") == 1
