"""Tables of searches without a proof: strategies, their course, sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.strategy_report import Distance, Improvement, Stop, StrategyReport
from phaze.explore.request.design_metrics import Metric
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table

COURSE_ROWS = 8  # improvements shown

_STOPPED = {
    Stop.CONVERGED: "its own rule",
    Stop.EVALUATIONS: "the budget of evaluations",
    Stop.TIME: "the time limit",
    Stop.EXHAUSTED: "nothing was left to try",
}


def strategy_table(report: StrategyReport, objective: Callable[[float], str]) -> Table:
    """Course, cost and best of a search, and its distance; `objective` writes a value with its unit."""
    table = plain_table(f"Search without proof: --strategy {escape(report.strategy)}", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    table.add_row("evaluated", f"{report.evaluations:,} architectures in {fmt.duration(report.runtime_s)}")
    table.add_row("stopped by", _STOPPED[report.stopped])
    if report.best_value is not None:
        table.add_row("best found", escape(objective(report.best_value)))
    if report.distance is not None:
        certified = objective(report.distance.certified)
        kind = "proven optimum" if report.distance.proven else "certified search"
        table.add_row(kind, escape(certified))
        table.add_row("distance", escape(distance_words(report.distance)))
    for name, figure in report.figures.items():
        if name != "per_stage_value":  # told in a table of its own
            table.add_row(fmt.label(name), f"{figure:,.0f}" if figure % 1 == 0 else fmt.number(figure))
    return table


def course_table(report: StrategyReport, objective: Callable[[float], str]) -> Table:
    """The improvements, thinned to some eight rows: the first, the last, and even steps between."""
    shown = thinned(report.history, COURSE_ROWS)
    table = plain_table(
        f"Its improvements, {len(shown)} of {len(report.history)}", "after evaluation", "seconds", "objective"
    )
    for step in shown:
        table.add_row(f"{step.evaluation:,}", fmt.number(step.elapsed_s), escape(objective(step.value)))
    return table


def distance_words(found: Distance) -> str:
    """How far a search ended from what the certified one knows, in words."""
    if found.share == 0:
        what = "none: the same as the certified search"
    elif found.share < 0:
        what = f"{fmt.percent(-found.share)} better than the certified search, which ran out of time"
    else:
        what = f"misses {fmt.percent(found.share)} of it"
    if found.proven:
        return what
    return f"{what}; not proven, at most {fmt.number(found.upper_bound, 5)}"


def thinned(steps: Sequence[Improvement], rows: int) -> list[Improvement]:
    """At most so many of the steps, evenly, both ends among them."""
    if len(steps) <= rows:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (rows - 1))] for i in range(rows)]


_SWEEP_ROWS = 20


def sweep_table(
    designs: Sequence[Mapping[str, Any]], objectives: Sequence[Metric], trials: int, infeasible: int
) -> Group:
    """The non-dominated rows of a design table, best on the first objective first; at most twenty."""
    first = objectives[0]
    sign = -1 if first.maximise else 1
    rows = sorted(designs, key=lambda row: sign * first.value(row))
    title = f"{len(rows)} non-dominated designs of {trials} trials ({infeasible} infeasible)"
    if len(rows) > _SWEEP_ROWS:
        title += f", {_SWEEP_ROWS} shown"
    table = plain_table("", "architecture", *(f"{m.name}\n{m.unit}" for m in objectives))
    for row in rows[:_SWEEP_ROWS]:
        table.add_row(escape(str(row["id"])), *(fmt.number(metric.value(row)) for metric in objectives))
    return Group(f"[bold]{title}[/bold]", table)
