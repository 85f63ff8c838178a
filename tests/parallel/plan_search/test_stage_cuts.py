"""Stages whose ends have fewer blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from strategy_cases import small_gpt

from phaze.parallel.chunk_division import Grain, divide
from phaze.parallel.plan_batches.stage_cuts import block_flops, stage_cuts
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload


@pytest.mark.parametrize(("layers", "stages"), [(4, 2), (4, 3), (7, 2), (7, 3), (9, 4), (12, 5), (12, 11)])
def test_every_cut_has_all_blocks_and_none_is_even(layers, stages):
    chain = small_gpt(layers).chain(1, 1)
    found = stage_cuts(block_flops(chain, divide(chain, 1)), stages)
    assert found
    for cut in found:
        assert sum(cut) == layers
        assert min(cut) >= 1
        assert len(cut) == stages
        assert cut != tuple(divide(chain, stages).blocks.tolist())
    assert len(set(found)) == len(found)


def test_models_in_one_part_or_block_by_block_have_no_other_cut():
    chain = small_gpt(4).chain(1, 1)
    whole = divide(chain, 1)
    assert stage_cuts(block_flops(chain, whole), 1) == stage_cuts(block_flops(chain, whole), 4) == ()


@pytest.mark.parametrize("head", [0.2, 0.7, 1.0, 1.6, 2.3])
@pytest.mark.parametrize(("layers", "stages"), [(6, 2), (7, 3), (8, 3), (8, 4), (10, 4)])
def test_no_cut_at_all_has_a_shorter_longest_stage(layers, stages, head):
    """Blocks alike, with an embedding that takes little and a head that takes as much as some blocks."""
    chain = small_gpt(layers).chain(1, 1)
    block = sum(
        chain.layers[i].model_flops
        for i, name in zip(chain.index, chain.names, strict=True)
        if "block1." in name
    )
    *layers_, last = chain.layers
    flops = [*(replace(one, model_flops=0.0) if one.kind == "loss" else one for one in layers_), last]
    heavy = replace(chain, layers=tuple(flops))
    at = chain.index[-2] if chain.names[-1] == "loss" else chain.index[-1]
    heavy = replace(
        heavy,
        layers=tuple(
            replace(one, model_flops=head * block) if i == at else one for i, one in enumerate(heavy.layers)
        ),
    )
    division = divide(heavy, 1)
    seconds = np.ones(layers)
    seconds[0] += 0.01
    seconds[-1] += head

    def longest(cut):
        return np.add.reduceat(seconds, np.cumsum([0, *cut[:-1]])).max()

    even = tuple(divide(heavy, stages).blocks.tolist())
    every = [cut for cut in product(range(1, layers + 1), repeat=stages) if sum(cut) == layers]
    best = min(map(longest, every))
    assert min(map(longest, [even, *stage_cuts(block_flops(heavy, division), stages)])) <= best * (1 + 1e-9)


def test_blocks_that_differ_share_the_flops():
    chain = load_workload("deepseek-v3", Mode.TRAINING).chain(1, 1)
    found = stage_cuts(block_flops(chain, divide(chain, 1)), 8)
    assert any(len(set(cut)) > 1 for cut in found)
    assert all(sum(cut) == sum(divide(chain, 8).blocks.tolist()) for cut in found)


@pytest.mark.parametrize("attention", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("head", [0.2, 0.7, 1.6, 3.3])
@pytest.mark.parametrize(("layers", "stages"), [(5, 2), (6, 3), (7, 4), (6, 5), (5, 7)])
def test_no_cut_between_layers_has_a_shorter_longest_stage(layers, stages, attention, head):
    """Halves of blocks, one of which takes longer than its FLOPs say, and a head that takes some halves."""
    seconds = np.tile([attention, 1.0], layers)
    flops = np.ones(2 * layers)
    seconds[-1] += head
    flops[-1] += head

    def longest(cut):
        return np.add.reduceat(seconds, np.cumsum([0, *cut[:-1]])).max()

    even = tuple(2 * layers // stages + (part < 2 * layers % stages) for part in range(stages))
    every = [np.diff([0, *cut, 2 * layers]) for cut in combinations(range(1, 2 * layers), stages - 1)]
    found = stage_cuts(flops, stages, Grain.LAYER)
    assert all(sum(cut) == 2 * layers and len(cut) == stages and min(cut) >= 1 for cut in found)
    assert min(map(longest, [even, *found])) <= min(map(longest, every)) * (1 + 1e-9)
