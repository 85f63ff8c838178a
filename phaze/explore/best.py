"""The best point of each of some architectures: what a search without bounds asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Setting
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class BestPoints:
    """Iteration times of the best point of every architecture, (A,) seconds, and its setting.

    No point of an architecture is faster than `lower_s`; `upper_s` is reached in `settings`. The two are equal
    unless the effort ran out. Infinite, with setting None, where nothing fits or beats `give_up_s`.
    """

    lower_s: FloatArray
    upper_s: FloatArray
    settings: tuple[Setting | None, ...]
    evaluated: int


def best_points(
    evaluator: Evaluator, rows: Rows, effort: Effort, give_up_s: FloatArray | None = None
) -> BestPoints:
    """Evaluate settings in the order of what they promise, until none can be better.

    `give_up_s` (A,): iteration times above which an architecture is of no interest.
    """
    settings = evaluator.settings
    hope = np.stack([evaluator.quick_bound(s, rows) for s in settings])
    best = np.full(len(rows), np.inf) if give_up_s is None else give_up_s.astype(np.float64)
    chosen = np.full(len(rows), -1)
    lower = np.full(len(rows), np.inf)
    evaluated = 0
    while (open_ := hope < best).any():
        first = np.where(open_, hope, np.inf).argmin(axis=0)
        setting = int(np.bincount(first[open_.any(axis=0)]).argmax())
        at = np.flatnonzero(open_.any(axis=0) & (first == setting))
        found = evaluator.exact(settings[setting], rows[at], best[at], effort)
        evaluated += len(at)
        hope[setting, at] = np.inf
        lower[at] = np.minimum(lower[at], found.lower_s)
        better = found.upper_s < best[at]
        best[at[better]], chosen[at[better]] = found.upper_s[better], setting
    upper = np.where(chosen >= 0, best, np.inf)
    return BestPoints(
        np.where(chosen >= 0, np.minimum(lower, upper), np.inf),
        upper,
        tuple(settings[k] if k >= 0 else None for k in chosen),
        evaluated,
    )
