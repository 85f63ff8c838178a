"""Gathers ahead of computation and reductions behind it, on hand-made groups, and against one group after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.parallel.training.exchanges.weight_prefetch import Groups

seconds = st.floats(0, 10, allow_nan=False)
rows = st.tuples(seconds, seconds, seconds, st.booleans())
parts = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=3)
BLOCK, END = True, False


def of(*chunks):
    """Chunks of (compute, gather, reduce, repeats) rows."""
    columns = np.array([row[:3] for chunk in chunks for row in chunk], dtype=np.float64).T[:, None]
    first = np.cumsum([0, *(len(chunk) for chunk in chunks[:-1])])[None]
    return Groups(*columns, np.array([row[3] for chunk in chunks for row in chunk]), first)


def blocks(count, compute_s, gather_s, reduce_s=0.0):
    return [(compute_s, gather_s, reduce_s, BLOCK)] * count


def one_by_one_forward_s(groups):
    """The rules read out: no more than two groups of weights are whole at a time."""
    wire = time = sum(gather for _, gather, _, repeats in groups if not repeats)
    done = [0.0, 0.0]
    for compute, gather, _, repeats in groups:
        if repeats:
            wire = max(wire, done[-2]) + gather
            time = max(time, wire)
            done.append(time + compute)
        time += compute
    return time


def one_by_one_backward_s(groups):
    turned = groups[::-1]
    gathers = [gather for _, gather, _, repeats in turned if repeats]
    wire = ready = gathers.pop(0) if gathers else 0.0
    time = 0.0
    for compute, _, reduce, repeats in turned:
        if repeats:
            time = max(time, ready)
            if gathers:
                wire = ready = max(wire, time) + gathers.pop(0)
        time += compute
        if repeats and reduce:
            wire = max(wire, time) + reduce
    return max(time, wire) + sum(reduce for _, _, reduce, repeats in groups if not repeats)


@given(parts)
def test_chunks_side_by_side_are_each_as_one_by_one(chunks):
    groups = of(*chunks)
    assert groups.forward_s()[0] == pytest.approx([one_by_one_forward_s(chunk) for chunk in chunks])
    assert groups.backward_s()[0] == pytest.approx([one_by_one_backward_s(chunk) for chunk in chunks])


@given(st.lists(rows, min_size=4, max_size=4), st.lists(rows, min_size=4, max_size=4))
def test_strategies_that_are_cut_elsewhere_do_not_disturb_each_other(one, other):
    repeats = np.array([row[3] for row in one])
    columns = np.array([[row[:3] for row in some] for some in (one, other)]).transpose(2, 0, 1)
    both = Groups(*columns, repeats, np.array([[0, 1], [0, 3]]))
    for row, cut in ((0, 1), (1, 3)):
        alone = Groups(*columns[:, [row]], repeats, np.array([[0, cut]]))
        assert both.forward_s()[row].tolist() == alone.forward_s()[0].tolist()
        assert both.backward_s()[row].tolist() == alone.backward_s()[0].tolist()


def test_all_but_the_first_gather_hides_behind_longer_computation():
    assert of(blocks(10, 3.0, 1.0)).forward_s() == pytest.approx(1.0 + 10 * 3.0)


def test_longer_gathers_set_the_pace():
    assert of(blocks(10, 1.0, 3.0)).forward_s() == pytest.approx(10 * 3.0 + 1.0)


def test_ends_are_gathered_before_all_else():
    end = (0.5, 2.0, 0.0, END)
    found = of([end, *blocks(3, 3.0, 1.0), end]).forward_s()
    assert found == pytest.approx(2 * 2.0 + 1.0 + 3 * 3.0 + 0.5)  # the first gather of a block by embeddings


def test_last_reduction_hides_behind_nothing():
    turned = of([(0.5, 0.0, 4.0, END), *blocks(5, 3.0, 1.0, 1.0), (2.0, 0.0, 0.0, END)])
    assert turned.backward_s() == pytest.approx(2.0 + 5 * 3.0 + 1.0 + 4.0)  # that of block 0 hides by half


def test_gathers_and_reductions_share_the_wire():
    assert of(blocks(20, 1.0, 2.0, 3.0)).backward_s() >= 20 * 2.0 + 20 * 3.0


@given(st.lists(rows, min_size=1, max_size=8))
def test_never_less_than_computation_or_wire_nor_more_than_both(some):
    groups, compute = of(some), sum(row[0] for row in some)
    gather, whole = (sum(row[i] for row in some) for i in (1, 2))
    assert compute - 1e-9 <= groups.forward_s() <= compute + gather + 1e-9
    wire = whole + sum(row[1] for row in some if row[3])
    assert max(compute, wire) - 1e-9 <= groups.backward_s() <= compute + wire + 1e-9


@given(st.lists(rows, min_size=1, max_size=8), st.floats(0, 1))
def test_interference_slows_by_its_share_at_most(some, share):
    before, after = (float(each.compute_s.sum()) for each in (of(some), of(some).slowed(share)))
    assert before - 1e-9 <= after <= (1 + share) * before + 1e-9
