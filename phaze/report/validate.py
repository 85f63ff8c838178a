"""The model against measurements, as text."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phaze.report.design import plain_table
from phaze.validation.document import Comparison, ValidationReport


def print_report(report: ValidationReport, console: Console) -> None:
    """One line per comparison that has rows, then what was left out and why."""
    console.print(errors_table(report))
    _print_excluded(report, console)


def errors_table(report: ValidationReport) -> Table:
    """One line per comparison that has rows."""
    rung = report.sets[0].rung.value
    table = plain_table(
        f"Errors of the {rung} rung, %", "", "rows", "mean", "median", "bias", "roofline", "left out", ""
    )
    table.columns[0].justify = table.columns[-1].justify = "left"
    for comparison in filter(lambda c: c.rows, report.sets):
        table.add_row(escape(comparison.title), *_figures(comparison), _verdict(comparison))
    return table


def _figures(comparison: Comparison) -> tuple[str, ...]:
    errors = (
        comparison.mape_pct,
        comparison.median_ape_pct,
        comparison.bias_pct,
        comparison.roofline_mape_pct,
    )
    figures = ("-" if e is None else f"{e:.1f}" for e in errors)
    return str(comparison.rows), *figures, left_out(comparison)


def left_out(comparison: Comparison) -> str:
    """Errors on chips that constants were not fitted on, from the family that generalises best to the worst."""
    errors = comparison.unseen_pct.values()
    low, high = (f"{edge:.0f}" for edge in (min(errors), max(errors))) if errors else ("-", "-")
    return low if low == high else f"{low}-{high}"


def _verdict(comparison: Comparison) -> str:
    if comparison.threshold_pct is None:
        return ""
    return "" if comparison.passed else f"above {comparison.threshold_pct:g}"


def _print_excluded(report: ValidationReport, console: Console) -> None:
    """Reasons for excluded rows, over all comparisons."""
    table = plain_table("Rows left out", "", "rows", "why")
    table.columns[0].justify = table.columns[-1].justify = "left"
    for comparison in report.sets:
        for reason, rows in comparison.excluded_reasons.items():
            table.add_row(escape(comparison.title), str(rows), escape(reason))
    if table.row_count:
        console.print(table)
    open_ = [f"{c.title} ({c.assumed} of {c.rows})" for c in report.sets if c.assumed]
    if open_:
        console.print("Fastest plan taken where a row leaves it open: " + escape(", ".join(open_)))
    if report.not_compared:
        console.print("Not compared yet: " + escape(", ".join(report.not_compared)))
