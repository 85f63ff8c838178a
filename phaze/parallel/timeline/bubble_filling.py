"""Bubbles that other work fills: forward passes of a second model, piece by piece (PipeFill, arXiv 2410.07192)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.timeline.pipeline_bubbles import Bubble


@dataclass(frozen=True)
class FillJob:
    """Forward passes of a model in batches of `batch` samples on one device, in pieces (n,) that follow one another.

    `seconds`: of computation, `load_s`: of reading the weights of a piece from the host, `need_bytes`: memory of a
    piece with its weights. `resident_bytes`: all weights, and the most that pieces need beside them. `flops` of a pass.
    """

    batch: int
    seconds: Floats
    load_s: Floats
    need_bytes: Floats
    resident_bytes: float
    flops: float

    @property
    def alone_s(self) -> float:
        """A pass on a device of its own."""
        return float(self.seconds.sum())

    def pieces_s(self, least_free_bytes: float) -> Floats:
        """Seconds of the pieces, (n,): weights that do not fit into what is free all the time come from the host."""
        return self.seconds if self.resident_bytes <= least_free_bytes else self.seconds + self.load_s

    def fits(self, free_bytes: float, least_free_bytes: float) -> bool:
        """Whether every piece runs in so much memory, of which so much is free all the time."""
        if self.resident_bytes <= least_free_bytes:
            return True
        return bool((self.need_bytes <= free_bytes).all() and np.isfinite(self.load_s).all())


@dataclass(frozen=True)
class Room:
    """Bubbles of a device in an iteration, the memory that is free in each, and what each loses to switching.

    Bubbles shorter than `switch_s` are left alone.
    """

    bubbles: Sequence[Bubble]
    free_bytes: Callable[[Bubble], float]
    least_free_bytes: float
    switch_s: float = 0.0


@dataclass(frozen=True)
class Filled:
    """What fills the bubbles of a device in the long run: passes (of a batch) and busy seconds in each iteration."""

    job: FillJob
    passes: float
    busy_s: float

    @property
    def samples(self) -> float:
        """Samples in each iteration."""
        return self.passes * self.job.batch

    @property
    def flops(self) -> float:
        """FLOPs in each iteration."""
        return self.passes * self.job.flops


def filled(room: Room, job: FillJob) -> Filled:
    """What a job gets done in the bubbles of a device, exact in the long run.

    Every bubble takes as many of the next pieces as fit into it whole; a pass goes on in the next bubble, and the next
    pass follows. Where an iteration ends with depends on the piece it begins with alone, so that this repeats.
    """
    pieces = _Pieces(job.pieces_s(room.least_free_bytes))
    lengths_s = [
        bubble.length_s - room.switch_s
        for bubble in room.bubbles
        if bubble.length_s > room.switch_s and job.fits(room.free_bytes(bubble), room.least_free_bytes)
    ]
    at, seen, ends = 0, {0: 0}, [0]
    while True:
        for length_s in lengths_s:
            at = pieces.after(at, length_s)
        ends.append(at)
        first = seen.setdefault(at % pieces.count, len(ends) - 1)
        if first < len(ends) - 1:
            break
    iterations = len(ends) - 1 - first
    done = ends[-1] - ends[first]
    passes = done / pieces.count / iterations
    return Filled(job, passes, passes * pieces.whole_s if done else 0.0)


@dataclass(frozen=True)
class _Pieces:
    """Pieces of a pass that repeats, by their number from the first of all on."""

    seconds: Floats

    @property
    def count(self) -> int:
        """Pieces of a pass."""
        return len(self.seconds)

    @cached_property
    def whole_s(self) -> float:
        """Seconds of a pass."""
        return float(self._sums_s[self.count])

    @cached_property
    def _sums_s(self) -> Floats:
        """Seconds of two passes up to every piece, (2 n + 1,)."""
        return np.concatenate([[0.0], np.cumsum(np.tile(self.seconds, 2))])

    def after(self, at: int, length_s: float) -> int:
        """The piece after the last of those from `at` on that fit into a stretch whole."""
        passes = int(length_s // self.whole_s) if self.whole_s > 0 else 0
        rest_s, place = length_s - passes * self.whole_s, at % self.count
        taken = int(np.searchsorted(self._sums_s, self._sums_s[place] + rest_s, side="right")) - 1 - place
        return at + passes * self.count + min(max(taken, 0), self.count)


def best_filled(room: Room, jobs: Sequence[FillJob]) -> Filled:
    """The batch of a job that does most FLOPs in the bubbles of a device, the smallest of those that do."""
    return max((filled(room, job) for job in jobs), key=lambda one: one.flops)


def fastest_alone(jobs: Sequence[FillJob], capacity_bytes: float) -> float:
    """Samples/s of a device that does nothing else, with the best batch whose weights stay in its memory."""
    rates = [job.batch / job.alone_s for job in jobs if job.resident_bytes <= capacity_bytes]
    return max(rates, default=-inf)
