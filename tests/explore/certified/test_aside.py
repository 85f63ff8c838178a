"""Work in a copy of the process: the same result, the same errors, and no longer than there is time."""

from __future__ import annotations

import multiprocessing
import os
import time
from math import inf
from multiprocessing import active_children, get_all_start_methods

import pytest

from phaze.explore.request.search_progress import Clock, ReportingClock
from phaze.explore.request.search_resources import run_in_fork

copies = pytest.mark.skipif("fork" not in get_all_start_methods(), reason="processes cannot be copied here")


def first_and(then):
    """A result, and another one that `then` comes to."""
    yield "first"
    yield then()


@copies
def test_the_last_result_comes_from_a_copy_that_is_gone_afterwards():
    with run_in_fork(lambda: first_and(os.getpid)) as result:
        worker = result()
    assert worker != os.getpid()
    assert worker not in {child.pid for child in active_children()}


def test_work_that_fails_raises_here():
    with run_in_fork(lambda: first_and(lambda: 1 / 0)) as result, pytest.raises(ZeroDivisionError):
        result()


@copies
def test_a_copy_that_nobody_asks_ends_with_the_block():
    def fail() -> None:
        with run_in_fork(lambda: first_and(lambda: time.sleep(60))):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not active_children()


@copies
def test_what_there_is_counts_when_time_is_over():
    with run_in_fork(lambda: first_and(lambda: time.sleep(60)), lambda: 0.0) as result:
        assert result() == "first"
    assert not active_children()


def test_without_copies_the_work_is_done_here(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with run_in_fork(lambda: first_and(os.getpid)) as result:
        assert result() == os.getpid()
    with run_in_fork(lambda: first_and(os.getpid), lambda: 0.0) as result:
        assert result() == "first"
    with run_in_fork(lambda: []) as result:
        assert result() is None


def test_reports_have_what_a_clock_has_left_and_a_small_share_more():
    assert ReportingClock(Clock(inf)).left() == inf
    assert ReportingClock(Clock(0.0)).left() == pytest.approx(1.0, abs=0.5)
    assert ReportingClock(Clock(60.0, started=time.monotonic() - 60.0)).left() == pytest.approx(6.0, abs=1.0)
    assert ReportingClock(Clock(60.0, started=time.monotonic() - 66.0)).left() == 0.0
    early = ReportingClock(Clock(600.0))
    early.clock.interrupt()
    assert 0.0 < early.left() <= 1.0


@copies
@pytest.mark.parametrize(("give_way_s", "gives_way"), [(0.02, True), (0.0, False)])
def test_a_copy_that_gives_way_lets_others_go_first_once_it_has_worked_so_long(give_way_s, gives_way):
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def nicer() -> bool:
        while os.getpriority(os.PRIO_PROCESS, 0) == before and time.process_time() < 5.0 * give_way_s + 0.2:
            pass
        return os.getpriority(os.PRIO_PROCESS, 0) > before

    with run_in_fork(lambda: iter([nicer()]), give_way_s=give_way_s) as result:
        assert result() is gives_way
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
