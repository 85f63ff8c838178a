"""The record of a study that several hosts share: each knows all trials, one at a time writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from phaze.explore.metrics import Metric
from phaze.explore.sampling.hosts.board import Board, held
from phaze.explore.sampling.hosts.shared import FIRST_PAUSE_S
from phaze.explore.sampling.identity import Identity
from phaze.explore.sampling.ordered import TakenError
from phaze.explore.sampling.record import PLAN, Place, Record, check_same, finished

_PEN = (0,)  # the one piece of work on the board of a study: to write to it


@dataclass
class SharedRecord(Record):
    """Told trials, of which those that no host has written yet are written batch by batch.

    Who holds the pen is agreed on a board. Should two hosts believe to hold it, the storage takes each trial once.
    """

    pen: Board
    _checked: int = 0

    @classmethod
    def join(
        cls, place: Place, storage: BaseStorage, objectives: Sequence[Metric], plan: Identity, pen: Board
    ) -> Self:
        """Open or create the study. Raises InputError where the storage holds one of another plan."""
        if _founded(storage, place.study):
            record = Record.open(place, storage, objectives, plan)
        else:
            with _alone(pen):  # lest two hosts found it with different plans
                record = Record.open(place, storage, objectives, plan)
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
            with held(self.pen, _PEN), suppress(TakenError):  # another one writes: as well
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
def _alone(pen: Board) -> Iterator[None]:
    """Hold the pen while the block runs."""
    while not pen.claim(_PEN, 1):
        time.sleep(FIRST_PAUSE_S)
    with held(pen, _PEN):
        yield
