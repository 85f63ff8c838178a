from __future__ import annotations

import io

import pytest
from rich.console import Console

from phaze.report.compare import print_comparison
from phaze.report.tables import FRONTIER_ROWS, print_result, thin


def render(show, *, width=80, terminal=False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False)
    show(console)
    return console.file.getvalue()


@pytest.fixture
def text(document) -> str:
    return render(lambda console: print_result(document, console))


def test_fits_eighty_columns_and_has_no_colour_when_piped(text):
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_no_name_is_cut(text, document):
    for design in (document.best, *document.next_best):
        assert design.id in text
    assert "…" not in text


def test_every_part_of_the_answer_is_there(text):
    for part in (
        "The best accelerator for gpt3 on 1,024 devices is",
        "Architecture",
        "Area",
        "Power",
        "50.0 %",
        "data 4 x tensor 8 x pipeline 32",
        "Where the time",
        "Certificate",
        "gap 0",
        "Frontier of throughput against power, 10 of 23 points",
        "Next best",
        "Known chips",
        "h100: clock lowered",
    ):
        assert part in text


def test_alike_stages_take_one_line(text):
    assert "1-32" in text
    assert "block0 .. block95" in text


def test_a_gap_is_not_called_optimal(document):
    certificate = document.certificate.model_copy(
        update={"optimal": False, "gap": 0.1, "upper_bound": 33.0, "frontier_complete": False}
    )
    text = render(lambda c: print_result(document.model_copy(update={"certificate": certificate}), c))
    assert "no other point can be better by more than 10.0 %" in " ".join(text.split())
    assert "no other point of the space is better" not in " ".join(text.split())
    assert "10 of 23 points (so far)" in text


def test_markup_in_names_is_printed_as_it_is(document):
    best = document.best.model_copy(update={"id": "[red]x[/red]"})
    text = render(lambda c: print_result(document.model_copy(update={"best": best}), c))
    assert "[red]x[/red]" in text


def test_thinning_keeps_both_ends(document):
    few = thin(document.frontier, FRONTIER_ROWS)
    assert len(few) == FRONTIER_ROWS
    assert (few[0], few[-1]) == (document.frontier[0], document.frontier[-1])
    assert len({point.id for point in few}) == FRONTIER_ROWS
    assert thin(document.frontier[:3], FRONTIER_ROWS) == document.frontier[:3]


def test_comparison_names_what_does_not_fit(document):
    text = render(lambda c: print_comparison({"mine": document.best, "v100": "does not fit"}, c))
    assert "4x8x32" in text
    assert "v100: does not fit" in text
