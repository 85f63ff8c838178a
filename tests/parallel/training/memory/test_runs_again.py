"""What of a forward pass runs again under full recompute, and what it holds in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.memory.memory_footprint import INPUT
from phaze.parallel.training.memory.recomputation import runs_again
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Layer
from phaze.workload.workload import Attention

COMPILER = framework(prunes_recompute=True)
FULL = ParallelPlan(microbatch=2, data_parallel=8, recompute=Recompute.FULL)


def layer(kind: str, tensor: int = 1) -> Layer:
    chain = small_gpt(attention=Attention.FLASH).chain(2, Sharding(tensor))
    return next(found for found in chain.layers if found.kind == kind)


def again(kind: str, kept: frozenset[str] = frozenset(), prunes: bool = True, tensor: int = 1) -> set[str]:
    pass_ = layer(kind, tensor).forward
    runs = runs_again(pass_, kept, ends=kind == "block.mlp", prunes=prunes)
    return {work.name for work, one in zip(pass_.works, runs, strict=True) if one}


def test_without_a_compiler_all_of_it_runs_again():
    assert again("block.mlp", prunes=False) == {work.name for work in layer("block.mlp").forward.works}
    assert "qkv" not in again("block.attention", frozenset({"qkv"}), prunes=False)


@pytest.mark.parametrize("tensor", [1, 2])
def test_nobody_reads_what_a_block_ends_with(tensor):
    lost = {work.name for work in layer("block.mlp", tensor).forward.works} - again(
        "block.mlp", tensor=tensor
    )
    assert "down" in lost
    assert {"norm", "up"} & lost == set()
    assert ("down.reduce" in lost) == (tensor > 1)
    # The other half of the block reads what attention ends with.
    everything = {work.name for work in layer("block.attention", tensor).forward.works}
    assert again("block.attention", tensor=tensor) == everything


def test_results_that_are_kept_spare_their_products_but_not_the_operands():
    kept = frozenset({"qkv", "projection", "up", "down"})
    assert "flash" in again("block.attention", kept)
    assert "norm" in again("block.attention", kept)
    assert not kept & (again("block.attention", kept) | again("block.mlp", kept))


def test_time_falls_and_memory_grows_with_what_is_kept():
    e = estimator(software=COMPILER, workload=small_gpt(attention=Attention.FLASH))
    kept = frozenset({"qkv"})
    full, less, away, none = (
        e.iteration(s)
        for s in (
            FULL,
            replace(FULL, kept=kept),
            replace(FULL, offloaded=kept | {INPUT}),
            replace(FULL, recompute=Recompute.NONE),
        )
    )
    eager = estimator(workload=small_gpt(attention=Attention.FLASH)).iteration(FULL)
    assert eager.iteration_s > full.iteration_s > less.iteration_s > none.iteration_s
    assert away.iteration_s == less.iteration_s
    saved = [i.memory[0].activations_bytes for i in (away, full, less, none)]
    assert saved == sorted(saved)
    result = 2 * 256 * 3 * 512 * 2  # samples, tokens, queries and keys and values, bytes
    assert saved[2] - saved[1] == pytest.approx(4 * result)


def test_experts_compute_the_room_they_have():
    strategy = ParallelPlan(microbatch=2, data_parallel=8)
    workload = small_gpt(experts=4)
    plain, roomy = (
        estimator(chip=chip, software=framework(expert_room=room), workload=workload).layer_costs(strategy)
        for chip, room in (("a100", 1.0), ("a100", 1.25))
    )
    longer = roomy.forward.kernels_s / plain.forward.kernels_s
    sparse = np.array([one.expert_parameters > 0 for one in plain.chain.layers])
    assert (longer[~sparse] == 1).all()
    assert (longer[sparse] > 1).all()
    assert (longer <= 1.25).all()
