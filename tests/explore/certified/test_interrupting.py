"""After Ctrl-C, what is left of a space is counted by its peaks, and the frontier is told as far as there is time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.solvers.scheduling.batch.solve import batch_bounds

from phaze.errors import OutOfTimeError
from phaze.explore.answers import evaluated_designs, exploration
from phaze.explore.answers.evaluated_designs import ToldPiece
from phaze.explore.certified.block_screening import Screen
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.search_pieces import SearchContext
from phaze.explore.certified.search_state import PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.task_costs import CostedPoints
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipelines_s
from phaze.parallel.plan_batches.chunk_places import ChunkPlaces
from phaze.scheduling.effort import LimitsOver, Patience
from phaze.scheduling.known import KnownRows
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


@pytest.mark.parametrize("looks", [0, 1, 2, 4, 8, 16, 64, 256, 1000, 100_000])
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
        if looks > 10_000:
            np.testing.assert_array_equal(found.upper_s, expected.upper_s)
        if looks == 0:
            assert not met.any()


@pytest.mark.parametrize("looks", [0, 1, 2, 4, 8, 16, 32, 64])
def test_bounding_that_is_ended_begins_nothing_more_than_its_first_bound(
    task, small_space, looks, monkeypatch
):
    evaluator = Evaluator(task, Candidates(small_space, Budgets(power_w=300.0)).survey())
    limits, rows, late = Looks(looks), np.arange(len(evaluator.table)), []
    times = CostedPoints.times

    def counting(self, layers):
        if limits.count > looks:
            late.append(layers)
        return times(self, layers)

    monkeypatch.setattr(CostedPoints, "times", counting)
    never, patience = np.full(len(rows), np.inf), Patience(limits.limits, limits.limits)
    found = evaluator.bounds(evaluator.configs[0], rows, never, patience)
    assert len(late) <= 1
    assert (found.lower_s > 0).all()


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


class Looks:
    """Looks that are counted; from the last one on nobody waits any more."""

    def __init__(self, most=10**9):
        self.most, self.count = most, 0

    def __call__(self):
        self.count += 1
        if self.count > self.most:
            raise LimitsOver

    @property
    def limits(self):
        return SolveLimits(lambda: float(self.count_one() <= self.most))

    def count_one(self):
        self.count += 1
        return self.count


def test_list_schedules_look_at_every_operator():
    graph = BatchGraph(units=(("TC",), ("VC",), ("TC",), ("VC",)), edges=((0, 1), (2, 3)))
    single = np.random.default_rng(3).uniform(1.0, 2.0, (8, 4))
    cores = {unit: np.full(8, 2) for unit in ("TC", "VC")}
    looks = Looks()
    found = batch_bounds(graph, single, 0.9 * single, cores, rough=True, look=looks)
    assert looks.count > graph.size
    with pytest.raises(LimitsOver):
        batch_bounds(graph, single, 0.9 * single, cores, rough=True, look=Looks(graph.size - 1))
    whole = batch_bounds(graph, single, 0.9 * single, cores)
    assert (whole.lower_s >= found.lower_s).all()


def test_a_pass_whose_bounds_were_ended_knows_none_of_them(task, small_space):
    evaluator = Evaluator(task, Candidates(small_space, Budgets()).survey())
    chain, rows, ended = evaluator.timed(evaluator.configs[0]), np.arange(len(evaluator.table)), 0
    for timed in (*chain.forward, *chain.backward):
        try:
            timed.bounds(rows, limits=Looks(1).limits)
        except LimitsOver:
            ended += 1
            assert timed.missing(rows)
        fresh = replace(timed, _rough=KnownRows(), _proven=KnownRows())
        found, expected = timed.bounds(rows), fresh.bounds(rows)
        np.testing.assert_array_equal(found.lower_s, expected.lower_s)
        np.testing.assert_array_equal(found.upper_s, expected.upper_s)
    assert ended


def test_a_table_of_plans_looks_between_plans_and_keeps_what_it_has_counted(task, small_space, monkeypatch):
    counted, in_flight = [], ChunkPlaces.in_flight

    def counting(self, *asked):
        counted.append(asked)
        return in_flight(self, *asked)

    monkeypatch.setattr(ChunkPlaces, "in_flight", counting)

    def table():
        evaluator = Evaluator(task, Candidates(small_space, Budgets()).survey())
        every = [evaluator.across(config, 16e9, 300e9) for config in evaluator.configs]
        return max(
            ((plans, tier) for plans in every for tier in range(len(plans.tiers))),
            key=lambda one: len(one[0].tiers[one[1]].sheet.plans),
        )

    (plans, tier), (alone, _) = table(), table()
    count = len(plans.tiers[tier].sheet.plans)
    assert count > 2
    with pytest.raises(LimitsOver):
        plans.columns(tier, Looks(count // 2).limits)
    begun = len(counted)
    assert begun > 0
    found = plans.columns(tier, Looks(count + 3).limits)
    again = len(counted) - begun
    counted.clear()
    expected = alone.columns(tier)
    assert begun + again == len(counted)
    np.testing.assert_array_equal(found.forms, expected.forms)


def test_pipelines_look_between_those_that_do_not_run_side_by_side():
    times = np.random.default_rng(5).uniform(1.0, 2.0, (40, 4))
    chunks = Chunks(times, 2 * times, np.zeros((40, 4)), 0.1 * times[:, :-1])
    looks = Looks()
    found = pipelines_s(Schedule.ONE_F_ONE_B, 8, 4, chunks, looks)
    assert looks.count == 3
    with pytest.raises(LimitsOver):
        pipelines_s(Schedule.ONE_F_ONE_B, 8, 4, chunks, Looks(1))
    np.testing.assert_array_equal(found, pipelines_s(Schedule.ONE_F_ONE_B, 8, 4, chunks))


def test_who_ends_a_search_before_its_first_design_waits_for_nothing(task, small_space, monkeypatch):
    clock = Clock(600.0)
    run = exploration.Exploration(
        ExploreRequest(task, small_space, Budgets(power_w=300.0)), SilentProgress(), clock
    )
    monkeypatch.setattr(CertifiedSearch, "_seed", lambda *_: clock.interrupt())
    bounded = []
    monkeypatch.setattr(CertifiedSearch, "_make_room", lambda *_: bounded.append(1))
    with pytest.raises(OutOfTimeError, match="interrupted before any answer was known"):
        run.search()
    assert len(bounded) <= 1
