from __future__ import annotations

import io

from rich.console import Console

from phaze.report.console_progress import ConsoleProgress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(seconds, *, terminal) -> str:
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    with ConsoleProgress(console, clock) as progress:
        for second in range(seconds + 1):
            clock.now = float(second)
            progress.update("bounding", second, seconds, "gap 0.1")
    return console.file.getvalue()


def test_nothing_for_short_work():
    assert run(1, terminal=False) == ""
    assert run(1, terminal=True) == ""


def test_plain_lines_now_and_then_when_piped():
    lines = run(25, terminal=False).splitlines()
    assert lines == [
        "2 s  bounding 8 %, 23 left, 1/s; gap 0.1",
        "12 s  bounding 48 %, 13 left, 1/s; gap 0.1",
        "22 s  bounding 88 %, 3 left, 1/s; gap 0.1",
    ]


def test_a_live_line_on_a_terminal():
    text = run(5, terminal=True)
    assert "5 s  bounding 100 %, 0 left, 1/s; gap 0.1" in text
    assert "\x1b" in text


def test_a_long_note_stays_on_one_line():
    console = Console(file=io.StringIO(), width=40)
    clock = Clock()
    with ConsoleProgress(console, clock) as progress:
        clock.now = 3.0
        progress.update("bounding", 1, 2, "a note that is much longer than the line is wide")
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= 40


def test_the_rate_is_that_of_the_stage():
    console = Console(file=io.StringIO(), width=80)
    clock = Clock()
    with ConsoleProgress(console, clock) as progress:
        progress.update("bounding", 0, 10, "")
        clock.now = 8.0
        progress.update("refining", 100, 500, "")
        clock.now = 18.0
        progress.update("refining", 150, 500, "best 3 samples/s")
    assert console.file.getvalue().splitlines() == [
        "8 s  refining 20 %, 400 left",
        "18 s  refining 30 %, 350 left, 5/s; best 3 samples/s",
    ]
