"""The certificate of an answer: counts of points by their fate, and how far what is undecided could be better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from phaze.explore.certified.search_state import Outcome
from phaze.explore.documents.result_document import Certificate
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.tolerances import SAME


@dataclass(frozen=True)
class PointCounts:
    """Points of a space: how many, over budget, evaluated, and where the others fell; `open`: undecided."""

    size: int
    over_budget: int
    evaluated: int
    pruned_by: Mapping[str, int]

    @classmethod
    def of(cls, outcome: Outcome, candidates: Candidates) -> PointCounts:
        """Counts of a search among some candidates."""
        size = candidates.size * outcome.configs
        over = size - outcome.in_budget * outcome.configs
        return cls(size, over, len(outcome.evaluated), outcome.pruned_by)

    @classmethod
    def sum(cls, parts: Sequence[PointCounts]) -> PointCounts:
        """Counts of several spaces together."""
        fallen = Counter[str]()
        for part in parts:
            fallen.update(part.pruned_by)
        size, over, evaluated = (
            sum(getattr(part, name) for part in parts) for name in ("size", "over_budget", "evaluated")
        )
        return cls(size, over, evaluated, dict(fallen))


def certificate(
    objective: str,
    value: float,
    hoped: Iterable[float],
    counts: PointCounts,
    scope: Sequence[str],
    *,
    complete: bool,
    plans_each: int | None = None,
) -> Certificate:
    """What is proven of a value that is reached, where the others reach at most what is `hoped`.

    Objectives are as certificates tell them: more is better. A frontier with undecided points is never `complete`.
    """
    upper = max([value, *hoped])
    if upper <= value * (1 + SAME):
        upper = value  # the same design, worked out in two ways
    return Certificate(
        optimal=upper <= value,
        objective=objective,
        objective_value=value,
        upper_bound=upper,
        gap=(upper - value) / value,
        scope=list(scope),
        space_size=counts.size,
        over_budget=counts.over_budget,
        pruned=counts.size - counts.over_budget - counts.evaluated,
        evaluated=counts.evaluated,
        pruned_by=dict(counts.pruned_by),
        frontier_complete=complete and not counts.pruned_by.get("open"),
        plans_per_architecture=plans_each,
    )
