"""The same answer, bit for bit, whoever works it out."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from phaze.explore.answers.main_job import explore
from phaze.explore.certified import certified_search, search_points
from phaze.explore.certified import search_pieces as ground_module
from phaze.explore.certified.search_pieces import BatchPiece, Looked, SearchContext
from phaze.explore.evaluation import evaluation_oracle
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, ClockShare, SilentProgress
from phaze.explore.request.search_resources import SearchResources
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.explore.strategies.strategy_registry import strategy
from phaze.runs.executors.packed_work import packed
from phaze.scheduling.effort import Patience
from phaze.scheduling.passes import SolveLimits


class Elsewhere:
    """Workers that are copies in this process: what a piece leaves behind in one does not reach the next."""

    def __init__(self, workers):
        self.workers = workers
        self.pieces = 0

    def map(self, work, pieces):
        content = packed(work).content
        copies = [pickle.loads(content) for _ in range(self.workers)]
        for i, piece in enumerate(pieces):
            self.pieces += 1
            yield copies[i % self.workers].do(pickle.loads(pickle.dumps(piece)))


@pytest.fixture(autouse=True)
def everything_is_worth_a_worker(monkeypatch):
    monkeypatch.setattr(ground_module, "LEAST", 4)
    monkeypatch.setattr(search_points, "LEAST", 4)
    monkeypatch.setattr(evaluation_oracle, "LEAST", 2)
    monkeypatch.setattr(certified_search, "WAVE", 2)


@pytest.fixture(scope="module")
def request_(tiny, network, small_space):
    task = Task(tiny, 16, network, held={"microbatches": (2,)})
    return ExploreRequest(task, small_space, Budgets(power_w=300.0), time_limit_s=1e6)


def told(answer):
    """The document without times and versions, and the designs."""
    document = answer.document.model_dump(mode="json", exclude={"manifest"})
    return document, {name: column.tolist() for name, column in answer.designs.items()}


def test_workers_change_no_answer(request_, monkeypatch):
    # Blocks so small that there are several waves.
    options = certified_search.CertifiedSearch.__init__.__kwdefaults__
    monkeypatch.setattr(certified_search.CertifiedSearch.__init__, "__kwdefaults__", {**options, "block": 24})
    alone = told(explore(request_))
    for workers in (2, 3):
        executor = Elsewhere(workers)
        assert told(explore(request_, resources=SearchResources(executor))) == alone
        assert executor.pieces >= 6


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_workers_change_no_history(request_, tiny, network, name):
    tasks = [request_.task, Task(tiny, 8, network, 8, held={"microbatches": (2,)})]
    candidates = Candidates(request_.space, request_.budgets)

    def history(means):
        asked = evaluation_oracle.Oracle(
            candidates, tasks, lambda t, tdp_w, area: t.sum(axis=0), Clock(1e6), means
        )
        report = strategy(name).run(asked, SearchBudget(14), 3, SilentProgress())
        return [replace(evaluation, seconds=0.0) for evaluation in asked.history], report.best_value

    alone, executor = history(SearchResources()), Elsewhere(3)
    assert history(SearchResources(executor)) == alone
    assert executor.pieces >= 3


@pytest.mark.parametrize("effort", [None, SolveLimits(lambda: np.inf, 500)])
def test_points_of_a_batch_do_not_depend_on_each_other(request_, effort):
    candidates = Candidates(request_.space, request_.budgets)
    numbers = candidates.all().numbers
    random, axes = np.random.default_rng(0), SearchAxes((metric("throughput"), metric("tdp")))
    for setting in range(0, len(SearchContext(candidates, request_.task, axes).evaluator.configs), 9):
        fresh = SearchContext(candidates, request_.task, axes)
        free = np.zeros(len(numbers))
        whole = BatchPiece(numbers, setting, free, effort).on(fresh)
        # What some of them cannot reach is no matter to the others.
        least = np.where(random.random(len(numbers)) < 0.5, free, whole.lead * (1 + 1e-9))
        batch = BatchPiece(numbers, setting, least, effort)
        together = batch.on(fresh)
        at, parts = zip(*batch.divided(3), strict=True)
        apart = [part.on(SearchContext(candidates, request_.task, axes)) for part in parts]
        joined = Looked.join(list(zip(at, apart, strict=True)))
        kept = least == 0
        for name in ("lead", "value", "met", "others"):
            assert getattr(joined, name).tolist() == getattr(together, name).tolist()
            assert getattr(joined, name)[kept].tolist() == getattr(whole, name)[kept].tolist()
    assert (whole.lead > 0).any()


def test_bounds_that_a_limit_cuts_short_hold(request_):
    """Whatever number of passes was looked at before: nothing promises less, or is reached more, than in the end."""
    candidates, axes = Candidates(request_.space, request_.budgets), SearchAxes((metric("throughput"),))
    numbers, cut_short = candidates.all().numbers, 0
    free = np.zeros(len(numbers))
    whole = BatchPiece(numbers, 0, free).on(SearchContext(candidates, request_.task, axes))
    for looks, first in product(range(0, 12, 2), (False, True)):
        left = iter([1.0] * looks)
        tightens = SolveLimits(lambda left=left: next(left, 0.0))
        patience = Patience(tightens, SolveLimits(lambda: np.inf) if first else tightens)
        cut = BatchPiece(numbers, 0, free, patience=patience).on(
            SearchContext(candidates, request_.task, axes)
        )
        assert (cut.value > 0).any() or not first
        assert (cut.lead >= whole.lead * (1 - 1e-12)).all()
        assert (cut.value <= whole.value * (1 + 1e-12)).all()
        assert not (cut.met & ~whole.met).any()
        cut_short += bool((cut.value < whole.value).any())
    assert cut_short


def test_the_first_answer_is_waited_for_unless_somebody_interrupts():
    whole = Clock(0.0)
    share = ClockShare(0.0, whole=whole)
    assert whole.left() == share.left() == 0.0
    assert whole.patience() == share.patience() == np.inf
    whole.interrupt()
    assert whole.patience() == share.patience() == 0.0


def test_a_clock_shows_in_another_process_what_is_left():
    clock = Clock(50.0)
    clock.started -= 20.0
    there = pickle.loads(pickle.dumps(clock))
    assert 29.0 < there.left() <= 30.0
    assert not there.half_over
    clock.started -= 10.0
    assert pickle.loads(pickle.dumps(clock)).half_over
    assert pickle.loads(pickle.dumps(Clock(math.inf))).left() == math.inf
    clock.interrupt()
    assert pickle.loads(pickle.dumps(clock)).over
    assert pickle.loads(pickle.dumps(SolveLimits(clock.left))).left_s() == 0.0
