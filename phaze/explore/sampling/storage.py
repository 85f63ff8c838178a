"""The Optuna storage behind a study: a journal file, a database by URL, or this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from phaze.errors import InputError, PhazeError
from phaze.explore.sampling.ordered import OrderedStorage

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
        hint = "pip install 'phaze-dse[postgres]'" if kind == "postgresql" else f"its driver {error.name}"
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
