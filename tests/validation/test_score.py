"""Error figures against hand-worked and independent ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.validation.model_validation import score


def test_figures_by_hand():
    s = score(np.array([1.1, 1.0, 4.0, 2.0]), np.array([1.0, 2.0, 4.0, 1.0]))
    assert s.mape_pct == pytest.approx((10 + 50 + 0 + 100) / 4)
    assert s.median_ape_pct == pytest.approx(30)
    assert s.bias_pct == pytest.approx((10 - 50 + 0 + 100) / 4)
    assert s.p90_ape_pct == pytest.approx(50 + 0.7 * 50)


def test_perfect_predictions_have_no_error():
    values = np.array([3.0, 1.0, 2.0])
    s = score(values, values)
    assert (s.mape_pct, s.bias_pct) == (0, 0)
    assert s.rank_correlation == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=20))
def test_rank_correlation_is_spearmans(pairs):
    x, y = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    ours = score(x, y).rank_correlation
    ranks = [np.array([(v < u).sum() + (v <= u).sum() for u in v]) / 2 for v in (x, y)]
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert ours is None
    else:
        assert ours == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-12)


@pytest.mark.parametrize("measured", [[], [0.0], [-1.0], [1.0, 0.0]])
def test_nothing_to_divide_by_is_an_error(measured):
    with pytest.raises(ValueError, match="above 0"):
        score(np.ones(len(measured)), np.array(measured))
