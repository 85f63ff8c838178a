"""Configs dealt between two processes: the answer is that of one, to the last bit, whatever becomes of the other."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children, get_all_start_methods

import numpy as np
import pytest

from phaze.explore.answers import exploration, exploration_search
from phaze.explore.answers.main_job import explore
from phaze.explore.certified import certified_search, dealt_configs
from phaze.explore.certified.dealt_configs import AheadPiece, ConfigsPiece, DealtConfigs, dealt
from phaze.explore.certified.search_pieces import BatchPiece, SearchContext
from phaze.explore.certified.search_state import PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.partner_process import PartnerProcess, partner_process
from phaze.explore.request.search_progress import Clock
from phaze.parallel.plan_batches.plan_table import PlanTable

pytestmark = pytest.mark.skipif(
    "fork" not in get_all_start_methods(), reason="processes cannot be copied here"
)
AXES = SearchAxes((metric("throughput"), metric("tdp")))


@pytest.fixture(scope="module")
def request_(tiny, network, small_space):
    task = Task(tiny, 16, network, held={"microbatches": (1, 2)})
    return ExploreRequest(task, small_space, Budgets(power_w=300.0), time_limit_s=1e6)


@pytest.fixture
def asked(monkeypatch):
    """A partner whatever the space; counts what it is asked for."""
    monkeypatch.setattr(exploration_search, "WORTH_PARTNER", 0)
    monkeypatch.setattr(exploration_search, "may_work_beside", lambda: True)
    # Blocks so small that there are several waves.
    options = certified_search.CertifiedSearch.__init__.__kwdefaults__
    monkeypatch.setattr(certified_search.CertifiedSearch.__init__, "__kwdefaults__", {**options, "block": 24})
    counts, ask = Counter(), PartnerProcess.ask

    def counted(self, piece):
        counts[type(piece).__name__] += 1
        ask(self, piece)

    monkeypatch.setattr(PartnerProcess, "ask", counted)
    return counts


def told(answer):
    """The document without times and versions, and the designs."""
    document = answer.document.model_dump(mode="json", exclude={"manifest"})
    return document, {name: column.tolist() for name, column in answer.designs.items()}


def alone(request_, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(exploration_search, "may_work_beside", lambda: False)
        return told(explore(request_))


def test_a_partner_changes_no_answer(request_, asked, monkeypatch):
    expected = alone(request_, monkeypatch)
    assert not asked
    assert told(explore(request_)) == expected
    assert asked["ConfigsPiece"] > 2
    assert asked["AheadPiece"] > 0
    assert asked["ToldPiece"] == 1
    assert not active_children()


def test_batches_of_one_process_are_divided_and_the_answer_stays(request_, asked, monkeypatch):
    """Where one has nothing to do; what either reaches is told by the one that knows its plan."""
    expected = alone(request_, monkeypatch)
    monkeypatch.setattr(dealt_configs, "WORTH_PART", 1)
    parts, divided = [], BatchPiece.take

    def counted(self, at):
        parts.append((len(at), len(self.numbers)))
        return divided(self, at)

    monkeypatch.setattr(BatchPiece, "take", counted)
    assert told(explore(request_)) == expected
    assert any(0 < some < every for some, every in parts)


def test_an_architecture_is_always_for_the_same_process(request_, asked):
    """Whatever batch it is in, and with whatever memory; about half of them are for each."""
    space = replace(request_.space, hbm_capacities_bytes=(16e9, 32e9))
    context = SearchContext(Candidates(space, request_.budgets), request_.task, AXES)
    configs = DealtConfigs(context, None, dealt(context.evaluator.configs))
    numbers = np.arange(context.candidates.size)
    every = configs._for_partner(numbers)
    assert 0.4 < every.mean() < 0.6
    assert (every[::2] == every[1::2]).all()
    assert (configs._for_partner(numbers[::3]) == every[::3]).all()


def test_what_plans_there_are_is_known_before_the_copy_is_made(request_, asked, monkeypatch):
    """So that no two processes lay them out: many are alike though their configs are dealt."""
    laid_out, lay_out = [], PlanTable.of

    def counted(options, link_bytes_per_s):
        laid_out.append(options)
        return lay_out(options, link_bytes_per_s)

    def copied(do, clock):
        assert len(laid_out) == len(do.__self__.evaluator.configs) > 2
        return partner_process(do, clock)

    monkeypatch.setattr(PlanTable, "of", counted)
    monkeypatch.setattr(exploration_search, "partner_process", copied)
    explore(request_)
    assert len(laid_out) == len(set(map(id, laid_out)))


@pytest.mark.parametrize("after", [0, 3, 12])
def test_a_partner_that_dies_changes_no_answer(request_, asked, monkeypatch, after):
    expected = alone(request_, monkeypatch)
    answer, pieces = PartnerProcess.answer, []

    def dying(self):
        pieces.append(self)
        if len(pieces) == after + 1:
            os.kill(self._process_id, signal.SIGKILL)
        return answer(self)

    monkeypatch.setattr(PartnerProcess, "answer", dying)
    assert told(explore(request_)) == expected
    assert len(pieces) > after


@pytest.mark.parametrize("side", [False, True])
def test_batches_whose_turn_never_came_change_no_answer(request_, asked, monkeypatch, side):
    """Time runs out, or all of their points fall, after the partner was asked for them."""
    expected, search = alone(request_, monkeypatch), exploration.Exploration.search

    def asked_for_more(self):
        outcome, dealt_ = search(self), self._dealt
        numbers = self.candidates.all().numbers[:3]
        for config in np.flatnonzero(dealt_.away)[:2].tolist():
            piece = BatchPiece(numbers, config, np.zeros(len(numbers)))
            dealt_._asked.append(piece)
            dealt_.partner.ask(AheadPiece(piece))
        return outcome

    monkeypatch.setattr(exploration.Exploration, "search", asked_for_more)
    monkeypatch.setattr(exploration_search, "dealt", lambda configs: dealt(configs) ^ side)
    assert told(explore(request_)) == expected
    assert asked["ToldPiece"] == 1


def test_parts_of_a_block_are_the_block(request_):
    context = SearchContext(Candidates(request_.space, request_.budgets), request_.task, AXES)
    block, every = context.candidates.all(), range(len(context.evaluator.configs))
    relevance, some = Relevance(AXES.archive()), np.arange(len(block))[::7]
    hoped = BatchPiece(block.numbers[some], 0, np.zeros(len(some))).on(context)
    for others, lead, number in zip(hoped.others, hoped.lead, block.numbers[some], strict=True):
        relevance.known.add(tuple(others.tolist()), float(lead) * 0.9, (0.0, int(number)))
    screen = context.screen(relevance, Clock(1e6))
    taken = screen.run(block, PointPool.empty(1)).pool
    taken = taken.take(np.arange(0, len(taken), 5))
    assert len(taken)
    whole = screen.run(block, taken)
    away = dealt(context.evaluator.configs)
    assert 0 < away.sum() < len(away)
    parts = [screen.run(block, taken, np.flatnonzero(away == side).tolist()) for side in (False, True)]
    assert +(parts[0].fallen + parts[1].fallen) == +whole.fallen
    assert whole.fallen.total() + len(whole.pool) + len(taken) == len(block) * len(every)
    points = [
        {(n, k): b for n, k, b in zip(p.number.tolist(), p.config.tolist(), p.bound.tolist(), strict=True)}
        for p in (whole.pool, parts[0].pool, parts[1].pool)
    ]
    assert points[0] == points[1] | points[2]


def test_what_was_looked_at_before_its_turn_is_what_it_would_be_then(request_):
    candidates = Candidates(request_.space, request_.budgets)
    numbers, random = candidates.all().numbers, np.random.default_rng(0)
    contexts = [SearchContext(candidates, request_.task, AXES) for _ in range(2)]
    cut = 0
    for config in range(0, len(contexts[0].evaluator.configs), 5):
        free = np.zeros(len(numbers))
        lead = BatchPiece(numbers, config, free).on(contexts[0]).lead
        before = np.where(random.random(len(numbers)) < 0.5, free, lead * 0.97)
        then = np.maximum(before, lead * random.uniform(0.9, 1.1, len(numbers)))
        some = np.sort(random.choice(len(numbers), len(numbers) // 2, replace=False))
        piece = BatchPiece(numbers[some], config, then[some])
        found, judged_s = BatchPiece(numbers, config, before).judged(contexts[0])
        limit_s = piece.give_up_s(contexts[0])
        ahead, now = found.take(some).given_up(judged_s[some] >= limit_s), piece.on(contexts[1])
        for name in ("lead", "value", "met"):
            assert getattr(ahead, name).tolist() == getattr(now, name).tolist()
        assert ahead.reached[1].tolist() == now.reached[1].tolist()
        kept = now.lead > 0
        assert ahead.others[kept].tolist() == now.others[kept].tolist()
        cut += int((found.lead[some] > ahead.lead).sum())
    assert cut


# -- the process ------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_in_which_pieces_are_asked_for():
    with partner_process(lambda piece: (piece, os.getpid()), Clock(1e6)) as partner:
        large = np.arange(1 << 20)  # more than a pipe holds, both ways
        for number in range(4):
            partner.ask((number, large))
        found = [partner.answer() for _ in range(4)]
        assert not len(partner)
    assert [piece[0] for piece, _ in found] == [0, 1, 2, 3]
    assert {process for _, process in found} != {os.getpid()}
    assert len({process for _, process in found}) == 1
    assert not active_children()


def test_what_a_piece_raises_is_raised_here():
    with partner_process(lambda piece: 1 / piece, Clock(1e6)) as partner:
        for piece in (2, 0, 4):
            partner.ask(piece)
        assert partner.answer() == 0.5
        with pytest.raises(ZeroDivisionError):
            partner.answer()
        assert partner.answer() == 0.25  # worked out here


def test_an_interrupt_reaches_what_the_partner_is_at():
    clock = Clock(1e6)

    def until_over(asked):
        while not asked.over:
            time.sleep(0.01)
        return "over"

    with partner_process(until_over, clock) as partner:
        partner.ask(clock)
        clock.interrupt()
        assert partner.answer() == "over"


@contextmanager
def here(context):
    """A partner in this process, with an evaluator of its own; what it is asked for before its turn is kept."""

    class Here:
        def __init__(self):
            self.pieces, self.done = [], []

        def ask(self, piece):
            self.pieces.append(piece)
            self.done.append(type(piece))

        def answer(self):
            return self.pieces.pop(0).on(context)

    yield Here()


def test_a_batch_that_was_looked_at_ahead_is_not_looked_at_again(request_, monkeypatch):
    candidates = Candidates(request_.space, request_.budgets)
    numbers, context = candidates.all().numbers, SearchContext(candidates, request_.task, AXES)
    away = dealt(context.evaluator.configs)
    ours, theirs = int(np.flatnonzero(~away)[0]), int(np.flatnonzero(away)[0])
    looks, judged = Counter(), BatchPiece.judged

    def counted(self, context):
        looks[self.config] += 1
        return judged(self, context)

    monkeypatch.setattr(BatchPiece, "judged", counted)

    def choose(which):
        count = len(numbers) if which[theirs] else 0
        config, stage = np.full(count, theirs, dtype=np.int16), np.zeros(count, dtype=np.int8)
        return PointPool(
            numbers[:count], config, np.zeros((count, 1)), np.zeros(count), np.ones(count), stage
        )

    def batch_of(points):
        return BatchPiece(points.number, int(points.config[0]), np.zeros(len(points)))

    with here(SearchContext(candidates, request_.task, AXES)) as partner:
        two = DealtConfigs(context, partner, away)
        two.look(BatchPiece(numbers, ours, np.zeros(len(numbers))), choose, batch_of)
        assert partner.done == [AheadPiece]
        some = numbers[::3]
        found = two.look(BatchPiece(some, theirs, np.zeros(len(some))), None, batch_of)
        assert partner.done == [AheadPiece]
        assert looks == {ours: 1, theirs: 1}
        expected = BatchPiece(some, theirs, np.zeros(len(some))).on(context)
        assert found.lead.tolist() == expected.lead.tolist()
        two.screened([candidates.all()], Relevance(AXES.archive()), PointPool.empty(1), Clock(1e6))
        assert partner.done == [AheadPiece, ConfigsPiece]
