"""Two loops of kernels that share a device: how much each slows the other down.

Kernels that lie on the device together contend for what both ask for: each then takes as long as the resource that is
asked for most allows (shares of capacity that add up to more than 1). Where the cores have no room for both, one waits
until the other is through. Which resources there are is the caller's: those of a core (threads, registers, shared
memory, issue slots, pipes) and those of the whole device (HBM, caches), after arXiv 2501.16909; how many threads a
kernel occupies alone tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.tolerances import SAME

_PASSES = 8
"""Passes of the slower loop that are played at least."""

_STEPS = 200_000
"""Ends of kernels that are played at most."""


@dataclass(frozen=True)
class KernelLoop:
    """Kernels (n,) that run one after the other, again and again.

    `seconds`: of each alone. `demands` (n, R): share of the capacity of every resource that it asks for meanwhile, up
    to 1. `held` (n, H): share of everything that kernels occupy on the cores while they lie there, up to 1.
    """

    seconds: Floats
    demands: Floats
    held: Floats

    @cached_property
    def alone_s(self) -> float:
        """Seconds of a pass alone."""
        return float(self.seconds.sum())


@dataclass(frozen=True)
class Shared:
    """Progress of each of two loops over that alone, at most 1, and what contention came from.

    `contended` (R,): share of the time in which both run and this resource slows them down. `beside`: share in which
    both run.
    """

    progress: tuple[float, float]
    contended: Floats
    beside: float

    @property
    def devices_worth(self) -> float:
        """Devices that would do as much if each did one of the two alone; 1 is what taking turns gives."""
        return sum(self.progress)


def asked(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Share of the capacity of every resource that two kernels ask for together, (R,)."""
    return [a + b for a, b in zip(one, other, strict=True)]


def both_fit(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether kernels that occupy such shares of the cores, (H,), lie there together."""
    return all(a + b <= 1 + SAME for a, b in zip(one, other, strict=True))


def shared(one: KernelLoop, other: KernelLoop) -> Shared:
    """Two loops in the long run: played until the slower one has made some passes, or many kernels have ended.

    A kernel that does not fit beside the one that runs waits for its end, and then comes first.
    """
    return _Play(one, other).run()


class _Play:
    def __init__(self, one: KernelLoop, other: KernelLoop) -> None:
        self.loops = (one, other)
        self.demands = [loop.demands.tolist() for loop in self.loops]
        self.held = [loop.held.tolist() for loop in self.loops]
        self.at, self.left = [0, 0], [float(loop.seconds[0]) for loop in self.loops]
        self.done_s, self.passes = [0.0, 0.0], [0, 0]
        self.time_s = self.beside_s = 0.0
        self.contended_s = np.zeros(one.demands.shape[1])
        self.turn = 0  # of those that do not fit together

    def run(self) -> Shared:
        for _ in range(_STEPS):
            if min(self.passes) >= _PASSES:
                break
            self._step()
        progress = self.done_s[0] / self.time_s, self.done_s[1] / self.time_s
        return Shared(progress, self.contended_s / self.time_s, self.beside_s / self.time_s)

    def _step(self) -> None:
        """To the next end of a kernel."""
        a, b = self.at
        if not both_fit(self.held[0][a], self.held[1][b]):
            self._pass_by((self.turn,), self.left[self.turn], 1.0)
            return
        together = asked(self.demands[0][a], self.demands[1][b])
        slow = max(1.0, *together)
        lasts_s = min(self.left) * slow
        self.beside_s += lasts_s
        if slow > 1:
            self.contended_s[together.index(slow)] += lasts_s
        self._pass_by((0, 1), lasts_s, slow)

    def _pass_by(self, running: tuple[int, ...], seconds: float, slow: float) -> None:
        self.time_s += seconds
        for which in running:
            self.done_s[which] += seconds / slow
            self.left[which] -= seconds / slow
        for which in running:
            if self.left[which] <= SAME * self.loops[which].seconds[self.at[which]]:
                self._next(which)

    def _next(self, which: int) -> None:
        """The next kernel; where it does not fit beside the other one, that goes first."""
        loop = self.loops[which]
        self.at[which] = (self.at[which] + 1) % len(loop.seconds)
        self.passes[which] += self.at[which] == 0
        self.left[which] = float(loop.seconds[self.at[which]])
        self.turn = 1 - which
