"""A chain cut into the chunks of a pipeline, in whole groups of layers: transformer blocks, or layers on their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Integers
from phaze.errors import InputError
from phaze.workload.work import LayerChain, block_of


class Grain(StrEnum):
    """Unit that stages are cut into; it is recomputed, gathered and reduced as one, too."""

    BLOCK = "block"
    LAYER = "layer"  # half a transformer block: attention, or the feed-forward network


@dataclass(frozen=True)
class Division:
    """`groups`: (first, last) positions in the chain of every group, inclusive; `body`: which of them repeat.

    `chunks`: (first, last) group of every chunk, in model order.
    """

    groups: tuple[tuple[int, int], ...]
    body: tuple[bool, ...]
    chunks: tuple[tuple[int, int], ...]

    @cached_property
    def first_groups(self) -> Integers:
        """First group of every chunk, (C,)."""
        return np.array([first for first, _ in self.chunks])

    @cached_property
    def first_layers(self) -> Integers:
        """First position in the chain of every chunk, (C,)."""
        return np.array([self.groups[first][0] for first in self.first_groups])

    @cached_property
    def sizes(self) -> Integers:
        """Layers of every group, (G,)."""
        return np.array([last + 1 - first for first, last in self.groups])

    @cached_property
    def blocks(self) -> Integers:
        """Repeated groups of every chunk, (C,)."""
        return np.add.reduceat(np.array(self.body, dtype=np.int64), self.first_groups)

    @cached_property
    def chunk_of_groups(self) -> Integers:
        """The chunk of every group, (G,)."""
        spans = np.diff(np.append(self.first_groups, len(self.groups)))
        return np.repeat(np.arange(len(self.chunks)), spans)

    @cached_property
    def ranks(self) -> Integers:
        """Repeated groups ahead of every one of them in its chunk, (G,); more than there are for all others."""
        body = np.array(self.body)
        before = np.cumsum(body) - body
        rank = before - before[self.first_groups][self.chunk_of_groups]
        return np.where(body, rank, len(body))

    def first_blocks(self, counts: ArrayLike) -> NDArray[np.bool_]:
        """Groups (..., G) that are among the first so many repeated ones of their chunk, (..., C)."""
        found: NDArray[np.bool_] = self.ranks < np.asarray(counts)[..., self.chunk_of_groups]
        return found

    def layers(self, chunk: int) -> slice:
        """Positions in the chain of a chunk's layers."""
        first, last = self.chunks[chunk]
        return slice(self.groups[first][0], self.groups[last][1] + 1)


def divide(
    chain: LayerChain, parts: int, stages: tuple[int, ...] = (), grain: Grain = Grain.BLOCK
) -> Division:
    """Cut into so many parts, evenly, or with `stages` repeated groups in each.

    What comes before the repeated groups (embeddings) belongs to the first part, what comes after (the head) to
    the last. Raises InputError where there are fewer groups than parts, or `stages` do not add up.
    """
    whole = undivided(chain, grain)
    return cut(whole, parts, stages, chain.workload)


def undivided(chain: LayerChain, grain: Grain = Grain.BLOCK, *, branches: bool = False) -> Division:
    """The chain in one part. Of `branches` every group counts as one that repeats: each may start a stage."""
    groups = groups_of(chain, grain)
    if branches:
        return Division(groups, (True,) * len(groups), ((0, len(groups) - 1),))
    kinds = [tuple(chain.index[first : last + 1]) for first, last in groups]
    return Division(groups, _body(kinds), ((0, len(groups) - 1),))


def cut(whole: Division, parts: int, stages: tuple[int, ...], name: str) -> Division:
    """`divide`, of a chain of some `name` whose groups are known."""
    groups, body = whole.groups, whole.body
    count = sum(body)
    headed = bool(stages) and not body[-1]  # a last part may have no more than what follows the blocks
    if parts > count + headed:
        raise InputError(f"{name}: {count} blocks do not make {parts} parts of a pipeline")
    sizes = stages or even(count, parts)
    whole_parts = sizes[:-1] if headed else sizes
    if len(sizes) != parts or sum(sizes) != count or min(whole_parts, default=1) < 1 or sizes[-1] < 0:
        raise InputError(f"{name}: stages of {list(sizes)} blocks are not {count} blocks in {parts} parts")
    first = body.index(True)
    ends = [first + n - 1 for n in accumulate(sizes)]
    starts = [first, *(end + 1 for end in ends[:-1])]
    starts[0], ends[-1] = 0, len(groups) - 1
    return Division(groups, body, tuple(zip(starts, ends, strict=True)))


def even(count: int, parts: int) -> tuple[int, ...]:
    """Sizes of so many parts, as equal as can be, the larger ones first."""
    return tuple(count // parts + (part < count % parts) for part in range(parts))


def inside_blocks(chain: LayerChain) -> frozenset[int]:
    """After how many of the repeated layers a cut lies inside a block."""
    layers, firsts = undivided(chain, Grain.LAYER), {first for first, _ in groups_of(chain)}
    start = layers.body.index(True)
    return frozenset(n for n in range(sum(layers.body)) if start + n not in firsts)


def blocks(chain: LayerChain, grain: Grain = Grain.BLOCK) -> int:
    """Number of repeated groups: the most parts that the chain can be cut into."""
    return sum(undivided(chain, grain).body)


def groups_of(chain: LayerChain, grain: Grain = Grain.BLOCK) -> tuple[tuple[int, int], ...]:
    """Single layers, or runs of those of one block by their names: `block7.attention` and `block7.mlp`."""
    if grain is Grain.LAYER:
        return tuple((i, i) for i in range(len(chain.names)))
    found = []
    for _, run in groupby(range(len(chain.names)), key=lambda i: block_of(chain.names[i])):
        positions = list(run)
        found.append((positions[0], positions[-1]))
    return tuple(found)


def _body(kinds: list[tuple[int, ...]]) -> tuple[bool, ...]:
    """Repeated groups: from the first to the last whose layers are found more than once; all, where none are."""
    counts = Counter(kinds)
    repeated = [i for i, kind in enumerate(kinds) if counts[kind] > 1]
    if not repeated:
        return (True,) * len(kinds)
    return tuple(repeated[0] <= i <= repeated[-1] for i in range(len(kinds)))
