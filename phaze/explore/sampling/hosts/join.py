"""Joining a study: its record and its evaluations, each with the board that the hosts share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from optuna.storages import BaseStorage, RDBStorage

from phaze.errors import InputError
from phaze.explore.metrics import Metric
from phaze.explore.sampling.assessor import Row
from phaze.explore.sampling.hosts.board import LEASE_S, Board
from phaze.explore.sampling.hosts.database import DatabaseBoard
from phaze.explore.sampling.hosts.record import SharedRecord
from phaze.explore.sampling.hosts.shared import Shared
from phaze.explore.sampling.identity import Identity, digest
from phaze.explore.sampling.record import Place
from phaze.explore.sampling.storage import opening


@dataclass(frozen=True)
class Meeting:
    """Where hosts meet: the storage of a study. Raises InputError where it is of a kind that they cannot share."""

    place: Place
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
    ) -> Shared:
        """Evaluations that depend on `of`, shared by all studies in this storage."""
        return Shared(self._board(of), evaluate, workers, stop)

    def _board(self, topic: Identity) -> Board:
        if not isinstance(self.storage, RDBStorage):
            raise InputError(
                "--join needs a place that all hosts reach: --storage postgresql://... or sqlite:///FILE"
            )
        with opening(str(self.place)):
            return DatabaseBoard(self.storage.engine, digest(topic), self.lease_s)
