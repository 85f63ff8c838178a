"""The best point of each of some architectures, and the few training configurations that can be best for variants of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.scheduling.passes import SolveLimits


@dataclass(frozen=True)
class BestPoints:
    """Iteration times of the best point of every architecture, (A,) seconds, and its setting.

    No point of an architecture is faster than `lower_s`; `upper_s` is reached in `settings`. The two are equal
    unless the effort ran out. Infinite, with setting None, where nothing fits or beats `give_up_s`.
    """

    lower_s: Floats
    upper_s: Floats
    settings: tuple[TrainingConfig | None, ...]
    evaluated: int


def best_points(
    evaluator: Evaluator, rows: Rows, effort: SolveLimits, give_up_s: Floats | None = None
) -> BestPoints:
    """Evaluate settings in the order of what they promise, until none can be better.

    `give_up_s` (A,): iteration times above which an architecture is of no interest.
    """
    settings = evaluator.settings
    hope = np.stack([evaluator.roofline_s(s)[rows] for s in settings])
    bounded: set[int] = set()  # settings of which more is known than the roofline: those that were first once
    best = np.full(len(rows), np.inf) if give_up_s is None else give_up_s.astype(np.float64)
    chosen = np.full(len(rows), -1)
    lower = np.full(len(rows), np.inf)
    evaluated = 0
    while (open_ := hope < best).any():
        first = np.where(open_, hope, np.inf).argmin(axis=0)
        if new := set(first[open_.any(axis=0)].tolist()) - bounded:
            for k in new:
                hope[k] = evaluator.quick_bound(settings[k], rows)
            bounded |= new
            continue
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


def shortlist(evaluator: Evaluator, rows: Rows, best_s: Floats, slack: float) -> dict[TrainingConfig, Rows]:
    """For each setting the positions in `rows` where it may be best, the most promising setting first.

    `best_s` (A,): iteration times that are reached.
    """
    hope = {setting: evaluator.quick_bound(setting, rows) for setting in evaluator.settings}
    kept = {setting: np.flatnonzero(bound <= slack * best_s) for setting, bound in hope.items()}
    promise = {s: float((hope[s] / best_s).min()) for s, at in kept.items() if len(at)}
    return {setting: kept[setting] for setting in sorted(promise, key=lambda s: promise[s])}


def fastest_s(evaluator: Evaluator, settings: Mapping[TrainingConfig, Rows], effort: SolveLimits) -> Floats:
    """Least iteration time (A,) over settings, each at its rows of the evaluator's table; inf: nothing fits."""
    best = np.full(len(evaluator.table), np.inf)
    for setting, rows in settings.items():
        found = evaluator.exact(setting, rows, best[rows], effort)
        best[rows] = np.minimum(best[rows], found.upper_s)
    return best
