"""Work in a copy of the process: the same result, the same errors."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import active_children, get_all_start_methods

import pytest

from phaze.explore.aside import aside


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="processes cannot be copied here")
def test_the_result_comes_from_a_copy_that_is_gone_afterwards():
    worker, number = aside(lambda: (os.getpid(), 6 * 7))()
    assert number == 42
    assert worker != os.getpid()
    assert worker not in {child.pid for child in active_children()}


def test_work_that_fails_raises_here():
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 / 0)()


def test_without_copies_the_work_is_done_here(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert aside(os.getpid)() == os.getpid()
