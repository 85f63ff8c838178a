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
            progress.update("describing", second, seconds, "gap 0.1")
    return console.file.getvalue()


def test_nothing_for_short_work():
    assert run(1, terminal=False) == ""
    assert run(1, terminal=True) == ""


def test_plain_lines_now_and_then_when_piped():
    lines = run(25, terminal=False).splitlines()
    assert lines == [
        "2 s  describing 8 %, about 23 s left; gap 0.1",
        "12 s  describing 48 %, about 13 s left; gap 0.1",
        "22 s  describing 88 %, about 3 s left; gap 0.1",
    ]


def test_a_live_line_on_a_terminal():
    text = run(5, terminal=True)
    assert "5 s  describing 100 %; gap 0.1" in text
    assert "\x1b" in text


def test_a_long_note_stays_on_one_line():
    console = Console(file=io.StringIO(), width=40)
    clock = Clock()
    with ConsoleProgress(console, clock) as progress:
        clock.now = 3.0
        progress.update("bounding", 1, 2, "a note that is much longer than the line is wide")
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= 40


def lines(updates, **how):
    console = Console(file=io.StringIO(), width=100)
    clock = Clock()
    with ConsoleProgress(console, clock, **how) as progress:
        for second, update in updates:
            clock.now = second
            progress.update(*update)
    return console.file.getvalue().splitlines()


def test_the_pace_is_that_of_the_stage_and_no_share_is_beyond_all():
    found = lines(
        [
            (0.0, ("sweep", 0, 10, "")),
            (8.0, ("reporting", 100, 500, "")),
            (18.0, ("reporting", 150, 500, "half")),
            (28.0, ("reporting", 700, 500, "")),  # more than it thought
        ]
    )
    assert found == [
        "8 s  reporting 20 %",
        "18 s  reporting 30 %, about 70 s left; half",
        "28 s  reporting 100 %",
    ]


def test_the_steps_of_a_search_are_one_phase_with_the_time_it_may_take():
    found = lines(
        [
            (3.0, ("bounding", 1, 2, "")),
            (14.0, ("refining", 5, 900, "gap 3 %")),
            (25.0, ("evaluating", 6, 7, "")),
        ],
        limit_s=60.0,
    )
    assert found == [
        "3 s  searching; at most 57 s left",
        "14 s  searching; gap 3 %; at most 46 s left",
        "25 s  searching; at most 35 s left",
    ]


def test_work_whose_steps_are_its_own_concern_has_one_name():
    assert lines([(3.0, ("frontier", 35, 2, "9 points"))], phase="checking") == ["3 s  checking; 9 points"]


def test_the_seconds_go_on_while_nothing_is_reported():
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    clock = Clock()
    clock.now = -7.0
    with ConsoleProgress(console, clock, phase="planning") as progress:
        clock.now = 0.0
        for _ in range(200):
            if "7 s  planning" in console.file.getvalue():
                break
            progress._over.wait(0.05)
    assert "7 s  planning" in console.file.getvalue()
