"""How pipelines with one chunk per device are cut: evenly, and with fewer blocks beside the embedding and the head.

Blocks are alike in most models, and then no stages have a shorter longest one than such: the first and the last stage
give up blocks for what they have besides, the others share what is left. (Megatron-LM cuts them by
`--decoder-first-pipeline-num-layers` and `--decoder-last-pipeline-num-layers`.) Where blocks differ, stages that share
the model's FLOPs as evenly as can be are looked at as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from phaze.placement.strategy.division import Division
from phaze.solvers.placement.partition import balanced_cuts
from phaze.workload.work import LayerChain

Floats = NDArray[np.float64]
MOST = 4  # blocks that an end gives up


def stage_cuts(flops: Floats, stages: int) -> tuple[tuple[int, ...], ...]:
    """Blocks of every stage in every way but the even one; `flops` (B,): as of `block_flops`."""
    count = len(flops)
    if not 1 < stages < count:
        return ()
    found = dict.fromkeys(_lighter_ends(count, stages, _blocks_worth(flops)))
    if not np.allclose(flops[1:-1], flops[1]):
        scaled = np.ldexp(flops, -np.frexp(flops.max())[1])  # to the bit the same for twice the samples
        found[_balanced(tuple(scaled.tolist()), stages)] = None
    found.pop(tuple(count // stages + (part < count % stages) for part in range(stages)), None)
    return tuple(found)


def block_flops(chain: LayerChain, division: Division) -> Floats:
    """Model FLOPs of every block, the ends with the nearest one, (B,); `division`: of the whole model in one part."""
    each = np.array([chain.layers[unique].model_flops for unique in chain.index])
    first = np.flatnonzero(division.body)
    starts = [division.groups[group][0] for group in first]
    starts[0] = 0
    found: Floats = np.add.reduceat(each, starts)
    return found


def _blocks_worth(flops: Floats) -> int:
    """How many blocks the head is worth, rounded up, at least 1."""
    usual = float(np.median(flops))
    worth = int(np.ceil((flops[-1] - usual) / usual - 1e-9)) if usual > 0 else 1
    return min(max(worth, 1), MOST)


@cache
def _balanced(flops: tuple[float, ...], stages: int) -> tuple[int, ...]:
    """Blocks of the stages that share these as evenly as can be."""
    return tuple(balanced_cuts(np.array(flops)[None], [stages])[stages][0].tolist())


@cache
def _lighter_ends(count: int, stages: int, head: int) -> tuple[tuple[int, ...], ...]:
    """All of `_each_lighter_end`."""
    return tuple(_each_lighter_end(count, stages, head))


def _each_lighter_end(count: int, stages: int, head: int) -> Iterator[tuple[int, ...]]:
    """Cuts whose first stage has at most one block less than most have, and whose last has up to `head` less."""
    most = -(-count // stages)
    for first, last in product((most, most - 1), range(most, most - 1 - head, -1)):
        rest, inner = count - first - last, stages - 2
        if min(first, last) < 1 or rest < inner or (inner == 0 and rest):
            continue
        yield (first, *(rest // inner + (part < rest % inner) for part in range(inner)), last)
    if stages == 2:
        for last in range(count // 2 - 1, max(count // 2 - 1 - head, 0), -1):
            yield count - last, last
