"""What one design for several workloads costs each of them, in words, also where a search was cut short."""

from __future__ import annotations

import pytest

from phaze.explore.documents.result_document import OwnOptimum, PortfolioReport, Share
from phaze.report.terminal.question_tables import regret_table
from phaze.report.terminal.search_tables import _beside_own


def share(common, own, most):
    optimum = OwnOptimum.model_construct(
        throughput_samples_per_s=own, upper_bound_samples_per_s=most, gap=most / own - 1
    )
    return Share.model_construct(
        weight=1.0, throughput_samples_per_s=common, ratio=common / own, regret=1 - common / own, own=optimum
    )


@pytest.mark.parametrize(
    ("regret", "words"),
    [
        (0.125, "12.5 % below its own best"),
        (0.0, "as its own best"),
        (-0.0001, "as its own best"),
        (-0.595, "59.5 % above the best that the time for it alone has found"),
    ],
)
def test_nothing_is_below_by_less_than_nothing(regret, words):
    assert _beside_own(regret) == words


def test_a_workload_whose_search_was_cut_short_has_no_regret():
    report = PortfolioReport.model_construct(
        combine="geomean", workloads={"one": share(90.0, 100.0, 100.0), "two": share(160.0, 100.0, 400.0)}
    )
    columns = [list(column.cells) for column in regret_table(report).columns]
    assert columns[4] == ["10.0 %", "none"]
    assert columns[5][0] == ""
    assert columns[5][1] == "alone at most 300.0 % more; the time for it alone found less than all together"
