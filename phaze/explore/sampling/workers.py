"""Worker processes that evaluate the designs of a batch; which of them does what changes no answer."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from phaze.errors import PhazeError
from phaze.explore.sampling.assessor import Row


class Assesses(Protocol):
    """Gives the figures of candidates; picklable, so that a worker can have a copy."""

    def assess(self, numbers: Sequence[int]) -> Iterator[Row]:
        """Figures of some candidates, in the order asked for."""


class WorkerLostError(PhazeError):
    """A worker process has ended before it answered."""


@dataclass
class Workers(AbstractContextManager["Workers"]):
    """As many processes, each with a copy of an assessor; they start when they are first needed.

    With one worker everything happens in this process.
    """

    assessor: Assesses
    count: int = 1
    _team: list[_Worker] = field(default_factory=list)

    def assess(self, numbers: Sequence[int]) -> Iterator[Row]:
        """Figures of some candidates, in the order asked for, by all workers together.

        Raises WorkerLostError where one of them dies; what the others do is then lost.
        """
        if self.count == 1 or not numbers:
            yield from self.assessor.assess(numbers)
            return
        if not self._team:
            self._team += [_Worker.start(self.assessor) for _ in range(self.count)]
        shares = [share.tolist() for share in np.array_split(np.array(numbers, dtype=np.int64), self.count)]
        busy = [(worker, share) for worker, share in zip(self._team, shares, strict=True) if share]
        for worker, share in busy:
            worker.ask(share)
        for worker, _ in busy:
            yield from worker.answer()

    def __exit__(self, *_: object) -> None:
        """End the processes, whatever they are doing."""
        with ExitStack() as stack:
            for worker in self._team:
                stack.callback(worker.stop)
        self._team.clear()


@dataclass(frozen=True)
class _Worker:
    """One process and this end of the pipe to it."""

    process: SpawnProcess
    pipe: Connection[list[int], list[Row] | BaseException]

    @classmethod
    def start(cls, assessor: Assesses) -> _Worker:
        # Spawned, not forked: a copy of a process whose libraries run threads may hang.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, packed(assessor)), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    def ask(self, numbers: list[int]) -> None:
        try:
            self.pipe.send(numbers)
        except OSError as error:
            raise self._lost() from error

    def answer(self) -> list[Row]:
        try:
            rows = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        if isinstance(rows, BaseException):
            raise rows
        return rows

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()

    def _lost(self) -> WorkerLostError:
        self.process.join(1.0)
        return WorkerLostError(
            f"worker process {self.process.pid} died (exit code {self.process.exitcode}); trials told so far "
            "are kept: continue with --resume, with fewer --workers if memory was short"
        )


class _Pickler(pickle.Pickler):
    """Also packs read-only mappings, which graphs are full of."""

    def reducer_override(self, thing: object) -> Any:  # noqa: ANN401 - pickle's own protocol
        return (_read_only, (dict(thing),)) if isinstance(thing, MappingProxyType) else NotImplemented


def _read_only(content: dict[object, object]) -> MappingProxyType[object, object]:
    return MappingProxyType(content)


def packed(thing: object) -> bytes:
    """What another process unpickles, read-only mappings included."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getvalue()


def _serve(pipe: Connection[list[Row] | BaseException, list[int]], task: bytes) -> None:
    """A worker's life: answer until the other end closes. Ctrl-C is the first process's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assessor: Assesses = pickle.loads(task)
    while True:
        try:
            numbers = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(list(assessor.assess(numbers)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the asking process raises it
            pipe.send(error)
