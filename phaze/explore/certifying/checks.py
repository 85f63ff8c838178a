"""Checks that every run takes: figures worked out twice, the bound against the objective, points counted again."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phaze.explore.candidates import Candidates
from phaze.explore.certifying.document import Check
from phaze.explore.certifying.sample import Population
from phaze.explore.document import Certificate, ResultDocument
from phaze.explore.request import ExploreRequest

CLOSE = 1e-9
"""Relative difference below which figures are the same: sums of many terms, in another order."""
HURRIED = 1 / 4
"""Share of its time limit that the shortest part of a search has to itself."""


def same(name: str, claimed: float, found: float) -> Check:
    """One figure of the run against the same one worked out again."""
    passed = abs(claimed - found) <= CLOSE * max(abs(claimed), abs(found))
    return Check(name=name, passed=passed, note=f"claimed {claimed:.9g}, found {found:.9g}")


def reaches(name: str, claimed: float, found: float, *, exactly: bool) -> Check:
    """A throughput of the run that is reached again; where it stopped early, a better plan may exist."""
    check = same(name, claimed, found)
    return check if exactly else check.model_copy(update={"passed": claimed <= found * (1 + CLOSE)})


def hurried(request: ExploreRequest, document: ResultDocument) -> bool:
    """Whether the time limit may have changed what a run found: parts of a search have shares of it."""
    return document.manifest.wall_time_s >= HURRIED * request.time_limit_s


def bound_agrees(claimed: Certificate) -> Check:
    """The bound is no worse than what was reached, and the gap and optimality follow from the two."""
    c = claimed
    consistent = c.upper_bound >= c.objective_value * (1 - CLOSE)
    gap = c.upper_bound / c.objective_value - 1 if c.objective_value > 0 else np.inf
    return Check(
        name="bound, gap and optimality agree",
        passed=consistent and abs(gap - c.gap) <= CLOSE * (1 + c.gap) and c.optimal == (c.gap == 0),
        note=f"bound {c.upper_bound:.9g}, objective {c.objective_value:.9g}, gap {c.gap:.3g}",
    )


def counts_agree(parts: Iterable[ExploreRequest], claimed: Certificate) -> Check:
    """Points of the space and those over budget, enumerated again, of all parts of a run."""
    size = within = 0
    for part in parts:
        candidates = Candidates(part.space, part.budgets)
        factor = 1 if part.others else part.task.points_per_architecture
        size += candidates.size * factor
        within += len(Population(candidates, part.tasks).numbers) * factor
    c = claimed
    passed = (
        c.space_size == size == c.over_budget + c.pruned + c.evaluated
        and c.over_budget == size - within
        and sum(c.pruned_by.values()) == c.pruned
    )
    note = f"{size:,} points, {size - within:,} over budget; claimed {c.space_size:,} and {c.over_budget:,}"
    return Check(name="counts", passed=passed, note=note)
