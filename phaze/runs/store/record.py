"""A run's own record: what it has evaluated so far, in its run directory, from which `--resume` continues."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from phaze.errors import InfeasibleError
from phaze.runs.store.database import Database
from phaze.runs.store.guarded import Guarded, Tell
from phaze.runs.store.question import Question
from phaze.runs.store.version import model_version

RECORD = "evaluations.sqlite"
"""File of a run directory, as long as the run is not complete."""
_QUESTION = "question"


@dataclass(frozen=True)
class RunRecord:
    """The record of a run; `store` is what searches are given."""

    store: Guarded

    def remove(self) -> None:
        """Nothing is left to continue."""
        database = self.store.database
        self.store.failed = True  # what comes later is not kept
        database.close()
        for name in (database.path.name, f"{database.path.name}-journal"):
            database.path.with_name(name).unlink(missing_ok=True)


@contextmanager
def run_record(folder: Path, question: Question, tell: Tell | None = None) -> Iterator[RunRecord]:
    """Open the record of a run, new or to be continued.

    It stays until it is removed, but not after an error if it holds nothing, or the question has no answer.

    Raises InputError where the run to be continued was asked something else. A record that cannot be used is left
    out, with a sentence to `tell`.
    """
    store = Guarded(Database(folder / RECORD, model_version()), "the run's record", tell)
    record = RunRecord(store)
    _begin(store, question, folder)
    try:
        yield record
    except BaseException as error:
        if isinstance(error, InfeasibleError) or not _holds_something(store):
            record.remove()
        raise
    finally:
        store.database.close()


def _begin(store: Guarded, question: Question, folder: Path) -> None:
    """Write the question down, or compare it with that of the run to be continued."""
    try:
        before = store.database.note(_QUESTION)
        if before is None:
            store.database.write_note(_QUESTION, question.text)
            return
        asked = Question.read(before)
    except (sqlite3.Error, OSError, ValueError) as error:
        store.fail(error)
        return
    question.check(asked, folder)


def _holds_something(store: Guarded) -> bool:
    try:
        return store.database.entries() > 0
    except (sqlite3.Error, OSError):
        return False
