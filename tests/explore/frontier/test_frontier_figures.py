"""Hypervolume against Monte Carlo and an independent program; the knee by hand."""

from __future__ import annotations

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from phaze.explore.frontier.frontier_indicators import hypervolume, knee


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_hypervolume_is_that_of_an_independent_program(k):
    for seed in range(5):
        values = np.random.default_rng([k, seed]).random((12, k)).round(seed + 1)  # few digits: many ties
        reference = np.full(k, 0.9)
        inside = values[(values <= reference).all(axis=1)]
        assert hypervolume(values, reference) == pytest.approx(
            compute_hypervolume(inside, reference), abs=1e-12
        )


@pytest.mark.parametrize("k", [3, 4])
def test_hypervolume_is_the_share_of_random_points_that_are_dominated(k):
    generator = np.random.default_rng(k)
    values, trials = generator.random((20, k)), generator.random((20_000, k))
    share = (values[:, None, :] <= trials[None, :, :]).all(axis=2).any(axis=0).mean()
    exact = hypervolume(values, np.ones(k))
    assert abs(exact - share) < 5 * np.sqrt(exact * (1 - exact) / len(trials))


def test_hypervolume_by_hand():
    reference = np.array([4.0, 3.0, 2.0])
    assert hypervolume(np.array([[1.0, 1.0, 1.0]]), reference) == 3 * 2 * 1
    assert hypervolume(np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0]]), reference) == 3 + 4 - 2
    assert hypervolume(np.array([[4.0, 1.0, 1.0]]), reference) == 0
    assert hypervolume(np.zeros((0, 3)), reference) == 0


def test_the_knee_is_farthest_below_the_chord():
    values = np.array([[0.0, 10.0], [1.0, 4.0], [5.0, 3.0], [10.0, 0.0]])
    chord = [abs(x / 10 + y / 10 - 1) / np.sqrt(2) for x, y in values]
    assert knee(values) == int(np.argmax(chord)) == 1


def test_the_knee_does_not_depend_on_units_or_on_columns_that_are_all_equal():
    values = np.random.default_rng(0).random((9, 3))
    expected = knee(values)
    assert knee(values * [1e-9, 5.0, 1e6] + [3.0, 0.0, -7.0]) == expected
    assert knee(np.column_stack([values, np.full(9, 2.0)])) == expected


def test_two_points_have_no_knee():
    assert knee(np.array([[0.0, 1.0], [1.0, 0.0]])) is None
