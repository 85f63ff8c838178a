"""Loops of gathers and reductions against the same for all rows at once."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.parallel.training.exchanges import prefetch_loops
from phaze.parallel.training.exchanges.weight_prefetch import Groups


def some_groups(seed):
    draw = np.random.default_rng(seed)
    rows, count = int(draw.integers(1, 5)), int(draw.integers(2, 12))
    repeats = np.zeros(count, dtype=bool)
    repeats[draw.integers(0, 2) : count - draw.integers(0, 2)] = True
    chunks = int(draw.integers(1, min(count, 5) + 1))
    inner = [np.sort(draw.choice(np.arange(1, count), chunks - 1, replace=False)) for _ in range(rows)]
    first = np.array([[0, *one] for one in inner], dtype=np.int64)
    compute, gather, reduce = draw.random((3, rows, count))
    return Groups(compute, gather * draw.integers(0, 2), reduce * draw.integers(0, 2), repeats, first)


@pytest.mark.parametrize("seed", range(40))
def test_loops_end_when_rows_do(seed):
    g = some_groups(seed)
    found = np.empty(g.first.shape)
    gathered = g.summed(g.gather_s * ~g.repeats)
    prefetch_loops.forward(g.compute_s, g.gather_s, g.repeats, g.first, gathered, found)
    assert (found == g._plain_forward_s()).all()
    prefetch_loops.backward(g.compute_s, g.gather_s, g.reduce_s, g.repeats, g.first, found)
    assert (found + g.summed(g.reduce_s * ~g.repeats) == g._plain_backward_s()).all()
