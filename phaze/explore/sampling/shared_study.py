"""A study that several hosts share: its record, of which one at a time writes, and its evaluations, on a board that all
of them see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial

from phaze.digest import json_sha256
from phaze.errors import InputError
from phaze.explore.request.design_metrics import Metric
from phaze.explore.sampling.claim_board import (
    FIRST_PAUSE_S,
    LEASE_S,
    ClaimBoard,
    SharedEvaluation,
    held_claims,
)
from phaze.explore.sampling.database_board import DatabaseBoard
from phaze.explore.sampling.design_assessor import Row
from phaze.explore.sampling.study_record import (
    PLAN,
    Identity,
    StudyPlace,
    StudyRecord,
    check_same,
    finished,
)
from phaze.explore.sampling.study_storage import TakenError, opening

_PEN = (0,)  # the one piece of work on the board of a study: to write to it


@dataclass
class SharedRecord(StudyRecord):
    """Told trials, of which those that no host has written yet are written batch by batch.

    Who holds the pen is agreed on a board. Should two hosts believe to hold it, the storage takes each trial once.
    """

    pen: ClaimBoard
    _checked: int = 0

    @classmethod
    def join(
        cls,
        place: StudyPlace,
        storage: BaseStorage,
        objectives: Sequence[Metric],
        plan: Identity,
        pen: ClaimBoard,
    ) -> Self:
        """Open or create the study. Raises InputError where the storage holds one of another plan."""
        if _founded(storage, place.study):
            record = StudyRecord.open(place, storage, objectives, plan)
        else:
            with _alone(pen):  # lest two hosts found it with different plans
                record = StudyRecord.open(place, storage, objectives, plan)
        return cls(place, storage, record.study, list(record.trials), pen)

    def add(self, trial: FrozenTrial) -> None:
        """Remember a finished trial. Raises InputError where what is there differs."""
        if trial.number < len(self.trials):
            check_same(self.place, self.trials[trial.number], trial)
        else:
            self.trials.append(trial)

    def flush(self, *, last: bool = False) -> None:
        """Write what is not written yet, unless another host does; `last`: and wait until it has.

        Raises InputError where another host has written something else.
        """
        self._write_rest()
        while last and self._written() < len(self.trials):
            time.sleep(FIRST_PAUSE_S)
            self._write_rest()

    def _write_rest(self) -> None:
        if self.pen.claim(_PEN, 1):
            with held_claims(self.pen, _PEN), suppress(TakenError):  # another one writes: as well
                if rest := self.trials[self._written() :]:
                    self._write(rest)

    def _written(self) -> int:
        """How many trials are there; they are the same as here."""
        there = finished(self.study, self.place)
        for theirs, ours in zip(there[self._checked :], self.trials[self._checked :], strict=False):
            check_same(self.place, theirs, ours)
        self._checked = min(len(there), len(self.trials))
        return len(there)


def _founded(storage: BaseStorage, study: str) -> bool:
    try:
        return PLAN in storage.get_study_user_attrs(storage.get_study_id_from_name(study))
    except KeyError:
        return False


@contextmanager
def _alone(pen: ClaimBoard) -> Iterator[None]:
    """Hold the pen while the block runs."""
    while not pen.claim(_PEN, 1):
        time.sleep(FIRST_PAUSE_S)
    with held_claims(pen, _PEN):
        yield


@dataclass(frozen=True)
class StudyMeeting:
    """Where hosts meet: the storage of a study. Raises InputError where it is of a kind that they cannot share."""

    place: StudyPlace
    storage: BaseStorage
    lease_s: float = LEASE_S

    def record(self, objectives: Sequence[Metric], plan: Identity) -> SharedRecord:
        """The trials of the study. Raises InputError where it is there and of another plan."""
        pen = self._board({"study": self.place.study})
        return SharedRecord.join(self.place, self.storage, objectives, plan, pen)

    def evaluations(
        self,
        of: Identity,
        evaluate: Callable[[Sequence[int]], Iterator[Row]],
        workers: int,
        stop: Callable[[], bool],
    ) -> SharedEvaluation:
        """Evaluations that depend on `of`, shared by all studies in this storage."""
        return SharedEvaluation(self._board(of), evaluate, workers, stop)

    def _board(self, topic: Identity) -> ClaimBoard:
        if not isinstance(self.storage, RDBStorage):
            raise InputError(
                "--join needs a place that all hosts reach: --storage postgresql://... or sqlite:///FILE"
            )
        with opening(str(self.place)):
            return DatabaseBoard(self.storage.engine, json_sha256(topic), self.lease_s)
