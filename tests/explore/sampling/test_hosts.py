"""Hosts that share a study: the same as one host's, whichever of them die, whenever."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import signal
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import pytest
from postgres_server import PASSWORD
from small_cases import DECODER
from sweeps import Chips, ChipSweep, load, run, study

from phaze.errors import InputError
from phaze.explore.request.search_progress import SilentProgress
from phaze.explore.sampling import study_storage
from phaze.explore.sampling.claim_board import BoardView, DeadlyDesignError, SharedEvaluation, held_claims
from phaze.explore.sampling.database_board import DatabaseBoard
from phaze.explore.sampling.study_record import StudyPlace, StudyRecord
from phaze.explore.sampling.study_storage import StorageLostError, open_storage
from phaze.runs.executors.packed_work import packed
from phaze.workload.workload_loader import load_workload

LEASE_S = 1.0
TRIALS, BATCH = 16, 4  # TPE samples at random until there are ten


@dataclass
class Fate:
    """Lets one host die at its second evaluation, and another in the middle of writing a batch."""

    evaluating: Any
    writing: Any

    def strike(self, which, count):
        with which:  # no longer held by the one who dies, lest the others wait for ever
            first, which.value = count == 2 and which.value, which.value and count != 2
        if first:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class FatefulChips(Chips):
    """So slow that every host gets a share."""

    fate: Fate | None = None

    def do(self, number):
        row = super().do(number)
        self.fate.strike(self.fate.evaluating, len(self.asked))
        time.sleep(0.02)
        return row


@dataclass
class HostSweep(ChipSweep):
    fate: Fate | None = None

    @cached_property
    def assessor(self):
        return FatefulChips(self.plan.task, self._scope.grid, fate=self.fate)


def serve(plan, fate, together, answer):
    """A host's life."""
    written, parts = count(1), study_storage._parts

    def parts_and_perhaps_death(*trial):
        fate.strike(fate.writing, next(written))
        return parts(*trial)

    study_storage._parts = parts_and_perhaps_death  # within the transaction
    together.wait()
    answer.send(HostSweep(pickle.loads(plan), SilentProgress(), lease_s=LEASE_S, fate=fate).run())


