"""Statistics of designs over scenarios: (N, M) values of M designs in N scenarios, larger is better."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TIE = 1e-9  # relative; values closer than this are equal


def regrets(values: FloatArray) -> FloatArray:
    """Share of the scenario's best that each design misses, (N, M)."""
    best = values.max(axis=1, keepdims=True)
    return np.where(best > 0, 1.0 - values / np.where(best > 0, best, 1.0), 0.0)


def best_probability(values: FloatArray) -> FloatArray:
    """Share of scenarios in which no design is better, (M,); designs that tie all count."""
    share: FloatArray = (regrets(values) <= TIE).mean(axis=0)
    return share


def rank_correlations(nominal: FloatArray, values: FloatArray) -> FloatArray:
    """Kendall's tau-b of every scenario's ranking against the nominal one, (N,); 1 where all values tie."""
    first, second = np.triu_indices(len(nominal), k=1)
    before = _order(nominal[first], nominal[second])
    after = _order(values[:, first], values[:, second])
    scale = np.sqrt(np.abs(before).sum() * np.abs(after).sum(axis=1))
    agree = (after * before).sum(axis=1)
    return np.where(scale > 0, agree / np.where(scale > 0, scale, 1.0), 1.0)


def _order(one: FloatArray, other: FloatArray) -> NDArray[np.int64]:
    """1 where the first is larger, -1 where the second is, 0 where they tie."""
    difference = one - other
    tied = np.abs(difference) <= TIE * np.maximum(np.abs(one), np.abs(other))
    return np.where(tied, 0, np.sign(difference)).astype(np.int64)
