"""The compact search from outside: memory that grows, limits, and the schedule that a path of states means.

Its inner loop is plain at first and built as machine code in the background once time was spent on it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cache, cached_property, partial
from math import ceil, inf, log
from time import monotonic, thread_time
from typing import NamedTuple

import numpy as np

from phaze.background import in_background

from ...arrays import Floats
from ..indexed_problem import IndexedProblem
from ..machine_code import PlainSeconds, compiled, is_kept
from ..phases import kernel_phases
from ..schedule_bounds import Bounds
from ..schedule_plan import Plan, SearchLimits, assign_cores, replay
from . import kernel_search, kernel_states
from .kernel_arrays import (
    ALL_MODES,
    BEST,
    CHOSEN,
    CODE_BITS,
    COUNT,
    CUTOFF,
    DEPTH,
    FIRST,
    HASH,
    HEAPED,
    LABEL,
    LEVEL,
    MODE_BITS,
    MOST_MODES,
    MOST_OPERATORS,
    NEXT,
    NOW,
    PARENT,
    PER_WORD,
    READY,
    SPENT,
    STACK,
    STEPS,
    UPPER,
    Arrays,
    Memory,
    problem_arrays,
    search_memory,
)
from .kernel_search import BUDGET, DONE, ROOM
from .state_space import NEVER, TICKS, StateSpace

LOAD_AFTER_S, BUILD_AFTER_S = 0.2, 12.0
"""Time spent in plain functions from which on numba is worth half a second to load what it built before, in this
process, and to build it, in all: as much as a build takes, beside which this process has half of its time at most."""


class Kernel(NamedTuple):
    """Functions that the search calls; see `kernel_search` for what each does."""

    search: Callable[[Arrays, Memory, int, int, int], int]
    unpack: Callable[[Arrays, Memory, int], int]
    close: Callable[[Arrays, Memory, int, int, int], None]


_PARTS = kernel_phases, kernel_states, kernel_search

PLAIN = Kernel(kernel_search.search, kernel_search.unpack, kernel_search.close)


class KernelBuilder:
    """The fastest kernel at hand, and the build of a faster one."""

    def __init__(self) -> None:
        """Nothing is built before there is reason to."""
        self._spent_s = 0.0
        self._build: Future[Kernel] | None = None

    @cached_property
    def _kept(self) -> bool:
        return is_kept(*_PARTS)

    @cached_property
    def _plain(self) -> PlainSeconds:
        return PlainSeconds(*_PARTS)

    @property
    def _worth(self) -> bool:
        """Whether as much was spent as it takes to load what is built, or to build it."""
        return self._spent_s >= LOAD_AFTER_S if self._kept else self._plain.total_s >= BUILD_AFTER_S

    @property
    def kernel(self) -> Kernel:
        """Compiled if the build is finished and went well."""
        built = self._build is not None and self._build.done() and self._build.exception() is None
        return self._build.result() if built and self._build is not None else PLAIN

    def report(self, spent_s: float, sample: Callable[[Kernel], None]) -> None:
        """Add up time spent; the first time that it is much, start the build, with a call to compile for."""
        if self._build is not None:
            return
        self._spent_s += spent_s
        if not self._kept:
            self._plain.add(spent_s)
        if self._worth:
            self._build = in_background(partial(_compile, sample), "kernel")

    def wait(self) -> None:
        """Until a build that has begun has ended, well or not."""
        if self._build is not None:
            self._build.exception()


@cache
def kernel_builder() -> KernelBuilder:
    """The one of this process."""
    return KernelBuilder()


def _compile(sample: Callable[[Kernel], None]) -> Kernel:
    """All functions compiled, for the types in `sample`; raises what numba raises."""
    scope = compiled(*_PARTS)
    built = Kernel(scope["search"], scope["unpack"], scope["close"])
    sample(built)
    return built


MOST_BYTES = 1 << 30
"""Memory at which a search stops as if out of time."""

CHILDREN = 1 << 17
"""About the most children made at once, times operators; of more ready operators only some are chosen from."""

SLICE_S = 0.02
"""Time between two looks at the clock."""


def packable(ix: IndexedProblem) -> bool:
    """Whether the compact search takes a problem: no core pairs, and numbers that its records have bits for."""
    return ix.pair is None and ix.size < MOST_OPERATORS and max(map(len, ix.modes), default=0) < MOST_MODES


class CompactSearch:
    """States of an unpaired problem that can beat a schedule of `upper_s`; ask with `beam` or `best_first`."""

    def __init__(
        self,
        ix: IndexedProblem,
        bounds: Bounds,
        upper_s: float,
        rows: Floats | None,
        shop: KernelBuilder | None = None,
    ) -> None:
        """`rows` are further weightings of work: (K, O, M) work per tick of every operator and mode.

        `shop` provides the kernel; None means the one of the process.
        """
        self._ix = ix
        self._shop = shop or kernel_builder()
        self._space = StateSpace(ix, bounds, upper_s)
        self._order, self._arrays = problem_arrays(ix, self._space, rows)
        choices = self._arrays.mode.shape[1] + 1
        self._window = max(1, int(log(max(1.0, CHILDREN / ix.size), choices)))
        self._margin = 2 * choices**self._window + 2
        self._memory = search_memory(self._arrays, 2 * self._margin)
        self._exhausted = False

    @property
    def states(self) -> int:
        """Expanded so far."""
        return int(self._memory.tally[SPENT])

    @property
    def lower_s(self) -> float:
        """Lower bound that best-first search has proven so far, s: inf if nothing can be shorter than the best one."""
        tally = self._memory.tally
        least = int(self._memory.heap[0, 0]) >> 8 if tally[HEAPED] else TICKS
        return inf if self._exhausted and least >= tally[UPPER] else least / self._space.scale

    def beam(self, width: int, states: float, limits: SearchLimits) -> None:
        """Expand only so many states per number of ended operators."""
        self._memory.tally[LEVEL] = 0
        self._run(width, states, limits)

    def best_first(self, states: float, limits: SearchLimits) -> None:
        """Expand the state with the least bound until all is proven, `lower_s` is at the cutoff or a limit is
        reached."""
        tally = self._memory.tally
        tally[LEVEL] = -1
        if limits.cutoff_s < inf:
            tally[CUTOFF] = min(int(tally[CUTOFF]), ceil(limits.cutoff_s * self._space.scale))
        self._run(0, states, limits)

    def _run(self, width: int, states: float, limits: SearchLimits) -> None:
        """In slices, so that the clock is looked at and a faster kernel taken; they change nothing else."""
        slice_, found = 1, BUDGET
        while found != DONE and self.states < states and not limits.late:
            if found == ROOM and not self._grow():
                return
            began, before, spent = monotonic(), self.states, thread_time()
            budget = int(min(states, before + slice_))
            found = self._shop.kernel.search(self._arrays, self._memory, self._window, width, budget)
            self._shop.report(thread_time() - spent, self.sample)
            slice_ = 2 * slice_ if monotonic() - began < SLICE_S / 2 else max(1, slice_ // 2)
        self._exhausted = found == DONE

    def sample(self, kernel: Kernel) -> None:
        """Call every function once, on arrays of its own."""
        memory = search_memory(self._arrays, 2)
        memory.tally[HEAPED] = 0
        kernel.search(self._arrays, memory, self._window, 0, 0)
        memory.tally[UPPER] = 0
        kernel.close(self._arrays, memory, 0, kernel.unpack(self._arrays, memory, 0), 1)

    def _grow(self) -> bool:
        """Twice the room, unless that is too much."""
        old = self._memory
        if 2 * (old.pool.nbytes + old.heap.nbytes + old.heads.nbytes) > MOST_BYTES:
            return False
        records = 2 * len(old.pool)
        pool = np.empty((records, old.pool.shape[1]), dtype=np.int64)
        heap = np.empty((records, 2), dtype=np.int64)
        heads = np.full(2 * len(old.heads), -1, dtype=np.int64)
        pool[: len(old.pool)], heap[: len(old.heap)] = old.pool, old.heap
        known = pool[: old.tally[COUNT]]
        slots = known[:, HASH] & (len(heads) - 1)
        order = np.argsort(slots, kind="stable")
        same = slots[order[1:]] == slots[order[:-1]]
        known[order[:1], NEXT] = -1
        known[order[1:], NEXT] = np.where(same, order[:-1], -1)
        heads[slots[order]] = order
        self._memory = old._replace(pool=pool, heap=heap, heads=heads)
        return True

    def plan(self) -> Plan | None:
        """The best schedule found, replayed in seconds; None if none beats the incumbent."""
        memory, ix = self._memory, self._ix
        row = int(memory.tally[BEST])
        if row < 0:
            return None
        path = [row]
        while (row := int(memory.pool[row, PARENT])) >= 0:
            path.append(row)
        starts, ends, modes = [0] * ix.size, [0] * ix.size, [0] * ix.size
        sequence, names = [], np.array(self._order)
        for parent, child in zip(path[:0:-1], path[-2::-1], strict=True):
            now = int(memory.pool[parent, NOW])
            codes = _steps(memory, child)
            for code in codes:
                i, mode = int(names[code >> MODE_BITS]), code & ALL_MODES
                starts[i], ends[i], modes[i] = now, now + self._space.latency[i][mode], mode
                sequence.append(i)
            if child != path[0]:
                names = names[self._labels(parent, child, codes)]
        return replay(ix, sequence, modes, assign_cores(ix, starts, ends, modes))

    def _labels(self, parent: int, child: int, codes: list[int]) -> list[int]:
        """Operator of the parent that each one of the child is, interchangeable ones having changed places."""
        arrays, memory = self._arrays, self._memory
        kernel, upper = self._shop.kernel, int(memory.tally[UPPER])
        memory.tally[UPPER] = NEVER  # the parent may have become dominated since
        ready = kernel.unpack(arrays, memory, parent)
        memory.mine[LABEL] = np.arange(self._ix.size)
        for d, code in enumerate(codes):
            i, mode = code >> MODE_BITS, code & ALL_MODES
            memory.mine[STACK, d] = code
            memory.mine[CHOSEN, memory.mine[READY, :ready].tolist().index(i)] = 1
            memory.free[0] -= arrays.mode[i, mode, 1:]
        memory.tally[DEPTH] = len(codes)
        kernel.close(arrays, memory, parent, ready, int(memory.pool[child, FIRST]))
        memory.tally[UPPER] = upper
        return [int(label) for label in memory.mine[LABEL]]


def _steps(memory: Memory, row: int) -> list[int]:
    """The operators, with modes, that were started on the way to a state."""
    codes: list[int] = []
    left = int(memory.pool[row, STEPS])
    words = memory.pool[row, ::-1].tolist()
    for word in words[: -(-left // PER_WORD)]:
        here = min(left, PER_WORD)
        codes.extend(word >> CODE_BITS * (here - 1 - d) & (1 << CODE_BITS) - 1 for d in range(here))
        left -= here
    return codes
