"""Contiguous partition for many architectures: against enumeration, and one method against the other."""

import math
from contextlib import contextmanager
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.placement.partition import (
    PartitionProblem,
    StageLimits,
    balanced_cuts,
    best_cuts,
    bottlenecks,
    fewest_stages,
    lower_bounds,
    stage_limits,
    stage_partition_dp,
    weighted_bottlenecks,
)
from phaze.solvers.placement.partition import stage_partition as partition
from phaze.solvers.placement.partition.threshold_search import is_monotone

# Expected seconds per element that make the automatic choice fall on the recurrence or the threshold search.
METHODS = pytest.mark.parametrize("dp_s_per_element", [0.0, 1.0], ids=["recurrence", "threshold"])
BYTES = ("static_bytes", "saved_bytes", "input_bytes", "working_bytes")


@contextmanager
def method(dp_s_per_element):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "DP_S_PER_ELEMENT", dp_s_per_element)
        yield


@st.composite
def chains(draw, max_layers=7):
    """A problem of whole numbers (every sum is exact), its memory figures, and the layers' weights."""
    layers, architectures = draw(st.integers(1, max_layers)), draw(st.integers(1, 3))
    kinds = draw(st.integers(1, layers))
    kind = np.array(draw(st.lists(st.integers(0, kinds - 1), min_size=layers, max_size=layers)))

    def numbers(rows, columns, high):
        row = st.lists(st.integers(0, high), min_size=columns, max_size=columns)
        return np.array([draw(row) for _ in range(rows)], dtype=float)

    plain = numbers(architectures, kinds, 9)[:, kind]
    boundary = numbers(architectures, layers + 1, draw(st.sampled_from([0, 1, 6])))
    if draw(st.booleans()):  # as in a transformer: every inner boundary is the same
        boundary[:, 1:-1] = boundary[:, :1]
        boundary[:, [0, -1]] = 0
    memory = {name: row[kind] for name, row in zip(BYTES, numbers(4, kinds, 5), strict=True)} | {
        "memory_bytes": float(draw(st.integers(5, 60))),
        "recompute": draw(st.booleans()),
        "inflight_limit": draw(st.sampled_from([None, 1, 2])),
    }
    recomputed = plain + (numbers(architectures, kinds, 4)[:, kind] if memory["recompute"] else 0)
    problem = PartitionProblem(plain, recomputed, boundary, stage_limits(**memory), kind)
    return problem, memory, numbers(1, layers, 5)[0]


def stage_load(case, architecture, first, end, index):
    """Seconds of the stage first..end-1 at an index from the end; inf if it does not fit."""
    problem, memory, _ = case
    limit = memory["inflight_limit"]
    held = index if limit is None else min(index, limit)
    layers = slice(first, end)
    static, saved, inputs, working = (memory[name][layers] for name in BYTES)
    plain_fits = static.sum() + held * saved.sum() + working.max() <= memory["memory_bytes"]
    recompute_fits = (
        memory["recompute"]
        and static.sum() + held * inputs.sum() + (saved + working).max() <= memory["memory_bytes"]
    )
    ends = problem.boundary_s[architecture, first] + problem.boundary_s[architecture, end]
    if plain_fits and (index == 1 or not memory["recompute"]):
        return problem.plain_s[architecture, layers].sum() + ends
    if recompute_fits:
        return problem.recompute_s[architecture, layers].sum() + ends
    return math.inf


def partitions(layers, most):
    """Starts of the stages, and the layer count at the end, of every partition into at most `most` stages."""
    for count in range(min(most, layers)):
        for cuts in combinations(range(1, layers), count):
            yield (0, *cuts, layers)


def exhaustive(case, architecture, most, load_factor, weight_factor):
    """Least value over all partitions, by enumeration."""
    problem, _, weight = case
    best = math.inf
    for ends in partitions(problem.layers, most):
        loads = [
            stage_load(case, architecture, i, j, len(ends) - 1 - number)
            for number, (i, j) in enumerate(pairwise(ends))
        ]
        heaviest = max(weight[i:j].sum() for i, j in pairwise(ends))
        if math.isfinite(max(loads)):
            best = min(best, load_factor * max(loads) + weight_factor * heaviest)
    return best


