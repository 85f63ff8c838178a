"""Executors: the same results whoever does the work, whoever dies meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers are given this path
from errands import Endless, Fragile, Powers

from phaze.errors import InfeasibleError, InputError, WorkerLostError
from phaze.runs.executors.open_executor import open_executor
from phaze.scheduling.effort import LimitsOver

NUMBERS = list(range(20))


@pytest.fixture(params=["here", "processes", "dask"])
def executor(request):
    """Every kind of executor."""
    options = {"here": (1, None), "processes": (2, None)}.get(request.param)
    address = None if options else request.getfixturevalue("cluster").address
    with open_executor(*(options or (1, address))) as opened:
        yield opened


def test_results_come_in_order_and_every_worker_unpacks_a_work_once(executor, tmp_path):
    log = tmp_path / "log"
    squares, cubes = Powers(2, log=str(log)), Powers(3)
    found = []
    for _ in range(3):
        found += executor.map(squares, NUMBERS)
        assert [value for value, _ in executor.map(cubes, NUMBERS)] == [n**3 for n in NUMBERS]
    assert [value for value, _ in found] == 3 * [n**2 for n in NUMBERS]
    unpacked = log.read_text().split() if log.exists() else []
    assert len(unpacked) == len(set(unpacked)) <= executor.workers
    assert executor.workers == 1 or {str(pid) for _, pid in found} <= set(unpacked)
    assert list(executor.map(squares, [])) == []


def test_what_a_piece_raises_is_raised_in_its_place(executor):
    results = executor.map(Powers(2), [1, -2, 3])
    assert next(results)[0] == 1
    with pytest.raises(InfeasibleError, match="-2 is negative") as caught:
        next(results)
    assert caught.value.shortfalls[0].levers == ("more",)
    assert [value for value, _ in executor.map(Powers(2), [4])] == [16]


def test_results_nobody_waits_for_do_no_harm(executor):
    results = executor.map(Powers(2), NUMBERS)
    assert next(results)[0] == 0
    del results
    assert [value for value, _ in executor.map(Powers(2), [5, 6])] == [25, 36]


@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_nobody_waits_for_a_piece_once_stopped(kind, request, tmp_path):
    """Ctrl-C while others are at a piece that takes ten minutes."""
    options = (2, None) if kind == "processes" else (1, request.getfixturevalue("doomed_cluster").address)
    begun = tmp_path / "begun"
    with open_executor(*options, begun.exists) as executor:
        found = executor.map(Endless(str(begun)), [0, 1, 2])
        with pytest.raises(LimitsOver):
            list(found)
    assert begun.exists()


def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path):
    with open_executor(2) as executor:
        work = Fragile(7, str(tmp_path / "seen"))
        assert list(executor.map(work, NUMBERS)) == [2 * n for n in NUMBERS]
        with pytest.raises(WorkerLostError, match=r"died \(exit code -9\), as did the one before"):
            list(executor.map(Fragile(3, work.file, always=True), NUMBERS))
        assert list(executor.map(work, NUMBERS)) == [2 * n for n in NUMBERS]


@pytest.mark.soak
def test_a_killed_worker_of_a_cluster_costs_nothing_but_time(doomed_cluster, tmp_path):
    with open_executor(1, doomed_cluster.address) as executor:
        list(executor.map(Powers(2), NUMBERS))
        work = Fragile(7, str(tmp_path / "seen"))
        assert list(executor.map(work, NUMBERS)) == [2 * n for n in NUMBERS]
        assert executor.workers == 1
        doomed_cluster.scheduler.kill()
        with pytest.raises(WorkerLostError, match=r"the Dask scheduler at dask://.* has gone.*--resume"):
            list(executor.map(work, NUMBERS))


def test_workers_of_another_version_are_refused_in_one_sentence(cluster, monkeypatch):
    with open_executor(1, cluster.address) as executor:
        ours = {"phaze-dse": "0.0.1", "python": "2.7"}
        monkeypatch.setattr("phaze.runs.executors.dask_cluster.code_versions", lambda: ours)
        with pytest.raises(
            InputError, match=r"phaze-dse is \S+ there, 0.0.1 here; python is \S+ there, 2.7 here"
        ):
            list(executor.map(Powers(2), NUMBERS))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((0, None), "--workers 0 must be at least 1"),
        ((2, "dask://127.0.0.1:8786"), "with --executor the cluster has its own"),
        ((1, "127.0.0.1:8786"), "write for example dask://scheduler:8786"),
        ((1, "dask://127.0.0.1"), "write for example dask://scheduler:8786"),
        ((1, "dask://127.0.0.1:99999"), "write for example dask://scheduler:8786"),
    ],
)
def test_options_that_make_no_executor(options, sentence):
    with pytest.raises(InputError, match=sentence), open_executor(*options):
        pass


def test_a_scheduler_that_does_not_answer(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("phaze.runs.executors.dask_cluster.CONNECT_S", 0.5)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at dask://127\.0\.0\.1:9"):
        open_executor(1, "dask://127.0.0.1:9").__enter__()


def test_a_missing_dask_is_told_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install '\.\[dask\]'"):
        open_executor(1, "dask://127.0.0.1:8786").__enter__()
