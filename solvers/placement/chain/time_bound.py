"""What the pipeline makes of a largest load: lower bounds on the time of a plan by its number of stages S.

A plan of S stages over d pipelines takes x * (q + S - 1) + C * (1 - 1/d), where x is its largest load, q = ceil(m / d)
and C * (d - 1) / d the all-reduce. Here C is what reducing the first layer takes (all layers if S = 1).
"""

from __future__ import annotations

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.width import Width

# Hides the rounding of sums of many terms, so that a bound is one in floating point too.
SLACK = 1e-9
# More than the time of any plan, and sums of many are finite.
LONGEST_S = 1e300


class TimeBound:
    """Seconds per batch of plans of one width in which so many stages, a range, are narrow."""

    def __init__(self, width: Width, narrow: range) -> None:
        """Find the fewest microbatches per pipeline for every number of stages."""
        problem, degrees = width.problem, width.degrees
        self._fewest_narrow = narrow[0]
        stages = np.arange(1, width.depth + 1)
        count = np.minimum(width.devices.most_narrow[1 : width.depth + 1], narrow[-1])
        fitting = np.where(count >= narrow[0], degrees.admitting(width.devices.of(stages, count)), 0)
        total = problem.microbatches_per_batch
        fewest = np.where(fitting > 0, degrees.microbatches[fitting - 1], np.inf)[:, None]
        self._filling = np.arange(width.depth, dtype=np.float64)[:, None]
        self._most_steps, self._fewest_steps = total + self._filling, fewest + self._filling
        reduced = np.full((width.depth, 1), width.first_bytes[0])
        reduced[0] = width.first_bytes[-1]
        # d >= m / q, hence 1 - 1/d >= 1 - q/m.
        unshared = np.where(fitting[:, None] > 0, 1 - fewest / total, 1.0)
        self._reduce_s = 4 * reduced / problem.link_bandwidth_bytes_per_s * unshared
        self._limit_steps, self._limit_reduce_s = _least_from(self._fewest_steps), _least_from(self._reduce_s)

    def times(self, of_all_s: Floats, of_wide_s: Floats, device_time_s: Floats, out: Floats) -> None:
        """Write bounds (depth, A) for largest loads by numbers of all stages and of wide ones (depth, A).

        `device_time_s` (A,): seconds that all microbatches keep all devices busy. The all-reduce grows by less
        than C/m with each microbatch less per pipeline, so that either all of them pass one pipeline or as few as
        can be.
        """
        # Row S - 1 of all stages meets row S - n - 1 of wide ones; the first rows may admit no plan.
        first = max(self._fewest_narrow, int(np.count_nonzero(np.isinf(of_all_s[:, 0]))))
        rows = slice(first, None)
        wide = slice(first - self._fewest_narrow, len(of_all_s) - self._fewest_narrow)
        out[:first] = np.inf
        load_s = np.maximum(of_all_s[rows], of_wide_s[wide])
        with np.errstate(invalid="ignore"):
            found_s = np.multiply(load_s, self._fewest_steps[rows], out=out[rows])
            found_s += self._reduce_s[rows]
            np.fmin(found_s, load_s * self._most_steps[rows], out=found_s)
            load_s *= self._filling[rows]
        load_s += device_time_s
        np.fmax(found_s, load_s, out=found_s)
        found_s *= 1 - SLACK

    def load_limit(self, stages: int, time_s: Floats, device_time_s: Floats) -> Floats:
        """Loads (A,) above which plans of S > 1 stages or more, if any, take longer than `time_s` (A,)."""
        time_s, row = time_s * (1 + SLACK), stages - 1
        with np.errstate(invalid="ignore"):
            limit = (time_s - self._limit_reduce_s[row]) / self._limit_steps[row]
        limit = np.fmax(time_s / self._most_steps[row], limit)
        return np.asarray(np.minimum(limit, (time_s - device_time_s) / self._filling[row]))


def _least_from(values: Floats) -> Floats:
    """The least of values[i], values[i + 1], ... at [i]."""
    return np.minimum.accumulate(values[::-1])[::-1]
