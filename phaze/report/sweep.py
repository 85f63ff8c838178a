"""The frontier of a sweep as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape

from phaze.explore.request.design_metrics import Metric
from phaze.report import format as fmt
from phaze.report.design import plain_table

_ROWS = 20


def sweep_table(
    designs: Sequence[Mapping[str, Any]], objectives: Sequence[Metric], trials: int, infeasible: int
) -> Group:
    """The non-dominated rows of a design table, best on the first objective first; at most twenty."""
    first = objectives[0]
    sign = -1 if first.maximise else 1
    rows = sorted(designs, key=lambda row: sign * first.value(row))
    title = f"{len(rows)} non-dominated designs of {trials} trials ({infeasible} infeasible)"
    if len(rows) > _ROWS:
        title += f", {_ROWS} shown"
    table = plain_table("", "architecture", *(f"{m.name}\n{m.unit}" for m in objectives))
    for row in rows[:_ROWS]:
        table.add_row(escape(str(row["id"])), *(fmt.number(metric.value(row)) for metric in objectives))
    return Group(f"[bold]{title}[/bold]", table)
