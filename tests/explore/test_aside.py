"""Work in a copy of the process: the same result, the same errors."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing import active_children, get_all_start_methods

import pytest

from phaze.explore.aside import aside


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="processes cannot be copied here")
def test_the_result_comes_from_a_copy_that_is_gone_afterwards():
    with aside(lambda: (os.getpid(), 6 * 7)) as result:
        worker, number = result()
    assert number == 42
    assert worker != os.getpid()
    assert worker not in {child.pid for child in active_children()}


def test_work_that_fails_raises_here():
    with aside(lambda: 1 / 0) as result, pytest.raises(ZeroDivisionError):
        result()


@pytest.mark.skipif("fork" not in get_all_start_methods(), reason="processes cannot be copied here")
def test_a_copy_that_nobody_asks_ends_with_the_block():
    def fail() -> None:
        with aside(lambda: time.sleep(60)):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not active_children()


def test_without_copies_the_work_is_done_here(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with aside(os.getpid) as result:
        assert result() == os.getpid()