@METHODS
@settings(max_examples=250, deadline=None)
@given(case=chains())
def test_bottlenecks_equal_enumeration(dp_s_per_element, case):
    problem = case[0]
    stages = list(range(1, problem.layers + 2))
    with method(dp_s_per_element):
        found, bounds = bottlenecks(problem, stages), lower_bounds(problem, stages)
    for a in range(problem.architectures):
        expected = [exhaustive(case, a, most, 1, 0) for most in stages]
        assert found[a].tolist() == expected
    assert (bounds <= found).all()


@settings(max_examples=250, deadline=None)
@given(case=chains())
def test_fewest_stages_are_those_of_the_first_partition_that_fits(case):
    problem, memory, _ = case
    fits = np.isfinite(bottlenecks(problem, range(1, problem.layers + 1))[0])
    assert fewest_stages(**memory) == (fits.argmax() + 1 if fits.any() else 0)


@METHODS
@settings(max_examples=150, deadline=None)
@given(case=chains(), load_factor=st.integers(0, 3), weight_factor=st.integers(0, 3))
def test_weighted_bottlenecks_equal_enumeration(dp_s_per_element, case, load_factor, weight_factor):
    problem, _, weight = case
    stages = list(range(1, problem.layers + 1))
    with method(dp_s_per_element):
        found = weighted_bottlenecks(problem, stages, weight, load_factor, weight_factor)
    for a in range(problem.architectures):
        expected = [exhaustive(case, a, most, load_factor, weight_factor) for most in stages]
        assert found.value[a].tolist() == expected
    fits = np.isfinite(found.value)
    attained = load_factor * found.load_s[fits] + weight_factor * found.weight[fits]
    assert (attained == found.value[fits]).all()


@METHODS
@settings(max_examples=150, deadline=None)
@given(case=chains(), most=st.integers(1, 7), weight_factor=st.integers(0, 3))
def test_best_cuts_attain_what_is_promised(dp_s_per_element, case, most, weight_factor):
    problem, _, weight = case
    promised = weighted_bottlenecks(problem, [most], weight, 1.0, weight_factor)
    for a in range(problem.architectures):
        with method(dp_s_per_element):
            found = best_cuts(problem, a, most, weight=weight, weight_factor=weight_factor)
        if math.isinf(promised.value[a, 0]):
            assert found.starts == ()
            assert math.isinf(found.load_s)
            continue
        assert len(found.starts) <= most
        ends = (*found.starts, problem.layers)
        loads = [
            stage_load(case, a, i, j, len(found.starts) - number)
            for number, (i, j) in enumerate(pairwise(ends))
        ]
        assert list(found.loads_s) == loads
        assert found.load_s + weight_factor * max(found.weights) == promised.value[a, 0]


def transformer(rng, architectures, blocks, *, noise, memory_bytes, recompute=True):
    """Embedding, blocks of attention and MLP, norm, head, with rounded-off times."""
    kind = np.array([0] + [1, 2] * blocks + [3, 4])
    times = rng.uniform([0.5, 10, 20, 0.2, 20], [2, 30, 50, 0.5, 100], size=(architectures, 5))[:, kind]
    if noise:
        times = times * rng.uniform(0.85, 1.15, size=times.shape)
    boundary = np.repeat(rng.uniform(0.1, 3.0, size=(architectures, 1)), kind.size + 1, axis=1)
    boundary[:, [0, -1]] = 0
    limits = stage_limits(
        static_bytes=np.array([2, 3, 6, 0, 2])[kind] * 1e9,
        saved_bytes=np.array([1, 6, 8, 1, 5])[kind] * 1e8,
        input_bytes=np.array([0, 1, 1, 1, 1])[kind] * 1e8,
        working_bytes=np.array([1, 6, 8, 1, 5])[kind] * 1e7,
        memory_bytes=memory_bytes,
        recompute=recompute,
    )
    return PartitionProblem(3 * times, 4 * times, boundary, limits, kind)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("memory_bytes", [2e10, 6e10, 1e12])
