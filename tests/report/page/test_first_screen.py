"""The first screen of a report: budgets, the nearest chip, error bars, what limits, the frontier, the command."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from test_page import contents  # noqa: F401 - a fixture

from phaze.cost.fidelity import Fidelity
from phaze.report import palette
from phaze.report.charts.svg_charts import Scale
from phaze.report.figures.first_screen import first_screen, nearest_chip, time_error
from phaze.report.figures.frontier_glance import _names
from phaze.report.figures.report_contents import Contents
from phaze.testing.figure_contract import Markup
from phaze.validation.stated_errors import KINDS, stated_errors


def words(document, **more):
    return " ".join(Markup(first_screen(Contents("run", document, **more))).texts)


def test_it_tells_how_much_of_a_budget_is_used(document):
    assert "99.5 % of 400 W" in words(document)  # 398 W
    without = document.model_copy(update={"request": {}})
    assert words(without).count("no budget given") == 2


def test_a_power_that_boards_sustain_is_held_against_what_is_drawn(document):
    request = {**document.request, "power_means": "sustained"}
    told = words(document.model_copy(update={"request": request}))
    drawn = next(iter(document.best.workloads.values())).drawn_w
    assert "power drawn" in told
    assert f"{100 * drawn / 400:.3g} % of 400 W" in told
    assert "99.5 % of 400 W" not in told
    assert "budget: 400 W" not in told


def test_the_nearest_chip_is_nearest_by_ratio(document):
    row = next(row for row in document.comparison if row.result)

    def chip(name, speed):
        result = row.result.model_copy(update={"throughput_samples_per_s": speed})
        return row.model_copy(update={"name": name, "tdp_w": 100.0, "result": result})

    # The winner reaches 30: 75 is 2.5 times that, 13 is 2.3 times less, though 17 apart and not 45.
    rows = [chip("fast", 75.0), chip("slow", 13.0), chip("slower", 5.0)]
    found = document.model_copy(update={"comparison": rows})
    assert nearest_chip(found).name == "slow"
    assert "2.31 x as fast" in words(found)


def test_error_bars_are_those_of_the_validation(document):
    error = stated_errors()["training_time"][Fidelity.ANALYTIC]
    low, high = (30 * (1 + sign * error.p90_pct / 100) for sign in (-1, 1))
    assert f"{low:.1f} to {high:.1f} samples/s" in words(document)
    assert f"{error.rows:,} published training runs" in words(document)
    power = stated_errors()["chip_power"][Fidelity.ANALYTIC]
    assert f"±{power.median_pct:g} % in power ({power.rows} chips)" in words(document)
    name, result = next(iter(document.best.workloads.items()))
    ideal = {name: result.model_copy(update={"rung": Fidelity.IDEAL})}
    unreal = document.model_copy(update={"best": document.best.model_copy(update={"workloads": ideal})})
    assert time_error(unreal) is None
    assert "error bars" not in words(unreal)
    assert "How far off" not in words(unreal)


def test_the_command_can_be_copied(document):
    asked = document.manifest.model_copy(update={"command": ["dse", "run", "--out", "my runs"]})
    found = Markup(first_screen(Contents("run", document.model_copy(update={"manifest": asked}))))
    assert found.values("data-copy") == ["dse run --out 'my runs'"]


def test_the_page_of_validation_opens_with_the_errors_that_reports_state():
    page = (
        (Path(__file__).parents[3] / "docs" / "validation.md").read_text().partition("## Every data set")[0]
    )
    for name, by_rung in stated_errors().items():
        error = by_rung[Fidelity.ANALYTIC]
        told = f"| {KINDS[name].words} | {error.median_pct:.1f} % | {error.p90_pct:.1f} % | {error.rows:,} "
        assert told in page
    front = (Path(__file__).parents[3] / "docs" / "index.md").read_text()
    time = stated_errors()["training_time"][Fidelity.ANALYTIC]
    assert f"{time.rows:,} published training runs" in front
    assert f"{time.median_pct:.0f} %" in front


def test_pages_and_pictures_have_one_palette():
    style = resources.files("phaze.report.page").joinpath("style.css").read_text()
    light = dict(re.findall(r"--(\w+): (#\w+);", style.partition("@media")[0]))
    named = {"page": palette.PAGE, "ink": palette.INK, "soft": palette.SOFT, "line": palette.LINE}
    assert {name: light[name] for name in (*named, *palette.CLASSES)} == named | dict(palette.CLASSES)
    for file in Path(palette.__file__).parent.rglob("*.py"):
        if file.name != "palette.py":
            colours = re.findall(r"#[0-9a-fA-F]{6}\b", file.read_text())
            assert set(colours) <= {"#000000", "#ffffff"}, file


@pytest.mark.parametrize("count", [0, 1])
def test_a_run_without_a_frontier_has_no_picture_of_it(document, count):
    found = Markup(
        first_screen(Contents("r", document.model_copy(update={"frontier": document.frontier[:count]})))
    )
    assert "figure" not in found.names


def test_names_of_chips_do_not_cover_each_other():
    square = Scale(0.0, 100.0, 0.0, 100.0)
    chips = [(80.0, 50.0, "a"), (82.0, 51.0, "b"), (90.0, 49.0, "c"), (90.0, 90.0, "d"), (10.0, 50.0, "e")]
    told = [str(name) for name in _names(chips, square, square)]
    tops = {re.search(r">(\w)<", one)[1]: float(re.search(r"top:([\d.]+)%", one)[1]) for one in told}
    assert (tops["c"], tops["d"], tops["e"]) == (49.0, 90.0, 50.0)
    assert tops["c"] + 7 <= tops["a"] <= tops["b"] - 7 <= 63 - 7
