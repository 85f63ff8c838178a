"""The staircase keeps exactly the Pareto set, whatever the order in which points come."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phaze.explore.frontier.pareto_archive import Staircase

points = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3)), min_size=1, max_size=30
)


def pareto(rows):
    """Undominated points; of equal ones the smallest key."""
    return sorted(
        (t, v, k)
        for t, v, k in set(rows)
        if not any((t2 <= t and v2 > v) or (t2 < t and v2 >= v) for t2, v2, _ in rows)
        and not any((t2, v2) == (t, v) and k2 < k for t2, v2, k2 in rows)
    )


@given(points)
def test_keeps_the_pareto_set(rows):
    stairs = Staircase()
    for tdp, value, key in rows:
        stairs.add((float(tdp),), float(value), (float(key), key))
    found = [
        (int(t), int(v), k[1]) for t, v, k in zip(stairs.tdp_w, stairs.throughput, stairs.keys, strict=True)
    ]
    assert found == pareto(rows)


@given(points, st.integers(1, 12), st.integers(1, 12))
def test_dominated_points_change_nothing(rows, tdp, value):
    stairs = Staircase()
    for t, v, key in rows:
        stairs.add((float(t),), float(v), (float(key), key))
    dominated = stairs.dominates(np.array([[float(tdp)]]), np.array([float(value)]))[0]
    before = (list(stairs.tdp_w), list(stairs.throughput))
    stairs.add((float(tdp),), float(value), (9.0, 9))
    if dominated:
        assert (stairs.tdp_w, stairs.throughput) == before
    else:
        # Not dominated: on the frontier, or equal to a step whose tie another key may break.
        assert stairs.threshold(np.array([[float(tdp)]]))[0] == value
