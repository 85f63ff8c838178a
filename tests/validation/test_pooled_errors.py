"""Errors pooled by kind of figure: all rows of all sets of a kind count alike, and no others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.report.page.validation_page import further_off, taken_home
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.model_validation import Compared
from phaze.validation.pooled_errors import pooled, written
from phaze.validation.stated_errors import StatedError, stated_errors


def compared(name, metric, ratios, fitted=None):
    """A set whose rows are predicted at some ratios of what was measured."""
    measured = np.linspace(1.0, 2.0, len(ratios))
    predicted = {Fidelity.ANALYTIC: measured * np.array(ratios)}
    if fitted is not None:
        predicted[Fidelity.CALIBRATED] = measured * np.array(fitted)
    told = SimpleNamespace(name=name, metric=metric, rows=len(ratios), unseen_pct={})
    return Compared(
        Judged(measured, predicted, {}), dict.fromkeys((Fidelity.ANALYTIC, Fidelity.CALIBRATED), told)
    )


@pytest.fixture
def sets():
    return [
        compared("e2e_one", "time", [1.10, 0.90], fitted=[1.02, np.nan]),
        compared("e2e_two", "time", [1.0, 1.30, 0.5]),
        compared("e2e_vtrain_single_node", "time", [9.0] * 50),  # composed, not run
        compared("e2e_one", "memory", [1.05]),
        compared("coll_x", "latency_small", [3.0]),
        compared("op_y", "latency", [1.2, 1.2]),
    ]


def test_rows_of_all_sets_count_alike(sets):
    found = pooled(sets)
    sizes = [10.0, 10.0, 0.0, 30.0, 50.0]
    assert found["training_time"][Fidelity.ANALYTIC] == StatedError(
        rows=5, sets=2, median_pct=10.0, p90_pct=round(float(np.percentile(sizes, 90)), 1)
    )
    assert found["training_time"][Fidelity.CALIBRATED].rows == 1  # where the rung says something
    assert found["peak_memory"][Fidelity.ANALYTIC].median_pct == pytest.approx(5.0)
    assert found["kernels"][Fidelity.ANALYTIC].rows == 2
    assert found.keys() == {"training_time", "peak_memory", "kernels"}


def test_what_is_written_is_read_again(sets, monkeypatch):
    text = written(pooled(sets))
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: text)
    stated_errors.cache_clear()
    try:
        assert stated_errors() == pooled(sets)
    finally:
        stated_errors.cache_clear()


def test_the_page_opens_with_a_line_for_each_kind(sets):
    page = taken_home(pooled(sets), sets)
    assert (
        "| time of a training iteration | 10.0 % | 42.0 % | 5 published training runs | 2.0 and 2.0 %, 1 cases |"
        in page
    )
    assert taken_home({}, []) == ""


def test_the_page_tells_what_is_further_off_without_a_fit():
    told = [compared(name, "time", [1.1]) for name in ("near", "far", "exact")]
    for one, (fitted, left) in zip(told, ((10.0, 13.0), (10.0, 13.1), (0.0, 5.0)), strict=True):
        comparison = one.comparisons[Fidelity.CALIBRATED]
        vars(comparison).update(title=comparison.name, mape_pct=fitted, unseen_pct={"device": left})
        vars(comparison).update(
            unseen_most={"device": "h100, by other families (1 of 1 rows): 10.0 -> 13.1 %"}
        )
    page = further_off(told)
    assert [line for line in page.splitlines() if line.startswith("| ")][1:] == [
        "| far | 10.0 | device 13.1 | 1.3 | h100, by other families (1 of 1 rows): 10.0 -> 13.1 % |",
        "| instead | comparisons | adds, points |",
        "| other families, for want of another device of the same | 1 | 3.1 |",
    ]
    assert "Of 2 comparisons that constants were fitted to, 1 are more than 1.3 times" in page
    assert further_off(told[:1]) == ""
