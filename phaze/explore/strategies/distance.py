"""How far a search without proof ended from the certified optimum."""

from __future__ import annotations

from phaze.explore.strategies.report import Distance

ROUNDING = 1e-9  # the same point worked out in two ways may differ by this much, relatively


def distance(best: float | None, certified: float, upper_bound: float) -> Distance:
    """Of a search's best value (None: nothing feasible found) from a certified answer and its upper bound.

    Negative where the search was better, which no proven answer allows.
    """
    share = (certified - (best or 0.0)) / certified
    return Distance(
        certified=certified,
        upper_bound=upper_bound,
        proven=upper_bound <= certified * (1.0 + ROUNDING),
        share=0.0 if abs(share) < ROUNDING else share,
    )
