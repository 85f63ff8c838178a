"""After Ctrl-C, what is left of a space is counted by its peaks, and the frontier is told as far as there is time."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.explore.answers import evaluated_designs, exploration
from phaze.explore.answers.evaluated_designs import ToldPiece
from phaze.explore.certified.block_screening import Screen
from phaze.explore.certified.search_pieces import SearchContext
from phaze.explore.certified.search_state import PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.scheduling.effort import Patience
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 16, network)


def test_what_comes_after_an_interrupt_is_counted_without_costing_a_layer(task, small_space, monkeypatch):
    candidates, axes = Candidates(small_space, Budgets(power_w=300.0)), SearchAxes((metric("throughput"),))
    evaluator, clock = Evaluator(task, candidates.survey()), Clock(600.0)
    block = candidates.within(np.arange(candidates.size))
    clock.interrupt()
    monkeypatch.setattr(Evaluator, "on", lambda *_: pytest.fail("layers are costed"))
    screen = Screen(evaluator, axes, Relevance(axes.archive()), clock)
    found = screen.run(block, PointPool.empty())
    assert not len(found.pool)
    assert found.fallen["open"] == len(block) * len(evaluator.configs) > 0
    ((_, hoped),) = found.spared
    assert hoped == pytest.approx(screen.roof(block.table), rel=1e-9)


@pytest.mark.parametrize("left_s", [0.0, 60.0])
def test_after_an_interrupt_the_frontier_is_told_as_far_as_there_is_time(
    task, small_space, left_s, monkeypatch
):
    monkeypatch.setattr(exploration, "TOLD_TOGETHER", 1)
    clock = Clock(600.0)
    run = exploration.Exploration(
        ExploreRequest(task, small_space, Budgets(power_w=300.0)), SilentProgress(), clock
    )
    outcome = run.search()
    shown, proof = run.shown(outcome), run.proof(outcome)
    assert len(shown.frontier) > 1
    assert proof.complete
    clock.interrupt()
    run.reporting = SolveLimits(lambda: left_s, FEW_STATES)
    document = run.describe(shown, proof, lambda: None).document
    whole = left_s > 0
    assert len(document.frontier) == (len(shown.frontier) if whole else 1)
    assert document.certificate.frontier_complete is whole
    assert document.best.id in {point.id for point in document.frontier}
    assert document.certificate.gap == 0


@pytest.mark.parametrize("looks", [0, 1, 2, 4, 8, 16, 10_000])
def test_bounding_that_is_ended_anywhere_is_looser_and_claims_nothing(task, small_space, looks):
    candidates = Candidates(small_space, Budgets(power_w=300.0))
    whole = Evaluator(task, candidates.survey())
    block = candidates.all()
    rows, never = np.arange(len(block)), np.full(len(block), np.inf)
    for config in whole.configs[:3]:
        expected = whole.on(block.table).bounds(config, rows, never)
        left = iter([1.0] * looks)
        limits = SolveLimits(lambda left=left: next(left, 0.0))
        fresh = Evaluator(task, candidates.survey()).on(block.table)
        found = fresh.bounds(config, rows, never, Patience(limits, limits))
        assert (found.lower_s <= expected.lower_s).all()
        met = np.isfinite(found.upper_s) & (found.lower_s == found.upper_s)
        np.testing.assert_array_equal(found.lower_s[met], expected.lower_s[met])
        if looks > 1000:
            np.testing.assert_array_equal(found.upper_s, expected.upper_s)
        if looks == 0:
            assert not met.any()


def test_a_hurried_partner_tells_the_first_points_and_with_time_all(task, small_space, monkeypatch):
    monkeypatch.setattr(evaluated_designs, "TOLD_TOGETHER", 1)
    request = ExploreRequest(task, small_space, Budgets(power_w=300.0))
    run = exploration.Exploration(request, SilentProgress(), Clock(600.0))
    shown = run.shown(run.search())
    rows, frontier, designs = dict(enumerate(shown.rows)), list(shown.frontier), run.ranked(shown)[:3]
    context = SearchContext(run.candidates, task, run.axes)
    assert len(frontier) > 1
    everything = ToldPiece(rows, frontier, designs, Clock(600.0)).on(context)
    assert ToldPiece(rows, frontier, designs, Clock(600.0), hurried=True).on(context) == everything
    points, whole = ToldPiece(rows, frontier, designs, Clock(0.0), hurried=True).on(context)
    assert list(points) == frontier[:1]
    assert list(whole) == designs[:1]
    assert points[frontier[0]] == everything[0][frontier[0]]


def test_blocks_of_any_size_hold_the_same_candidates(small_space, monkeypatch):
    candidates = Candidates(small_space, Budgets(power_w=300.0))
    whole = candidates.within(np.arange(candidates.size))
    monkeypatch.setattr("phaze.explore.evaluation.design_candidates.PART", 7)
    parts = candidates.within(np.arange(candidates.size))
    assert len(whole) > 7
    assert (whole.numbers == parts.numbers).all()
    assert (whole.tdp_w == parts.tdp_w).all()
    assert (whole.area_mm2 == parts.area_mm2).all()
    for name, column in whole.table.columns.items():
        np.testing.assert_array_equal(column, parts.table[name], name)
        assert column.dtype == parts.table[name].dtype, name
