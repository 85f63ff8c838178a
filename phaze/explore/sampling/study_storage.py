"""The Optuna storage behind a study: a journal file, a database by URL, or this process's memory. Finished trials are
written to a database together and in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

from optuna.distributions import distribution_to_json
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from sqlalchemy import func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session

from phaze.errors import InputError, PhazeError


class TakenError(Exception):
    """Somebody else has written a trial of the same number."""


class OrderedStorage(RDBStorage):
    """A database that takes finished trials under the numbers they have, or not at all.

    Both are decided in the transaction that writes them, so that no two processes can write the same trial twice.
    """

    def add_trials(self, study: str, trials: Sequence[FrozenTrial]) -> None:
        """Write finished trials, the numbers of which follow on each other: all of them, or none.

        Into Optuna's tables, in a handful of statements for any number of trials; its own way, one trial at a time,
        takes sixty for each. Raises TakenError where the first number is not the next one.
        """
        number = self.get_study_id_from_name(study)
        with Session(self.engine) as session, session.begin():
            models.StudyModel.find_or_raise_by_id(number, session, for_update=True)  # one at a time
            rows = [_row(number, trial) for trial in trials]
            session.add_all(rows)
            session.flush()  # SQLite, which locks no rows, is locked as a whole from here on
            if _count_before(rows, session) != trials[0].number:
                raise TakenError
            session.add_all(
                part for row, trial in zip(rows, trials, strict=True) for part in _parts(row, trial)
            )


def _count_before(rows: Sequence[models.TrialModel], session: Session) -> int:
    """Trials of the study that were there before some rows."""
    trial = models.TrialModel
    earlier = trial.study_id == rows[0].study_id, trial.trial_id < min(row.trial_id for row in rows)
    return session.scalar(select(func.count(trial.trial_id)).where(*earlier)) or 0


def _row(study: int, trial: FrozenTrial) -> models.TrialModel:
    return models.TrialModel(
        study_id=study,
        number=trial.number,
        state=trial.state,
        datetime_start=trial.datetime_start,
        datetime_complete=trial.datetime_complete,
    )


def _parts(row: models.TrialModel, trial: FrozenTrial) -> Iterator[Any]:
    """The rows of a trial in the other tables."""
    owner = {"trial_id": row.trial_id}
    for objective, value in enumerate(trial.values or ()):
        stored, kind = models.TrialValueModel.value_to_stored_repr(value)
        yield models.TrialValueModel(**owner, objective=objective, value=stored, value_type=kind)
    for name, distribution in trial.distributions.items():
        yield models.TrialParamModel(
            **owner,
            param_name=name,
            param_value=distribution.to_internal_repr(trial.params[name]),
            distribution_json=distribution_to_json(distribution),
        )
    for key, value in trial.user_attrs.items():
        yield models.TrialUserAttributeModel(**owner, key=key, value_json=json.dumps(value))
    for key, value in trial.system_attrs.items():
        yield models.TrialSystemAttributeModel(**owner, key=key, value_json=json.dumps(value))


Made = TypeVar("Made")

_LOCKED_S = 60.0  # how long SQLite waits for another process to finish writing
_ATTEMPTS = 5  # at opening a database whose tables somebody else is making


class StorageLostError(PhazeError):
    """The storage of a study was there and no longer answers."""


def open_storage(where: Path | str | None) -> BaseStorage:
    """The storage at a path or URL. Raises InputError where it cannot be used."""
    if where is None:
        return InMemoryStorage()
    if isinstance(where, Path):
        _drop_torn_line(where)
        return JournalStorage(JournalFileBackend(str(where)))
    return _open_database(where)


def hang_up(storage: BaseStorage) -> None:
    """Close the connections of a storage, which opens new ones where it is asked again: servers have only so many."""
    if isinstance(storage, OrderedStorage):
        storage.engine.dispose()


def without_password(url: str) -> str:
    """A database URL fit to be shown. Raises InputError where it is not one."""
    found = _parsed(url)
    hidden = {name: "***" for name in found.query if "password" in name}
    return found.update_query_dict(hidden).render_as_string(hide_password=True)


@contextmanager
def reaching(storage: str) -> Iterator[None]:
    """Make one sentence of what goes wrong when a storage that was opened no longer answers."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise StorageLostError(
            f"the {storage} no longer answers: {_first_line(error)}; finished trials are kept: once it is back, "
            "continue with --resume, or with --join where hosts share it"
        ) from error


@contextmanager
def opening(storage: str) -> Iterator[None]:
    """Make one sentence of what goes wrong when a storage is opened."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, OSError, ValueError) as error:
        raise InputError(f"the {storage} cannot be opened: {_first_line(error)}") from error


def _open_database(where: str) -> OrderedStorage:
    url = _parsed(where)
    if url.drivername == "postgresql":  # before SQLAlchemy 2.1 this means psycopg2
        url = url.set(drivername="postgresql+psycopg")
    waits = {"connect_args": {"timeout": _LOCKED_S}} if url.get_backend_name() == "sqlite" else {}
    try:
        whole = url.render_as_string(hide_password=False)
        return patiently(lambda: OrderedStorage(whole, {"pool_pre_ping": True, **waits}))
    except ImportError as error:
        kind = url.get_backend_name()
        hint = (
            "pip install '.[postgres]' in a clone of phaze"
            if kind == "postgresql"
            else f"its driver {error.name}"
        )
        raise InputError(
            f"--storage {without_password(where)} needs a driver that is not installed: {hint}"
        ) from error


def patiently(make: Callable[[], Made]) -> Made:
    """Make tables where they are missing; of several who do so at once, all but one fail at first."""
    for attempt in range(_ATTEMPTS - 1):
        try:
            return make()
        except (SQLAlchemyError, StorageInternalError):
            sleep(0.05 * 2**attempt)
    return make()


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise InputError(
            f"--storage {url!r} is not a database URL, such as sqlite:///sweeps.db or postgresql://host/name"
        ) from error


def _drop_torn_line(journal: Path) -> None:
    """A killed run may have left half a line, at which Optuna would stop for good."""
    if journal.exists() and not (content := journal.read_bytes()).endswith(b"\n"):
        with journal.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _first_line(error: Exception) -> str:
    told = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
    return str(told).strip().partition("\n")[0] or type(told).__name__