@pytest.mark.parametrize("recompute", [False, True])
def test_threshold_search_and_recurrence_agree_to_the_last_bit(noise, memory_bytes, recompute):
    problem = transformer(
        np.random.default_rng(7), 12, 24, noise=noise, memory_bytes=memory_bytes, recompute=recompute
    )
    assert is_monotone(problem).all()
    stages = [1, 2, 3, 5, 8, 13, 21, 34, 51, 64]
    with method(1.0):
        found = bottlenecks(problem, stages)
    table = stage_partition_dp.bottlenecks(problem, max(stages))
    assert np.array_equal(found, table[:, np.array(stages) - 1])
    assert (lower_bounds(problem, stages) <= found).all()


@METHODS
def test_weighted_search_on_longer_chains_equals_a_scan_over_caps(dp_s_per_element):
    problem = transformer(np.random.default_rng(3), 2, 10, noise=True, memory_bytes=6e10)
    weight = np.array([5, 3, 6, 0, 5.0])[problem.kind]
    with method(dp_s_per_element):
        found = weighted_bottlenecks(problem, [4, 7], weight, 1.0, 40.0)
    for a in range(2):
        for column, most in enumerate([4, 7]):
            options = []
            for cap in np.unique(np.add.accumulate(np.sort(weight))):
                allowed = np.array([[weight[i : j + 1].sum() <= cap for j in range(23)] for i in range(23)])
                starts = stage_partition_dp.trace(problem.select(np.array([a])), most, allowed)
                if starts:
                    ends = (*starts, 23)
                    loads = problem.ends_s[a, list(ends[1:])] - problem.starts_s[a, list(ends[:-1])]
                    loads[-1] = problem.last_s[a, starts[-1]]
                    heaviest = max(weight[i:j].sum() for i, j in pairwise(ends))
                    options.append(loads.max() + 40.0 * heaviest)
            assert found.value[a, column] == pytest.approx(min(options), rel=1e-12)


def test_boundaries_that_break_monotonicity_use_the_recurrence():
    boundary = np.array([[0, 9.0, 1, 8, 0]])
    times = np.array([[2.0, 1, 3, 2]])
    limits = stage_limits(**{name: np.zeros(4) for name in BYTES}, memory_bytes=1.0, recompute=False)
    problem = PartitionProblem(times, times, boundary, limits, np.arange(4))
    assert not is_monotone(problem).any()
    # One stage: 8. Two: the cut at the cheap boundary, 2 + 1 + 1 and 1 + 3 + 2.
    assert bottlenecks(problem, [1, 2, 3, 4]).tolist() == [[8, 6, 6, 6]]
    assert best_cuts(problem, 0, 4).starts == (0, 2)


def test_a_pipeline_too_deep_for_memory_is_infeasible_and_a_shallower_one_is_not_lost():
    ones = np.ones((1, 4))
    limits = stage_limits(
        static_bytes=np.zeros(4),
        saved_bytes=np.ones(4),
        input_bytes=np.ones(4),
        working_bytes=np.zeros(4),
        memory_bytes=2.0,
        recompute=False,
    )
    problem = PartitionProblem(ones, ones, np.zeros((1, 5)), limits, np.zeros(4, dtype=int))
    # At index s a stage holds s copies: two layers last, one before, and nothing ever at index 3.
    assert np.isinf(bottlenecks(problem, [1, 2, 3, 4])).all()
    three = PartitionProblem(
        ones[:, :3],
        ones[:, :3],
        np.zeros((1, 4)),
        stage_limits(
            static_bytes=np.zeros(3),
            saved_bytes=np.ones(3),
            input_bytes=np.ones(3),
            working_bytes=np.zeros(3),
            memory_bytes=2.0,
            recompute=False,
        ),
        np.zeros(3, dtype=int),
    )
    assert bottlenecks(three, [1, 2, 3]).tolist() == [[math.inf, 2, 2]]


