"""Cuts of pipelines with one chunk per device: even, and with fewer blocks beside the embedding and the head.

Blocks are alike in most models, and then no stages have a shorter longest one than such: the first and the last stage
give up blocks for what they have besides, the others share what is left. (Megatron-LM cuts them by
`--decoder-first-pipeline-num-layers` and `--decoder-last-pipeline-num-layers`.) Where blocks differ, stages that share
the model's FLOPs as evenly as can be are looked at as well. So are single layers: attention and feed-forward networks
take turns, so that stages with equally many of them differ by no more than one such.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.chunk_division import Division, Grain
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.solvers.placement.partition import balanced_cuts
from phaze.workload.work import LayerChain

MOST = 4  # blocks that an end gives up


def cuts_of(
    deep: ParallelPlan, space: PlanSpace, flops: Floats, layouts: PlanLayouts
) -> tuple[tuple[int, ...], ...]:
    """Stages of a pipeline that a space has, even ones empty; of single layers those that cut a block in two."""
    uneven = (
        stage_cuts(flops, deep.pipeline_parallel, deep.grain) if space.balances and deep.chunks == 1 else ()
    )
    return tuple(cut for cut in ((), *uneven) if layouts.cuts_its_own(changed_plan(deep, stages=cut)))


def stage_cuts(flops: Floats, stages: int, grain: Grain = Grain.BLOCK) -> tuple[tuple[int, ...], ...]:
    """Blocks, or layers, of every stage in every way but the even one; `flops` (B,): as of `block_flops`."""
    count = len(flops)
    if not 1 < stages < count:
        return ()
    ends = _lighter_ends if grain is Grain.BLOCK else _ends_of_layers
    found = dict.fromkeys(ends(count, stages, _blocks_worth(flops, grain)))
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


def _blocks_worth(flops: Floats, grain: Grain) -> int:
    """Worth of the head in blocks, or layers, rounded up, at least 1."""
    usual = float(np.median(flops) if grain is Grain.BLOCK else flops[:-1].mean())
    worth = int(np.ceil((flops[-1] - usual) / usual - 1e-9)) if usual > 0 else 1
    worth = min(max(worth, 1), MOST if grain is Grain.BLOCK else 2 * MOST)
    return worth + (
        grain is Grain.LAYER
    )  # the one that takes less than its FLOPs say leaves room for another


def _balanced(flops: tuple[float, ...], stages: int) -> tuple[int, ...]:
    """Blocks of the stages that share these as evenly as can be."""
    return _balanced_up_to(flops, 1 << (stages - 1).bit_length())[stages]


@cache
def _balanced_up_to(flops: tuple[float, ...], most: int) -> dict[int, tuple[int, ...]]:
    """The same for all numbers of stages from half of so many on: one program finds them together."""
    some = range(most // 2 + 1, min(most, len(flops)) + 1)
    found = balanced_cuts(np.array(flops)[None], list(some))
    return {stages: tuple(sizes[0].tolist()) for stages, sizes in found.items()}


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


@cache
def _ends_of_layers(count: int, stages: int, head: int) -> tuple[tuple[int, ...], ...]:
    """Cuts whose first stage has at most a block less than the longest inner one, its last up to `head`."""
    if stages == 2:
        return tuple((count - last, last) for last in range(count // 2, max(count // 2 - 1 - head, 0), -1))
    least, inner = -(-count // stages), stages - 2
    found = []
    for longest in range(least, least + head + 2):
        for first, last in product(range(longest, longest - 3, -1), range(longest, longest - 1 - head, -1)):
            rest = count - first - last
            if min(first, last) >= 1 and -(-rest // inner) == longest:
                found.append((first, *(rest // inner + (part < rest % inner) for part in range(inner)), last))
    return tuple(found)
