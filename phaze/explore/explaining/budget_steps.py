"""Budget steps: the change that a little more, or less, of a budget would make.

Less power: the frontier of the run is the answer, and proven where it is complete. More power: the frontier of one
search under the largest budget answers all smaller steps. More area, or clocks that depend on the budget: a search
for each step.
"""

from __future__ import annotations

import dataclasses

from phaze.errors import OutOfTimeError
from phaze.explore.answers.main_job import explore
from phaze.explore.documents.explanation_document import BudgetStep
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective
from phaze.explore.request.search_progress import Clock, Progress

SHARES = (0.01, 0.05, 0.1)
POWER_W, AREA_MM2 = 10.0, 10.0


def changes(limit: float, absolute: float) -> list[float]:
    """Changes of a budget worth a look: 1, 5 and 10 % of it and one round figure, ascending."""
    return sorted({absolute, *(share * limit for share in SHARES)})


def fastest(
    request: ExploreRequest, document: ResultDocument, search_s: float | None, progress: Progress
) -> ResultDocument | None:
    """An answer whose frontier is that of throughput against power: the run's own, or else that of another search.

    None where the run has other axes and there is no time for a search (None), or it was not enough.
    """
    if request.budgets.drawn_limit_w is not None and request.objective is Objective.THROUGHPUT:
        return document
    if not request.over_axes or {Objective.THROUGHPUT, Objective.TDP} <= {request.objective, *request.axes}:
        return document
    return None if search_s is None else _search(_wanted(request, search_s), request.budgets, progress)


def less_power(request: ExploreRequest, document: ResultDocument) -> list[BudgetStep]:
    """Costs of smaller power budgets, from the frontier of the run; largest loss first."""
    limit = request.budgets.tdp_limit_w
    if limit is None:
        return []
    before = _most(document)
    found = (
        _on_frontier(document, limit - change, -change, before)
        for change in reversed(changes(limit, POWER_W))
    )
    return [step for step in found if step is not None]


def more_budget(
    request: ExploreRequest, document: ResultDocument, time_limit_s: float, progress: Progress
) -> list[BudgetStep]:
    """Gains of larger budgets; every search may take `time_limit_s`, and says what it has proven."""
    before, budgets = _most(document), request.budgets
    wanted = _wanted(request, time_limit_s)
    found: list[BudgetStep | None] = []
    if (drawn := budgets.drawn_limit_w) is not None:
        for change in changes(drawn, POWER_W):
            answer = _search(wanted, dataclasses.replace(budgets, power_w=drawn + change), progress)
            found += [_winner("power", answer, drawn + change, change, before)] if answer else []
    if (power := budgets.tdp_limit_w) is not None:
        more = changes(power, POWER_W)
        for largest, steps in [(c, [c]) for c in more] if budgets.dvfs else [(more[-1], more)]:
            answer = _search(wanted, dataclasses.replace(budgets, power_w=power + largest), progress)
            found += [_on_frontier(answer, power + c, c, before) for c in steps] if answer else []
    if (area := budgets.area_mm2) is not None:
        for change in changes(area, AREA_MM2):
            answer = _search(wanted, dataclasses.replace(budgets, area_mm2=area + change), progress)
            found += [_winner("area", answer, area + change, change, before)] if answer else []
    return [step for step in found if step is not None]


def _wanted(request: ExploreRequest, time_limit_s: float) -> ExploreRequest:
    """The same for throughput against power."""
    return dataclasses.replace(request, objective=Objective.THROUGHPUT, axes=(), time_limit_s=time_limit_s)


def _search(request: ExploreRequest, budgets: Budgets, progress: Progress) -> ResultDocument | None:
    """The answer under other budgets; None where time is over before there is one."""
    wanted = dataclasses.replace(request, budgets=budgets)
    try:
        return explore(wanted, progress, Clock(request.time_limit_s)).document
    except OutOfTimeError:
        return None


def _most(document: ResultDocument) -> float:
    """The largest throughput within the budgets of a run, whatever its objective."""
    return max(point.throughput_samples_per_s for point in document.frontier)


def _on_frontier(document: ResultDocument, limit_w: float, change: float, before: float) -> BudgetStep | None:
    """The best point of a frontier within a power budget; proven where the frontier is complete."""
    within = [point for point in document.frontier if point.tdp_w <= limit_w]
    if not within:
        return None
    best = max(within, key=lambda point: point.throughput_samples_per_s)
    clocks_follow = bool(document.request.get("dvfs")) and limit_w != document.request.get("power_w")
    proven = document.certificate.frontier_complete and not clocks_follow
    return BudgetStep(
        budget="power",
        limit=limit_w,
        change=change,
        throughput_samples_per_s=best.throughput_samples_per_s,
        gain=best.throughput_samples_per_s / before - 1.0,
        proven_gap=float(document.request.get("gap", 0.0)) if proven else None,
        id=best.id,
    )


def _winner(budget: str, document: ResultDocument, limit: float, change: float, before: float) -> BudgetStep:
    """What a search under another budget found."""
    value = document.certificate.objective_value
    return BudgetStep(
        budget=budget,
        limit=limit,
        change=change,
        throughput_samples_per_s=value,
        gain=value / before - 1.0,
        proven_gap=document.certificate.gap,
        id=document.best.id,
    )
