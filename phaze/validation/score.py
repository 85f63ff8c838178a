"""How far predictions lie from measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats


@dataclass(frozen=True, slots=True)
class Score:
    """Errors in percent of the measured value: mean, median and 90th percentile of their sizes, and signed mean.

    `rank_correlation` is Spearman's: 1 where the model puts the rows in the measured order; None for
    fewer than two distinct values.
    """

    mape_pct: float
    median_ape_pct: float
    p90_ape_pct: float
    bias_pct: float
    rank_correlation: float | None


def score(predicted: Floats, measured: Floats) -> Score:
    """Score of (rows,) predictions. Raises ValueError without rows or for a measurement that is not positive."""
    if not len(measured) or not np.all(measured > 0):
        msg = "scores need at least one row, and measured values above 0"
        raise ValueError(msg)
    error = 100.0 * (predicted / measured - 1.0)
    size = np.abs(error)
    return Score(
        mape_pct=float(size.mean()),
        median_ape_pct=float(np.median(size)),
        p90_ape_pct=float(np.percentile(size, 90)),
        bias_pct=float(error.mean()),
        rank_correlation=_spearman(predicted, measured),
    )


def _spearman(x: Floats, y: Floats) -> float | None:
    """Correlation of the ranks; equal values share their mean rank."""
    ranks = [_ranks(values) for values in (x, y)]
    if any(np.ptp(r) == 0 for r in ranks):
        return None
    x_ranks, y_ranks = ranks
    return float(np.corrcoef(x_ranks, y_ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Floats = last - (counts - 1) / 2
    return shared[place]