def hosts(plan, number):
    """The answers of as many hosts at once; None of those that were killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_hosts"])
    fate, together = Fate(context.Value("b", True), context.Value("b", True)), context.Barrier(number)
    running = []
    for _ in range(number):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=serve, args=(packed(plan).content, fate, together, theirs))
        process.start()
        theirs.close()
        running.append((process, ours))
    return [_answer(*each) for each in running]


def _answer(process, pipe):
    try:
        assert pipe.poll(120), "a host hangs"
        return pipe.recv()
    except EOFError:
        process.join()
        assert process.exitcode == -signal.SIGKILL
        return None


def alone(make_sweep, trials):
    """The plan of a sweep by one host, run."""
    plan = make_sweep(trials, "alone", batch=BATCH)
    run(plan)
    return plan


def test_of_three_hosts_one_is_killed_evaluating_and_one_writing(make_sweep, database):
    alone = make_sweep(TRIALS, batch=BATCH)
    shared = make_sweep(TRIALS, batch=BATCH, place=StudyPlace(database, "shared"), join=True)
    expected, _ = run(alone)
    found = hosts(shared, 3)
    assert found.count(None) == 2
    assert found.count(expected) == 1
    assert study(shared) == study(alone)
    again, late = run(shared)
    assert again == expected
    assert late.assessor.asked == []


def board(database, **changes):
    return DatabaseBoard(open_storage(database).engine, "topic", **changes)


def test_a_piece_is_claimed_by_one_host_at_a_time(database):
    one, other = board(database), board(database)
    assert one.claim([3, 1, 2], 2) == [1, 3]
    assert other.claim([1, 2, 3], 3) == [2]
    assert one.look([1, 2, 3, 4]) == BoardView({}, {4: 0})
    one.answer(1, {"mfu": 0.1})
    one.release([1, 3])
    assert other.look([1, 2, 3, 4]) == BoardView({1: {"mfu": 0.1}}, {3: 0, 4: 0})
    assert other.claim([1, 3], 2) == [3]
    other.answer(1, {"mfu": 0.2})
    assert one.look([1]).answers == {1: {"mfu": 0.1}}
    assert DatabaseBoard(one.engine, "another").claim([1], 1) == [1]


def test_of_many_who_claim_at_once_each_piece_has_one(database):
    boards, start, won = [board(database) for _ in range(4)], threading.Barrier(4), []

    def claim(mine):
        start.wait()
        for number in range(8):
            won.extend(mine.claim([number], 1))

    threads = [threading.Thread(target=claim, args=(mine,)) for mine in boards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(8))


def test_a_claim_is_lost_where_nobody_renews_it_by_the_clock_of_the_database(database, monkeypatch):
    silent, other = board(database, lease_s=0.3), board(database)
    silent.claim([1], 1)
    monkeypatch.setattr(time, "time", lambda: 9e9)  # a host whose clock is centuries ahead
    assert other.look([1]).free == {}
    with held_claims(silent, [1]):
        time.sleep(0.6)
        assert other.claim([1], 1) == []
    silent.claim([2], 1)
    time.sleep(0.5)
    assert other.look([1, 2]).free == {1: 0, 2: 1}
    assert other.claim([2], 1) == [2]
    silent.release([2])  # too late: it is another's
    assert silent.claim([2], 1) == []


def test_two_writers_write_each_trial_once(make_sweep, database):
    alone, plan = make_sweep(4), make_sweep(4, place=StudyPlace(database, "raced"))
    run(alone)
    told = load(alone).get_trials()
    ours, theirs = (
        StudyRecord.open(plan.place, open_storage(database), plan.objectives, {"seed": 1}) for _ in range(2)
    )
    for trial in told[:3]:
        ours.add(trial)
    with pytest.raises(
        InputError, match=r"another process is writing to the study raced .* all of them --join"
    ):
        theirs.add(told[0])
    assert study(plan) == study(alone)[:3]


def test_a_design_that_kills_host_after_host_is_told(database):
    for _ in range(5):
        board(database, lease_s=-1.0).claim([7], 1)
    shared = SharedEvaluation(board(database), lambda _: iter(()), 1, lambda: False)
    with pytest.raises(DeadlyDesignError, match="5 hosts began to evaluate candidate 7"):
        list(shared.assess([7]))


def test_a_host_that_leaves_gives_up_its_claims(database):
    def evaluate(numbers):
        yield {"mfu": 0.5}
        raise KeyboardInterrupt

    leaving = SharedEvaluation(board(database), evaluate, 3, lambda: False)
    with pytest.raises(KeyboardInterrupt):
        list(leaving.assess([1, 2, 3]))
    view = board(database).look([1, 2, 3])
    assert (len(view.answers), len(view.free), set(view.free.values())) == (1, 2, {0})


def test_a_study_begun_by_others_is_refused_where_something_differs(make_sweep, database, tmp_path):
    here = {"place": StudyPlace(database, "shared"), "join": True}
    run(make_sweep(4, **here))
    with pytest.raises(InputError, match=r"was begun with another seed 1 \(here 2\)$"):
        run(make_sweep(4, seed=2, **here))
    with pytest.raises(InputError, match=r"batch 8 \(here 16\)$"):
        run(make_sweep(4, batch=16, **here))
    plan = make_sweep(4, **here)
    (tmp_path / "tiny.yaml").write_text(DECODER.replace("ffn_hidden: 2048", "ffn_hidden: 1024"))
    narrower = load_workload(str(tmp_path / "tiny.yaml"))
    with pytest.raises(InputError, match=r"another model \w+\.\.\. \(here"):
        run(dataclasses.replace(plan, task=dataclasses.replace(plan.task, workload=narrower)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phaze.explore.sampling.study_record.version", lambda name: "0.0.1")
        with pytest.raises(InputError, match=r"versions.numpy [\d.]+ \(here 0.0.1\)"):
            run(plan)
    assert run(plan)[0].trials == 4


def test_a_sweep_that_is_alone_leaves_a_shared_study_alone(make_sweep, database):
    plan = make_sweep(4, place=StudyPlace(database, "shared"), join=True, batch=BATCH)
    run(plan)
    with pytest.raises(InputError, match="holds 4 trials; add --resume to continue it, --join to do so"):
        run(dataclasses.replace(plan, join=False, resume=False, trials=6))
    assert run(dataclasses.replace(plan, join=False, trials=6))[0].trials == 6
    assert study(plan) == study(alone(make_sweep, 6))


def test_hosts_need_a_place_to_meet(make_sweep):
    with pytest.raises(InputError, match="--join needs a place that all hosts reach"):
        run(make_sweep(4, join=True))


def test_a_sweep_leaves_no_connection_open(make_sweep, postgres):
    place = StudyPlace(postgres.database(), "shared")
    sweep = ChipSweep(make_sweep(TRIALS, batch=BATCH, place=place, join=True), SilentProgress())
    sweep.run()
    assert postgres.connections() == 0


def test_a_database_that_goes_away_is_told_in_one_sentence_and_the_study_goes_on(make_sweep, postgres):
    plan = make_sweep(TRIALS, batch=BATCH, place=StudyPlace(postgres.database(), "shared"), join=True)
    asked = count()

    def stop():
        if next(asked) == 10:
            postgres.stop()
        return False

    with pytest.raises(StorageLostError, match=r"no longer answers: .*; finished trials are kept") as caught:
        run(plan, stop=stop)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    with pytest.raises(InputError, match="cannot be opened") as caught:
        run(plan)
    assert PASSWORD not in str(caught.value)
    postgres.start()
    with pytest.raises(InputError, match=r"cannot be opened: .*password authentication failed") as caught:
        run(
            dataclasses.replace(
                plan, place=StudyPlace(plan.place.storage.replace(PASSWORD, "wrong-one"), "shared")
            )
        )
    assert "wrong-one" not in str(caught.value)
    run(plan)
    assert study(plan) == study(alone(make_sweep, TRIALS))
