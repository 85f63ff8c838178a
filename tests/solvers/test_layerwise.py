"""A strategy for each layer: published numbers of candidates, every choice by brute force, a program of HiGHS."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb, inf

import numpy as np
import pytest
from phaze.solvers.layerwise import (
    Axis,
    ChoiceError,
    ChoiceStatus,
    LayerProblem,
    LayerStrategy,
    candidate_strategies,
    check_choice,
    choose_layers,
)
from scipy.optimize import Bounds, LinearConstraint, milp


@pytest.mark.parametrize(
    ("devices", "all_of_them", "pruned"), [(8, 34, 22), (16, 73, 37), (32, 136, 56), (64, 229, 79)]
)
def test_published_numbers_of_candidates(devices, all_of_them, pruned):
    """Galvatron (arXiv 2211.13878); with recompute twice as many (Galvatron-BMW, 2307.02031: 68 and 44 for 8)."""
    assert len(set(candidate_strategies(devices, mixed=True))) == all_of_them
    assert len(set(candidate_strategies(devices))) == pruned
    assert len(set(candidate_strategies(devices, mixed=True, recompute=True))) == 2 * all_of_them
    assert len(set(candidate_strategies(devices, recompute=True))) == 2 * pruned


def test_candidates_divide_the_devices_of_a_stage():
    """k doublings over m of three axes, in order: 3! / (3 - m)! orders, and C(k - 1, m - 1) shares of doublings."""
    found = candidate_strategies(32, mixed=True)
    assert all(one.pipeline * one.devices == 32 for one in found)
    for k in range(1, 6):
        here = [one for one in found if one.devices == 2**k]
        assert len(here) == 3 + 6 * comb(k - 1, 1) + 6 * comb(k - 1, 2)
    with pytest.raises(ValueError, match="power of two, not 12"):
        candidate_strategies(12)


def test_groups_of_the_last_level_are_neighbours():
    one = LayerStrategy(2, ((Axis.SHARDED, 2), (Axis.TENSOR, 4)), recompute=True)
    assert (one.name, one.degree(Axis.TENSOR), one.degree(Axis.DATA)) == ("p2-s2-t4-r", 4, 1)
    assert (one.stride(Axis.TENSOR), one.stride(Axis.SHARDED), one.stride(Axis.DATA)) == (1, 4, 1)


def drawn(seed, layers=6, strategies=4):
    """A problem of numbers that come again, with strategies that some layers cannot have."""
    random = np.random.default_rng(seed)
    time_s = random.integers(1, 12, (layers, strategies)) / 4
    time_s[random.random(time_s.shape) < 0.15] = inf
    memory = random.integers(1, 30, (layers, strategies)) * (0.1 if seed % 2 else 1.0)
    change = random.integers(0, 5, (layers, strategies, strategies)) / 8
    problem = LayerProblem(time_s, memory, change, 1.0)
    spread = random.uniform(0.95, 2.0)
    return replace(problem, limit_bytes=problem.least_bytes * spread if problem.least_bytes < inf else 50.0)


def every_choice(problem):
    for choice in product(range(problem.time_s.shape[1]), repeat=len(problem.time_s)):
        try:
            yield check_choice(problem, choice)[0]
        except ChoiceError:
            continue


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("seed", range(24))
def test_every_choice_by_brute_force(seed, layers):
    problem = drawn(seed, layers=layers)
    least = min(every_choice(problem), default=inf)
    found = choose_layers(problem)
    if least == inf:
        assert (found.status, found.strategies) == (ChoiceStatus.INFEASIBLE, ())
        return
    assert found.status is ChoiceStatus.OPTIMAL
    assert found.time_s == found.lower_bound_s == pytest.approx(least, rel=1e-11)
    assert check_choice(problem, found.strategies) == (found.time_s, found.memory_bytes)


def test_brute_force_meets_limits_that_bind_and_that_nothing_meets():
    """The seeds above hold both, and some need more than prices of memory."""
    found = [choose_layers(drawn(seed, layers=5)) for seed in range(24)]
    assert {one.status for one in found} == {ChoiceStatus.OPTIMAL, ChoiceStatus.INFEASIBLE}
    assert sum(one.labels > 0 for one in found) > 5


def by_highs(time_s, memory, limit):
    """The knapsack with one choice for each layer, changes free, as an integer program."""
    layers, count = time_s.shape
    one_each = LinearConstraint(np.kron(np.eye(layers), np.ones(count)), 1, 1)
    fits = LinearConstraint(memory.ravel()[None], -np.inf, limit)
    whole = {"mip_rel_gap": 0.0}
    return milp(
        time_s.ravel(), integrality=1, bounds=Bounds(0, 1), constraints=[one_each, fits], options=whole
    )


@pytest.mark.parametrize("seed", range(4))
def test_without_changes_it_is_the_knapsack_of_osdp(seed):
    """OSDP (arXiv 2209.13258): replicate, or shard with half as many bytes again; here among {data, sharded}."""
    random = np.random.default_rng(seed)
    states = random.integers(10, 200, 30) * 1e6
    n, second_per_byte = 8, 1 / 10e9
    time_s = np.stack([2 * (n - 1) / n * states, 3 * (n - 1) / n * states], axis=1) * second_per_byte
    memory = np.stack([4 * states, 4 * states / n], axis=1)
    limit = float(memory[:, 0].sum() * random.uniform(0.3, 0.9))
    found = choose_layers(LayerProblem(time_s, memory, np.zeros((30, 2, 2)), limit))
    assert found.status is ChoiceStatus.OPTIMAL
    assert found.time_s == pytest.approx(by_highs(time_s, memory, limit).fun, rel=1e-9)


def test_layers_alike_change_once_where_changes_cost():
    """24 layers alike, a fast and a lean strategy: as many fast ones as fit, side by side."""
    time_s, memory = np.tile([1.0, 1.5], (24, 1)), np.tile([3.0, 1.0], (24, 1))
    change = np.broadcast_to(np.array([[0, 0.1], [0.1, 0]]), (24, 2, 2))
    found = choose_layers(LayerProblem(time_s, memory, change, 45.0))
    assert found.time_s == pytest.approx(10 * 1.0 + 14 * 1.5 + 0.1)
    assert sum(a != b for a, b in zip(found.strategies, found.strategies[1:], strict=False)) == 1
    dear = choose_layers(LayerProblem(time_s, memory, 100 * change, 45.0))
    assert (dear.time_s, set(dear.strategies)) == (24 * 1.5, {1})


def test_more_memory_is_never_slower():
    problem = drawn(3, layers=30, strategies=5)
    limits = np.linspace(problem.least_bytes, problem.memory_bytes.max(axis=1).sum(), 12)
    times = [choose_layers(replace(problem, limit_bytes=float(limit))).time_s for limit in limits]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_too_many_pairs_end_with_a_bound():
    problem = drawn(5, layers=40, strategies=6)
    exact, cut = choose_layers(problem), choose_layers(problem, most_labels=20)
    assert (exact.status, cut.status) == (ChoiceStatus.OPTIMAL, ChoiceStatus.FEASIBLE)
    assert cut.lower_bound_s <= exact.time_s <= cut.time_s
    assert 0 < cut.gap < 0.2
    check_choice(problem, cut.strategies)


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ((0,), "2 layers need"),
        ((0, 2), "layer 1 cannot"),
        ((1, 0), "layer 0 cannot"),
        ((0, 0), "hold 6 bytes of 5"),
    ],
)
def test_choices_that_break_a_rule(choice, told):
    time_s, memory = np.array([[1.0, inf], [1.0, 1.0]]), np.array([[3.0, 3.0], [3.0, 1.0]])
    with pytest.raises(ChoiceError, match=told):
        check_choice(LayerProblem(time_s, memory, np.zeros((2, 2, 2)), 5.0), choice)
