from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from phaze.explore.documents.plan_record import StrategyRecord
from phaze.report.plan_words import degrees_beside
from phaze.report.terminal.design_tables import parts
from phaze.report.terminal.frontier_tables import FRONTIER_ROWS, frontier_table, thin
from phaze.report.terminal.search_tables import print_result
from phaze.report.terminal.side_by_side import print_comparison


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
    for design in (document.best, *document.next_best[:3]):
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
        "30.000 samples/s (gap 0 %)",
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
    assert "no other design in this space is better by more than 10.0 %" in " ".join(text.split())
    assert "The best accelerator found for gpt3" in text
    assert "provably the best design" not in " ".join(text.split())
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


def test_thinning_is_even_in_throughput_and_keeps_the_winner(document):
    steep = [
        point.model_copy(update={"throughput_samples_per_s": 2.0**i})
        for i, point in enumerate(document.frontier)
    ]
    few = thin(steep, FRONTIER_ROWS, steep[3].id)
    assert steep[3] in few
    assert len(few) <= FRONTIER_ROWS + 1
    # Of points that double, even steps meet the lowest and the upper few; the winner is there in any case.
    assert [p.throughput_samples_per_s for p in few[:2]] == [1.0, 8.0]
    assert few[2].throughput_samples_per_s > 2.0**17
    assert few[-1] == steep[-1]


def test_what_is_below_a_tenth_of_the_best_is_told_in_a_line(document):
    slow = [
        document.frontier[0].model_copy(update={"id": f"slow{i}", "throughput_samples_per_s": 0.1 + i})
        for i in (0, 1)
    ]
    text = " ".join(
        render(lambda c: c.print(frontier_table([*slow, *document.frontier], document.best.id))).split()
    )
    assert "slow" not in text
    assert "10 of 25 points" in text
    assert "2 points more are below a tenth of the best throughput (100 W)" in text
    kept = render(lambda c: c.print(frontier_table([*slow, *document.frontier], "slow1")))
    assert "slow1 *" in kept  # a winner by another objective is there in any case
    assert "slow0" not in kept


def test_no_budget_is_said(document):
    free = document.model_copy(update={"request": document.request | {"power_w": None}})
    told = {
        name: " ".join(render(lambda c, d=d: print_result(d, c)).split())
        for name, d in (("free", free), ("bound", document))
    }
    assert "No budget was given" in told["free"]
    assert "No budget was given" not in told["bound"]


def test_small_parts_are_one_row_and_the_shares_stay_whole():
    values = {f"p{i}": float(i) for i in range(1, 9)}
    table = parts("Area", values, "mm2", sum(values.values()), {})
    names, amounts = (list(column.cells) for column in table.columns[:2])
    assert names == ["p8", "p7", "p6", "p5", "p4", "3 others", "total"]
    assert amounts[5:] == ["6.00", "36.0"]


def test_alike_notes_take_one_line(document):
    rows = [
        document.comparison[0].model_copy(update={"name": name, "note": "at 0.90 GHz, the highest clock"})
        for name in ("a", "b")
    ]
    text = render(lambda c: print_result(document.model_copy(update={"comparison": rows}), c))
    assert "  a, b: the highest clock\n" in text


def test_comparison_names_what_does_not_fit(document):
    text = render(lambda c: print_comparison({"mine": document.best, "v100": "does not fit"}, c))
    assert "4x8x32" in text
    assert "v100: does not fit" in text


@pytest.mark.parametrize(
    ("objective", "value", "words"),
    [
        ("throughput", 30.0, "on 1,024 devices is"),
        ("throughput_per_tdp", 0.075, "devices by throughput per watt is"),
        ("tdp", 1 / 398.0, "devices by least power is"),
    ],
)
def test_the_answer_names_an_unusual_objective(document, objective, value, words):
    fields = {"objective": objective, "objective_value": value, "upper_bound": value}
    certificate = document.certificate.model_copy(update=fields)
    text = render(lambda c: print_result(document.model_copy(update={"certificate": certificate}), c))
    assert words in " ".join(text.split())
    unit = {"throughput": "30.000 samples/s", "tdp": "398.00 W"}.get(objective, "0.075000 samples/s/W")
    assert text.count(unit) >= 2


def test_undecided_points_are_not_called_pruned(document):
    certificate = document.certificate.model_copy(
        update={"optimal": False, "gap": 0.1, "pruned": 500, "pruned_by": {"roofline": 400, "open": 100}}
    )
    text = render(lambda c: print_result(document.model_copy(update={"certificate": certificate}), c))
    assert re.search(r"pruned by a bound +400 \(400 roofline\)", text)
    assert re.search(r"not decided +100", text)


def test_degrees_side_by_side_multiply_to_the_devices_in_use(document):
    """Context parallelism divides devices, too: without it 4 x 1 x 1 would stand for eight devices."""
    (result,) = document.best.workloads.values()
    plain = result.placement
    assert degrees_beside([plain])[0] == "data x tensor x pipeline"
    strategy = StrategyRecord.model_construct(data_parallel=4, context_parallel=2)
    divided = plain.model_copy(
        update={"data_parallel": 4, "tensor_parallel": 1, "pipeline_parallel": 1, "plan": strategy}
    )
    kinds, (first, second) = degrees_beside([plain, divided])
    assert kinds == "data x tensor x context x pipeline"
    assert second == "4x1x2x1"
    own = plain.data_parallel, plain.tensor_parallel, 1, plain.pipeline_parallel
    assert first == "x".join(map(str, own))
