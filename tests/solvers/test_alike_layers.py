"""Counts of layers alike, against the dynamic program over single layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from phaze.solvers.layerwise import (
    ChoiceStatus,
    LayerKind,
    LayerProblem,
    choose_counts,
    choose_layers,
)


def spent(kinds, counts):
    each = [
        (n, k.time_s[s], k.memory_bytes[s])
        for k, row in zip(kinds, counts, strict=True)
        for s, n in enumerate(row)
    ]
    return sum(n * t for n, t, _ in each if n), sum(n * m for n, _, m in each)


def problem(kinds, limit):
    rows = [(k.time_s, k.memory_bytes) for k in kinds for _ in range(k.count)]
    time_s, held = (np.array(column) for column in zip(*rows, strict=True))
    count, strategies = time_s.shape
    return LayerProblem(time_s, held, np.zeros((count, strategies, strategies)), limit)


@pytest.mark.parametrize("seed", range(150))
def test_equal_to_the_dynamic_program_over_layers(seed):
    rng, strategies = np.random.default_rng(seed), 2 + seed % 4
    draw = (
        (lambda: rng.uniform(0, 10, strategies))
        if seed % 2
        else (lambda: 1.0 * rng.integers(0, 10, strategies))
    )
    kinds = []
    for _ in range(1 + seed % 3):
        time_s, held = draw(), draw()
        time_s[0], held[0] = 0.0, held.max() + seed % 5
        time_s[-1] = math.inf if rng.random() < 0.2 else time_s[-1]
        kinds.append(LayerKind(int(rng.integers(1, 9)), time_s, held))
    able = [np.where(np.isfinite(k.time_s), k.memory_bytes, math.inf) for k in kinds]
    least = sum(k.count * row.min() for k, row in zip(kinds, able, strict=True))
    most = sum(k.count * float(k.memory_bytes[0]) for k in kinds)
    limit = least + rng.uniform(0.01, 1.0) * (most - least)
    found, known = choose_counts(kinds, limit), choose_layers(problem(kinds, limit))
    assert found.proven
    assert known.status is ChoiceStatus.OPTIMAL
    seconds, held = spent(kinds, found.counts)
    assert held <= limit * (1 + 1e-12)
    assert math.isclose(seconds, known.time_s, rel_tol=1e-9, abs_tol=1e-12)
    assert choose_counts(kinds, limit, seconds * 0.999).counts is None or seconds == 0


def test_nothing_fits():
    kinds = [LayerKind(3, np.array([0.0, 1.0]), np.array([4.0, 2.0]))]
    assert choose_counts(kinds, 5.9).counts is None
    assert choose_counts(kinds, 6.0).counts == ((0, 3),)


def test_too_many_close_choices_are_not_called_proven():
    """Forty kinds a hair apart, each with a strategy that costs nearly nothing more than the relaxation."""
    rng = np.random.default_rng(7)
    kinds = [
        LayerKind(3, np.array([0.0, 1 + e, 1.5 + e]), np.array([3.0, 2.0, 1.5 + e]))
        for e in rng.uniform(0, 1e-6, 40)
    ]
    found = choose_counts(kinds, 251.3)
    assert not found.proven
    assert found.counts is None or spent(kinds, found.counts)[1] <= 251.3
