"""`place_batch` and `lower_bound`: the same answers as one architecture at a time, and valid bounds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.placement import (
    PlacementBatch,
    PlacementStatus,
    lower_bound,
    place,
    place_batch,
    read_problem,
)
from phaze.solvers.placement.chain import chain_search
from placement_oracle import exhaustive, instances

FILES = sorted((Path(__file__).parents[2] / "data" / "placement").glob("*.json"))


def vary(problem, architectures, seed, *, memory=False):
    """Architectures of other speeds, also relative ones of the layers; the first is the problem's own."""
    rng = np.random.default_rng(seed)
    own = PlacementBatch.of(problem)
    speed = rng.choice([0.5, 1.0, 2.0], (architectures, 1, 1))
    forward, backward = rng.choice([1.0, 1.5, 3.0], (2, architectures, *own.forward_s.shape[1:]))
    size = rng.choice([0.7, 1.0, 1.5], architectures) if memory else np.ones(architectures)
    speed[0], forward[0], backward[0], size[0] = 1, 1, 1, 1
    return PlacementBatch(
        problem,
        own.forward_s * speed * forward,
        own.backward_s * speed * backward,
        problem.device_memory_bytes * size,
    )


def untimed(plan):
    return replace(plan, runtime_s=0.0)


@settings(max_examples=150, deadline=None)
@given(instances(), st.integers(0, 99), st.booleans(), st.sampled_from([1, 100, 300_000]))
def test_every_row_is_what_place_finds_for_it(document, seed, memory, block):
    batch = vary(read_problem(document), 4, seed, memory=memory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_search, "BLOCK", block)
        result = place_batch(batch)
    bounds_s = lower_bound(batch)
    for row, plan in enumerate(result.plans):
        alone = place(batch.one(row))
        assert untimed(plan) == untimed(alone)
        assert bounds_s[row] <= alone.lower_bound_s
        assert result.time_per_batch_s[row] == alone.lower_bound_s
        assert result.num_stages[row] == len(alone.stages)


@settings(max_examples=150, deadline=None)
@given(instances())
def test_no_partition_beats_the_bound(document):
    problem = read_problem(document)
    assert lower_bound(PlacementBatch.of(problem))[0] <= exhaustive(problem)


def test_the_bound_is_close_on_the_public_instances():
    ratios = []
    for path in FILES:
        document = json.loads(path.read_text())
        bound_s = float(lower_bound(PlacementBatch.of(read_problem(document)))[0])
        if document["expected"] is not None:
            ratios.append(bound_s / document["expected"]["time_per_batch_s"])
    assert len(ratios) == 37
    assert max(ratios) <= 1
    assert np.median(ratios) > 0.85


def test_models_of_realistic_size_and_different_memories():
    path = next(path for path in FILES if path.stem == "public-25-gpt3-175b-L98-D512")
    batch = vary(replace(read_problem(json.loads(path.read_text())), num_devices=1024), 6, 0, memory=True)
    result = place_batch(batch)
    assert [untimed(plan) for plan in result.plans] == [untimed(place(batch.one(row))) for row in range(6)]
    assert (lower_bound(batch) <= result.time_per_batch_s).all()


def test_nothing_fits_some_of_them():
    problem = read_problem(json.loads(FILES[0].read_text()))
    latencies = PlacementBatch.of(problem).forward_s.repeat(3, axis=0)
    batch = PlacementBatch(problem, latencies, latencies, np.array([1.0, problem.device_memory_bytes, 0.0]))
    result = place_batch(batch)
    status = [plan.status for plan in result.plans]
    assert status == [PlacementStatus.INFEASIBLE, PlacementStatus.OPTIMAL, PlacementStatus.INFEASIBLE]
    assert np.isinf(result.time_per_batch_s).tolist() == [True, False, True]
    assert result.tensor_parallel.tolist()[::2] == result.data_parallel.tolist()[::2] == [0, 0]


def test_no_architectures():
    problem = read_problem(json.loads(FILES[0].read_text()))
    none = np.empty((0, len(problem.models), len(problem.layer_ids)))
    batch = PlacementBatch(problem, none, none)
    assert place_batch(batch).plans == ()
    assert lower_bound(batch).shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward_s": np.zeros((2, 1, 5))}, "do not fit"),
        ({"device_memory_bytes": np.ones(3)}, "do not fit"),
        ({"backward_s": np.full((2, 1, 6), np.nan)}, "finite"),
        ({"backward_s": np.full((2, 1, 6), -1.0)}, "not negative"),
    ],
)
def test_arrays_that_do_not_fit_the_problem(change, message):
    problem = read_problem(json.loads(FILES[0].read_text()))
    arrays = {"forward_s": np.ones((2, 1, 6)), "backward_s": np.ones((2, 1, 6))}
    with pytest.raises(ValueError, match=message):
        PlacementBatch(problem, **{**arrays, **change})


def test_bounds_leave_little_to_search(monkeypatch):
    """Stage counts tabulated for GPT-3 on 1024 devices: 4 widths x 98 without bounds."""
    steps = []
    extend = chain_search.SuffixTables.extend
    monkeypatch.setattr(
        chain_search.SuffixTables, "extend", lambda *arguments: steps.append(1) or extend(*arguments)
    )
    path = next(path for path in FILES if path.stem == "public-25-gpt3-175b-L98-D512")
    problem = replace(read_problem(json.loads(path.read_text())), num_devices=1024)
    place(problem)
    alone = len(steps)
    assert alone < 100
    place_batch(vary(problem, 50, 0))
    assert len(steps) - alone < 200
