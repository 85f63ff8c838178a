"""Pipeline schedules: how many microbatches a stage holds, and the time of a batch as a maximum of linear forms.

A stage of depth s (from the end) in a pipeline of depth S, with n microbatches. A slot of work is as long as the
longest of its kind in any stage (1F1B: of a forward and a backward pass together), so the time holds for uneven
stages, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.general.problem import GeneralProblem, Schedule


@dataclass(frozen=True)
class Pipeline:
    """One schedule at a number of microbatches and a depth.

    `held[s - 1]`: microbatches whose activations a stage of depth s holds at a time; it does not fall with s.
    `weights` (forms, kinds): seconds per batch are the largest of `weights @ maxima`, where the maxima over
    stages are of the kinds of work (see `kinds`).
    """

    held: Integers
    weights: Floats

    def seconds(self, maxima: Floats) -> float:
        """Seconds per batch."""
        return float((self.weights @ maxima).max())

    @property
    def least_weight(self) -> Floats:
        """What each kind of work adds to the batch per second, at least."""
        least: Floats = self.weights.min(axis=0)
        return least


def kinds(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """Works of a stage whose sum is limited by the slowest stage; the reduction comes last."""
    forward, backward, late, reduction = "forward", "backward", "late", "reduction"
    if schedule is Schedule.ONE_F_ONE_B:
        return (forward, backward), (reduction,)
    if schedule.zero_bubble:
        return (forward,), (backward,), (late,), (reduction,)
    return (forward,), (backward,), (reduction,)


def pipeline(problem: GeneralProblem, microbatches: int, depth: int) -> Pipeline:
    """The problem's schedule at a number of microbatches per pipeline and a depth."""
    s = np.arange(1, depth + 1)
    n, fill, schedule = microbatches, depth - 1, problem.schedule
    held = s
    slots = float(n + fill)
    weights = [[slots, slots, 1.0]]
    if schedule is Schedule.ONE_F_ONE_B:
        weights = [[slots, 1.0]]
    elif schedule is Schedule.GPIPE:
        held = np.full_like(s, n)
    elif schedule is Schedule.INTERLEAVED:
        groups = depth // problem.virtual_stages
        whole, rest = np.divmod(2 * s - 1, depth)
        held = groups * whole + np.minimum(groups, rest)
        slots = float(-(-n // groups) * depth + groups - 1)
        weights = [[slots, slots, float(problem.virtual_stages)]]
    else:
        twice = 2 if schedule is Schedule.ZB_H2 else 1
        # Those whose weight gradients are late come on top of those that await the backward pass.
        held = np.full_like(s, twice * fill + 1)
        moved = min(twice * fill, n - 1)
        weights = [[n, n, n, 1.0], [slots, slots, float(n - moved), 1.0]]
    if problem.conventions.in_flight_capped:
        held = np.minimum(held, n)
    return Pipeline(held, np.array(weights))
