"""Few settings for many variants of some architectures: those that can be best while constants move a little.

Where every rate is at most `slack` times what it was, no iteration is faster than 1 / `slack` of what it was: a
setting whose bound is above `slack` times the best known stays out. Bounds over thousands of variants that differ
in everything cost more than evaluating the few settings that are left.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Setting
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


def shortlist(evaluator: Evaluator, rows: Rows, best_s: FloatArray, slack: float) -> dict[Setting, Rows]:
    """For each setting the positions in `rows` where it may be best, the most promising setting first.

    `best_s` (A,): iteration times that are reached.
    """
    hope = {setting: evaluator.quick_bound(setting, rows) for setting in evaluator.settings}
    kept = {setting: np.flatnonzero(bound <= slack * best_s) for setting, bound in hope.items()}
    promise = {s: float((hope[s] / best_s).min()) for s, at in kept.items() if len(at)}
    return {setting: kept[setting] for setting in sorted(promise, key=lambda s: promise[s])}


def fastest_s(evaluator: Evaluator, settings: Mapping[Setting, Rows], effort: Effort) -> FloatArray:
    """Least iteration time (A,) over settings, each at its rows of the evaluator's table; inf: nothing fits."""
    best = np.full(len(evaluator.table), np.inf)
    for setting, rows in settings.items():
        found = evaluator.exact(setting, rows, best[rows], effort)
        best[rows] = np.minimum(best[rows], found.upper_s)
    return best
