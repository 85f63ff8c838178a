"""Worker processes on this machine; which of them does what changes no answer."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from phaze.errors import WorkerLostError
from phaze.explore.request.search_resources import Piece, Result, Work, end_with_parent, never
from phaze.runs.executors.packed_work import Pack, Packs, RecentlyUsed
from phaze.scheduling.effort import LimitsOver

ATTEMPTS = 2
"""Workers that one piece of work may cost, before it is taken to be the reason."""

LOOK_S = 0.2
"""Seconds between looks at whether somebody still waits."""


@dataclass
class Processes(AbstractContextManager["Processes"]):
    """An executor of as many processes; they start when they are first needed and end with the block.

    A piece whose worker dies is done again by another one. `stop`: whether nobody waits any more.
    """

    workers: int
    stop: Callable[[], bool] = never
    _team: list[_Worker] = field(default_factory=list)
    _packs: Packs = field(default_factory=Packs)

    def map(self, work: Work[Piece, Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        """Results in the order of the pieces, a free worker taking the next one.

        Raises what a piece raises, WorkerLostError where a piece has cost `ATTEMPTS` workers, and LimitsOver where
        nobody waits any more; workers that are at pieces then end.
        """
        course = _Course(self, self._packs.of(work), pieces)
        try:
            for index in range(len(pieces)):
                yield course.result(index)
        finally:
            self._dismiss([worker for worker in self._team if worker.doing is not None])

    def free(self, wanted: int) -> Iterator[_Worker]:
        """At most that many workers that have nothing to do, started where the team is not complete."""
        idle = [worker for worker in self._team if worker.doing is None][:wanted]
        new = min(wanted - len(idle), self.workers - len(self._team))
        idle += [_Worker.start() for _ in range(new)]
        self._team += [worker for worker in idle if worker not in self._team]
        yield from idle

    def answers(self) -> Iterator[_Worker]:
        """Workers that have answered or died, at least one. Raises LimitsOver where nobody waits any more."""
        busy = [worker for worker in self._team if worker.doing is not None]
        while not (ready := wait([worker.pipe for worker in busy], LOOK_S)):
            if self.stop():
                raise LimitsOver
        yield from (worker for worker in busy if worker.pipe in ready)

    def lose(self, worker: _Worker) -> str:
        """Strike a dead worker off; how it ended."""
        worker.process.join(1.0)
        ended = f"worker process {worker.process.pid} died (exit code {worker.process.exitcode})"
        self._dismiss([worker])
        return ended

    def _dismiss(self, workers: Sequence[_Worker]) -> None:
        """End some processes, whatever they are doing."""
        self._team = [worker for worker in self._team if worker not in workers]
        with ExitStack() as stack:
            for worker in workers:
                stack.callback(worker.stop)

    def __exit__(self, *_: object) -> None:
        """End all of them."""
        self._dismiss(self._team)


@dataclass
class _Course:
    """The pieces of one call: which wait, and what came of the others."""

    team: Processes
    pack: Pack
    pieces: Sequence[Any]
    done: dict[int, tuple[bool, Any]] = field(default_factory=dict)
    lost: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.pieces)))

    def result(self, index: int) -> Any:  # noqa: ANN401 - whatever the work finds
        """Keep everybody at work until the result of a piece is there; raises what it has raised."""
        while index not in self.done:
            self._hand_out()
            for worker in list(self.team.answers()):
                self._take(worker)
        self._hand_out()  # they go on while the result is looked at
        fine, thing = self.done.pop(index)
        if not fine:
            raise thing
        return thing

    def _hand_out(self) -> None:
        for worker in self.team.free(len(self.waiting)):
            index = self.waiting.popleft()
            try:
                worker.ask(index, self.pack, self.pieces[index])
            except OSError:
                self._again(worker)

    def _take(self, worker: _Worker) -> None:
        try:
            index, fine, thing = worker.answer()
        except (EOFError, OSError):
            self._again(worker)
        else:
            self.done[index] = fine, thing

    def _again(self, worker: _Worker) -> None:
        """The piece of a worker that has died is the next for another one."""
        index = worker.doing
        ended = self.team.lose(worker)
        if index is None:
            return
        self.lost[index] += 1
        if self.lost[index] >= ATTEMPTS:
            raise WorkerLostError(
                f"{ended}, as did the one before it at the same work; what is recorded so far is kept: "
                "continue with --resume, with fewer --workers if memory was short"
            )
        self.waiting.appendleft(index)


@dataclass(eq=False)
class _Worker:
    """One process and this end of the pipe to it; `doing`: the number of its piece."""

    process: SpawnProcess
    pipe: Connection[Any, Any]
    doing: int | None = None
    held: RecentlyUsed[None] = field(default_factory=RecentlyUsed)  # the works it has

    @classmethod
    def start(cls) -> _Worker:
        # Spawned, not forked: a copy of a process whose libraries run threads may hang.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    def ask(self, index: int, pack: Pack, piece: object) -> None:
        self.doing = index
        content = None if pack.digest in self.held else pack.content
        self.held.get(pack.digest, lambda: None)
        self.pipe.send((pack.digest, content, piece))

    def answer(self) -> tuple[int, bool, Any]:
        """Number of the piece, whether it went well, and its result or what it raised."""
        fine, thing = self.pipe.recv()
        index, self.doing = self.doing, None
        if index is None:
            msg = "an answer to nothing"
            raise AssertionError(msg)
        return index, fine, thing

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection[Any, Any]) -> None:
    """A worker's life: answer until the other end closes. Ctrl-C is the first process's business."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    works: RecentlyUsed[Work[Any, Any]] = RecentlyUsed()
    with suppress(EOFError, BrokenPipeError):
        while True:
            digest, content, piece = pipe.recv()
            pipe.send(_outcome(works, digest, content, piece))


def _outcome(
    works: RecentlyUsed[Work[Any, Any]], digest: str, content: bytes, piece: object
) -> tuple[bool, Any]:
    """Whether a piece went well, and its result or what it raised."""
    try:
        return True, works.get(digest, lambda: pickle.loads(content)).do(piece)
    except Exception as error:  # noqa: BLE001 - whatever it is, the asking process raises it
        error.add_note(traceback.format_exc())
        return False, error