@pytest.mark.parametrize("field", ["plain_s", "boundary_s"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_times_must_be_finite_and_not_negative(field, value):
    arrays = {"plain_s": np.ones((1, 2)), "recompute_s": np.ones((1, 2)), "boundary_s": np.zeros((1, 3))}
    arrays[field][0, 0] = value
    limits = stage_limits(**{n: np.zeros(2) for n in BYTES}, memory_bytes=1.0, recompute=False)
    with pytest.raises(ValueError, match="finite"):
        PartitionProblem(**arrays, limits=limits, kind=np.zeros(2, dtype=int))


def test_shapes_must_fit():
    limits = stage_limits(**{n: np.zeros(2) for n in BYTES}, memory_bytes=1.0, recompute=False)
    with pytest.raises(ValueError, match="shapes"):
        PartitionProblem(np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 2)), limits, np.zeros(2, dtype=int))


@pytest.mark.parametrize("seed", range(8))
def test_cuts_of_several_numbers_of_stages_at_once(seed):
    """As short as those of one number at a time, of every chain."""
    rng = np.random.default_rng(seed)
    chains, layers = int(rng.integers(1, 5)), int(rng.integers(1, 20))
    layer_s = rng.choice([1.0, 1.0, 2.5, rng.random()], (chains, layers))
    found = balanced_cuts(layer_s, range(1, layers + 1))
    limits = StageLimits(np.full((layers, layers), layers), None)
    ends = np.zeros((chains, layers + 1))
    problem = PartitionProblem(layer_s, layer_s, ends, limits, np.arange(layers), exactly=True)
    best = bottlenecks(problem, range(1, layers + 1))
    for stages, sizes in found.items():
        assert sizes.shape == (chains, stages)
        assert (sizes >= 1).all()
        for row, least in zip(range(chains), best[:, stages - 1], strict=True):
            starts = np.cumsum(sizes[row]) - sizes[row]
            assert np.add.reduceat(layer_s[row], starts).max() == pytest.approx(least, rel=1e-12)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match="2 layers do not make 3 stages"):
        balanced_cuts(np.ones((1, 2)), [3])


@pytest.mark.parametrize(("stages", "expected"), [(1, 60), (4, 15), (5, 13), (6, 10), (7, 10), (8, 8)])
def test_layers_that_repeat_are_counted(stages, expected):
    """24 layers of 2 and 3 s in turn, of which the average stage holds a fraction."""
    times = np.tile([2.0, 3.0], 12)[None]
    anywhere = StageLimits(np.full((24, 24), 24), None)
    problem = PartitionProblem(times, times, np.zeros((1, 25)), anywhere, np.tile([0, 1], 12))
    bound = lower_bounds(problem, [stages])[0, 0]
    assert bottlenecks(problem, [stages])[0, 0] == expected
    assert bound == pytest.approx(expected, rel=1e-9)


def test_stages_deep_in_the_pipeline_have_room_for_few_layers():
    """12 equal layers in 3 stages that hold 3, 2 and 1 microbatches: the first two have room for 2 and 4."""
    ones = np.ones(12)
    limits = stage_limits(
        static_bytes=0 * ones,
        saved_bytes=ones,
        input_bytes=ones,
        working_bytes=0 * ones,
        memory_bytes=8.0,
        recompute=False,
    )
    problem = PartitionProblem(
        ones[None], ones[None], np.zeros((1, 13)), limits, np.zeros(12, dtype=np.int64)
    )
    assert lower_bounds(problem, [3])[0, 0] == pytest.approx(6.0)
    assert bottlenecks(problem, [3])[0, 0] == 6.0
