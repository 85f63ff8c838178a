"""Stores for the sake of speed: they may fail, but nothing fails with them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from phaze.explore.means import Store
from phaze.runs.store.database import Database

T = TypeVar("T")
Tell = Callable[[str], None]


@dataclass
class Guarded:
    """A database that is left out from its first failure on, with a sentence to `tell`; `name` says what it is."""

    database: Database
    name: str
    tell: Tell | None = None
    failed: bool = False
    process: int = field(default_factory=os.getpid)

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """What is known of some keys, as far as the database can be read."""
        return self._tried(lambda: self.database.get(keys), {})

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember, if that is possible."""
        self._tried(lambda: self.database.put(items), None)

    def _tried(self, work: Callable[[], T], otherwise: T) -> T:
        if self.failed:
            return otherwise
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            self.fail(error)
            return otherwise

    def fail(self, error: Exception) -> None:
        """Leave the database out from now on; a copy of the process says nothing."""
        self.failed = True
        if self.tell is not None and os.getpid() == self.process:
            self.tell(f"{self.name} {self.database.path} cannot be used ({error}); going on without it")

    def __getstate__(self) -> dict[str, object]:
        """What another process needs; it keeps its remarks to itself."""
        return {"database": self.database, "name": self.name, "failed": self.failed, "process": self.process}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Quietly."""
        self.__dict__.update(state, tell=None)


@dataclass(frozen=True)
class Layered:
    """Two stores: the near one learns what the far one knows, and both what is new."""

    near: Store
    far: Store

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """What either knows of some keys."""
        found = self.near.get(keys)
        if not (left := [key for key in keys if key not in found]):
            return found
        if known := self.far.get(left):
            self.near.put(known)
        return {**found, **known}

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember in both."""
        self.near.put(items)
        self.far.put(items)
