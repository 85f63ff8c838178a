"""What a search has at its disposal besides time: who works for it, and what is remembered from before.

Neither changes an answer. Implementations live in `phaze.runs`; a search alone works in this process and
remembers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from phaze.recall import Recall

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Asked_contra = TypeVar("Asked_contra", contravariant=True)
Found_co = TypeVar("Found_co", covariant=True)


class Work(Protocol[Asked_contra, Found_co]):
    """What workers do: a picklable object of which every worker has a copy.

    It may remember what pieces share, as long as an answer does not depend on which pieces came before.
    """

    def do(self, piece: Asked_contra) -> Found_co:
        """The result of one piece."""


class Executor(Protocol):
    """Has pieces of work done; who does which changes no answer."""

    @property
    def workers(self) -> int:
        """How many pieces are done side by side."""

    def map(self, work: Work[Piece, Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        """Results in the order of the pieces; what a piece raises is raised here."""


class Store(Protocol):
    """Remembers evaluations under the digest of everything they depend on, so that none can be out of date."""

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """What is known of some keys."""

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember; a value that is there already stays."""


class Here:
    """Works in this process, one piece after the other."""

    workers = 1

    def map(self, work: Work[Piece, Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        """Results as they are asked for."""
        return map(work.do, pieces)


class Forgetful:
    """Remembers nothing."""

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Nothing."""
        del keys
        return {}

    def put(self, items: Mapping[str, bytes]) -> None:
        """Forget."""


@dataclass(frozen=True)
class Means:
    """An executor and a store."""

    executor: Executor = field(default_factory=Here)
    store: Store = field(default_factory=Forgetful)

    @property
    def recall(self) -> Recall | None:
        """What evaluators ask for earlier results; None where nothing is remembered."""
        return None if isinstance(self.store, Forgetful) else Recall(self.store)


ALONE = Means()
