"""A run's own record: what it was asked, and what it has evaluated so far, from which the same question is continued
and another one refused with a sentence.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from phaze.errors import InfeasibleError, InputError
from phaze.quantity import alike
from phaze.runs.store.evaluation_database import Database, GuardedStore, Tell
from phaze.runs.store.model_version import model_version


@dataclass(frozen=True)
class Question:
    """Values of the options under which alone a run goes on, by name, and SHA-256 of the files they name."""

    options: Mapping[str, object]
    inputs: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, object], inputs: Mapping[str, str]) -> Question:
        """The question in the form in which it is kept."""
        return cls.read(json.dumps({"options": dict(options), "inputs": dict(inputs)}, default=str))

    @classmethod
    def read(cls, text: str) -> Question:
        """The question of a text. Raises ValueError where it is none."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error

    @property
    def text(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self), sort_keys=True)

    def check(self, before: Question, folder: Path) -> None:
        """Raises InputError, naming the first difference, where another question was asked before."""
        for name in dict.fromkeys([*self.options, *before.options]):
            was, now = before.options.get(name), self.options.get(name)
            if not alike(was, now):
                raise InputError(
                    f"{folder} was begun {_option(name, was)}, and is to be continued {_option(name, now)}; "
                    "ask the same, or choose another --out"
                )
        for name, now in self.inputs.items():
            if before.inputs.get(name) != now:
                raise InputError(
                    f"the {name} file has changed since {folder} was begun; restore it, or choose another --out"
                )


def _option(name: str, value: object) -> str:
    """`with --power 400W`, `without --power`."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False or value == []:
        return f"without {option}"
    words = value if isinstance(value, list) else [] if value is True else [value]
    return " ".join(["with", option, *map(str, words)])


RECORD = "evaluations.sqlite"
"""File of a run directory, as long as the run is not complete."""
_QUESTION = "question"


@dataclass(frozen=True)
class RunRecord:
    """The record of a run; `store` is what searches are given."""

    store: GuardedStore

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
    store = GuardedStore(Database(folder / RECORD, model_version()), "the run's record", tell)
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


def _begin(store: GuardedStore, question: Question, folder: Path) -> None:
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


def _holds_something(store: GuardedStore) -> bool:
    try:
        return store.database.entries() > 0
    except (sqlite3.Error, OSError):
        return False
