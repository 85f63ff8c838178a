"""Gathers ahead of computation and reductions behind it, on hand-made groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.placement.strategy.prefetch import Group, backward_s, forward_s, slowed

seconds = st.floats(0, 10, allow_nan=False)
groups = st.lists(st.builds(Group, seconds, seconds, seconds, st.booleans()), min_size=1, max_size=8)


def blocks(count, compute_s, gather_s, reduce_s=0.0):
    return [Group(compute_s, gather_s, reduce_s, repeats=True)] * count


def test_all_but_the_first_gather_hides_behind_longer_computation():
    assert forward_s(blocks(10, 3.0, 1.0)) == pytest.approx(1.0 + 10 * 3.0)


def test_longer_gathers_set_the_pace():
    assert forward_s(blocks(10, 1.0, 3.0)) == pytest.approx(10 * 3.0 + 1.0)


def test_ends_are_gathered_before_all_else():
    ends = [Group(0.5, 2.0, 0.0, repeats=False), *blocks(3, 3.0, 1.0), Group(0.5, 2.0, 0.0, repeats=False)]
    assert forward_s(ends) == pytest.approx(
        2 * 2.0 + 1.0 + 3 * 3.0 + 0.5
    )  # the first gather of a block by embeddings


def test_last_reduction_hides_behind_nothing():
    turned = [
        Group(0.5, 0.0, 4.0, repeats=False),
        *blocks(5, 3.0, 1.0, 1.0),
        Group(2.0, 0.0, 0.0, repeats=False),
    ]
    assert backward_s(turned) == pytest.approx(2.0 + 5 * 3.0 + 1.0 + 4.0)  # that of block 0 hides by half


def test_gathers_and_reductions_share_the_wire():
    busy = backward_s(blocks(20, 1.0, 2.0, 3.0))
    assert busy >= 20 * 2.0 + 20 * 3.0


@given(groups)
def test_never_less_than_computation_or_wire_nor_more_than_both(some):
    compute = sum(g.compute_s for g in some)
    for runs, wire in (
        (forward_s, sum(g.gather_s for g in some)),
        (backward_s, sum(g.gather_s * g.repeats + g.reduce_s for g in some)),
    ):
        assert max(compute, wire) - 1e-9 <= runs(some) + (1e-9 if runs is backward_s else wire)
        assert compute - 1e-9 <= runs(some) <= compute + wire + 1e-9


@given(groups, st.floats(0, 1))
def test_interference_slows_by_its_share_at_most(some, share):
    before, after = (sum(g.compute_s for g in each) for each in (some, slowed(some, share)))
    assert before - 1e-9 <= after <= (1 + share) * before + 1e-9
