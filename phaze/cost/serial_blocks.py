"""Operators of a pass in blocks that run one after the other in any schedule, and what each block takes at least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.operator_kinds import Kinds
from phaze.workload.work import Pass, Unit, Work

ON_TENSOR = (Unit.TENSOR, Unit.TENSOR_VECTOR)
ON_VECTOR = (Unit.VECTOR, Unit.TENSOR_VECTOR)
_ANY = (Unit.TENSOR, Unit.VECTOR, Unit.TENSOR_VECTOR)
_WIDEST = 64  # operators up to which it is looked at how many may run side by side


def serial_blocks(pass_: Pass) -> tuple[tuple[int, ...], ...]:
    """Operators in groups that run one after the other in any schedule, each in topological order."""
    count = len(pass_.works)
    before: dict[int, list[int]] = {o: [] for o in range(count)}
    for first, second in pass_.edges:
        before[second].append(first)
    order = list(TopologicalSorter(before).static_order())
    ancestors, descendants = [0] * count, [0] * count
    for o in order:
        for p in before[o]:
            ancestors[o] |= ancestors[p] | 1 << p
    for o in reversed(order):
        for p in before[o]:
            descendants[p] |= descendants[o] | 1 << o
    # With every operator before its descendants and after its ancestors, a splitting operator has all of
    # its ancestors, and only them, in front of it.
    order.sort(key=lambda o: ancestors[o].bit_count())
    blocks: list[list[int]] = [[]]
    for o in order:
        if (ancestors[o] | descendants[o]).bit_count() == count - 1:
            blocks += [[o], []]
        else:
            blocks[-1].append(o)
    return tuple(tuple(block) for block in blocks if block)


@dataclass(frozen=True)
class Crowd:
    """Operators of a block that need cores of a kind, and how many of them may run side by side at most.

    While any of them has one core of that kind no more than `width` do, however many cores there are.
    """

    operators: tuple[int, ...]
    width: int

    def core_s(self, single: Floats, parallel: Floats, cores: Rows | Floats) -> Floats:
        """Time that they need the cores (n,) at least, (n,), for seconds (O, n) in both modes."""
        side, mine = np.minimum(cores, self.width), list(self.operators)
        total: Floats = np.minimum(single[mine] / side, parallel[mine]).sum(axis=0)
        return total

    def core_s_of_kinds(self, kinds: Kinds, single: Floats, parallel: Floats, cores: Rows | Floats) -> Floats:
        """The same for seconds (K, n) of the kinds of operators."""
        side = np.minimum(cores, self.width)
        mine, times = np.unique(kinds.of_operator[list(self.operators)], return_counts=True)
        # Row by row: a product of matrices would add in an order that depends on n.
        total: Floats = (times[:, None] * np.minimum(single[mine] / side, parallel[mine])).sum(axis=0)
        return total


@dataclass(frozen=True)
class Crowds:
    """Those of a block on tensor cores, on vector cores, and on any cores."""

    tensor: Crowd
    vector: Crowd
    every: Crowd

    @classmethod
    def of(cls, works: Sequence[Work], before: Sequence[Sequence[int]], block: Sequence[int]) -> Crowds:
        """Crowds of a block, its operators in topological order; `before`: what comes before each in its block."""
        ancestors = dict.fromkeys(block, 0)
        for o in block:
            for p in before[o]:
                ancestors[o] |= ancestors[p] | 1 << p

        def crowd(units: tuple[Unit, ...]) -> Crowd:
            some = tuple(o for o in block if works[o].unit in units)
            return Crowd(some, _width(some, ancestors))

        return cls(crowd(ON_TENSOR), crowd(ON_VECTOR), crowd(_ANY))


def _width(operators: Sequence[int], ancestors: Mapping[int, int]) -> int:
    """The most operators of which none precedes another: the fewest chains that hold all of them (Dilworth 1950)."""
    if len(operators) > _WIDEST:
        return len(operators)
    chained: dict[int, int] = {}

    def extend(o: int, seen: set[int]) -> bool:
        """Whether a chain can go on from an operator, others being joined anew."""
        for later in operators:
            if ancestors[later] >> o & 1 and later not in seen:
                seen.add(later)
                if later not in chained or extend(chained[later], seen):
                    chained[later] = o
                    return True
        return False

    return max(len(operators) - sum(extend(o, set()) for o in operators), 1)


@dataclass(frozen=True)
class SerialBlocks:
    """Operators of a pass in blocks that run one after the other, with what comes before each of them in its block.

    `followed`: those that something comes after in their block.
    """

    works: tuple[Work, ...]
    blocks: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    followed: frozenset[int]
    crowds: tuple[Crowds, ...]

    @classmethod
    def of(cls, pass_: Pass) -> SerialBlocks:
        """Blocks of a pass."""
        blocks, before = serial_blocks(pass_), list[list[int]]([] for _ in pass_.works)
        block_of = {o: number for number, block in enumerate(blocks) for o in block}
        for first, second in pass_.edges:
            if block_of[first] == block_of[second]:
                before[second].append(first)
        crowds = tuple(Crowds.of(pass_.works, before, block) for block in blocks)
        followed = frozenset(first for some in before for first in some)
        return cls(tuple(pass_.works), blocks, tuple(map(tuple, before)), followed, crowds)

    def least_s(self, single_s: Floats, parallel_s: Floats, tensor_cores: Rows, vector_cores: Rows) -> Floats:
        """At most the makespan of any schedule, (A,), for latencies (A, O) in both modes.

        Of every block the longest path, or the time that its operators need the cores of a kind, or the link.
        """
        single, parallel = single_s.T, parallel_s.T
        least = np.ascontiguousarray(np.fmin(single, parallel))
        total, any_cores = np.zeros(len(single_s)), tensor_cores + vector_cores
        both = np.minimum(tensor_cores, vector_cores) > 0
        for block, crowds in zip(self.blocks, self.crowds, strict=True):
            if len(block) == 1:
                total += least[block[0]]
                continue
            bounds = [self.path_s(block, least)]
            for crowd, cores, there in (
                (crowds.tensor, tensor_cores, tensor_cores > 0),
                (crowds.vector, vector_cores, vector_cores > 0),
                (crowds.every, any_cores, both),
            ):
                if len(crowd.operators) > 1:
                    core_s = crowd.core_s(single, parallel, np.maximum(cores, 1))
                    bounds.append(np.where(there, core_s, 0.0))
            links = [o for o in block if self.works[o].unit is Unit.LINK]
            if len(links) > 1:
                bounds.append(least[links].sum(axis=0))
            total += np.maximum.reduce(bounds)
        return total

    def repeats(self, kinds: Kinds) -> dict[int, int]:
        """Numbers of blocks, of those alike the first, with how many these are: steps of a loop are, however many.

        Blocks are alike where operators of the same kinds follow each other in the same way.
        """
        first, found, of = dict[Hashable, int](), Counter[int](), kinds.of_operator.tolist()
        for number, block in enumerate(self.blocks):
            place = {o: i for i, o in enumerate(block)}
            shape = tuple((of[o], *(place[b] for b in self.before[o])) for o in block)
            found[first.setdefault(shape, number)] += 1
        return dict(found)

    def path_s(self, block: tuple[int, ...], least: Sequence[Floats] | Floats) -> Floats:
        """Longest path of a block, (n,), for seconds (n,) of every operator."""
        done: dict[int, Floats] = {}
        longest = np.zeros_like(least[block[0]])
        for o in block:
            start: Floats | None = None
            for first in self.before[o]:
                start = done[first] if start is None else np.maximum(start, done[first])
            done[o] = end = least[o] if start is None else start + least[o]
            if o not in self.followed:
                np.maximum(longest, end, out=longest)
        return longest
