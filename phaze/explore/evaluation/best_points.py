"""The best point of each of some architectures, and the few training configurations that can be best for variants of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.scheduling.passes import SolveLimits


@dataclass(frozen=True)
class BestPoints:
    """Iteration times of the best point of every architecture, (A,) seconds, and its config.

    No point of an architecture is faster than `lower_s`; `upper_s` is reached in `configs`. The two are equal
    unless the effort ran out. Infinite, with config None, where nothing fits or beats `give_up_s`.
    """

    lower_s: Floats
    upper_s: Floats
    configs: tuple[TrainingConfig | None, ...]
    evaluated: int


def best_points(
    evaluator: Evaluator,
    rows: Rows,
    effort: SolveLimits,
    give_up_s: Floats | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> BestPoints:
    """Evaluate configs in the order of what they promise, until none can be better.

    `give_up_s` (A,): iteration times above which an architecture is of no interest. `told` hears now and then how many
    architectures are decided.
    """
    configs = evaluator.configs
    hope = np.stack([evaluator.roofline_s(s)[rows] for s in configs])
    bounded: set[int] = set()  # configs of which more is known than the roofline: those that were first once
    best = np.full(len(rows), np.inf) if give_up_s is None else give_up_s.astype(np.float64)
    chosen = np.full(len(rows), -1)
    lower = np.full(len(rows), np.inf)
    evaluated = 0
    while (open_ := hope < best).any():
        told(len(rows) - int(open_.any(axis=0).sum()))
        first = np.where(open_, hope, np.inf).argmin(axis=0)
        if new := set(first[open_.any(axis=0)].tolist()) - bounded:
            for k in new:
                hope[k] = evaluator.iteration_bound(configs[k], rows)
            bounded |= new
            continue
        config = int(np.bincount(first[open_.any(axis=0)]).argmax())
        at = np.flatnonzero(open_.any(axis=0) & (first == config))
        hope[config, at] = np.inf
        at = at[evaluator.hopeful(configs[config], rows[at], best[at])]
        if not len(at):
            continue
        found = evaluator.exact(configs[config], rows[at], best[at], effort)
        evaluated += len(at)
        lower[at] = np.minimum(lower[at], found.lower_s)
        better = found.upper_s < best[at]
        best[at[better]], chosen[at[better]] = found.upper_s[better], config
    upper = np.where(chosen >= 0, best, np.inf)
    return BestPoints(
        np.where(chosen >= 0, np.minimum(lower, upper), np.inf),
        upper,
        tuple(configs[k] if k >= 0 else None for k in chosen),
        evaluated,
    )


def shortlist(evaluator: Evaluator, rows: Rows, best_s: Floats, slack: float) -> dict[TrainingConfig, Rows]:
    """For each config the positions in `rows` where it may be best, the most promising config first.

    `best_s` (A,): iteration times that are reached.
    """
    hope = {config: evaluator.iteration_bound(config, rows) for config in evaluator.configs}
    kept = {config: np.flatnonzero(bound <= slack * best_s) for config, bound in hope.items()}
    promise = {s: float((hope[s] / best_s).min()) for s, at in kept.items() if len(at)}
    return {config: kept[config] for config in sorted(promise, key=lambda s: promise[s])}


def fastest_s(evaluator: Evaluator, configs: Mapping[TrainingConfig, Rows], effort: SolveLimits) -> Floats:
    """Least iteration time (A,) over configs, each at its rows of the evaluator's table; inf: nothing fits."""
    best = np.full(len(evaluator.table), np.inf)
    for config, rows in configs.items():
        found = evaluator.exact(config, rows, best[rows], effort)
        best[rows] = np.minimum(best[rows], found.upper_s)
    return best
