"""Reports of checks, as text: a run worked out again, and the model against measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.certify_document import CertifyReport
from phaze.report.terminal.design_tables import plain_table
from phaze.validation.validation_document import Comparison, ValidationReport


def print_certify_report(report: CertifyReport, console: Console) -> None:
    """The verdict, then every check."""
    for block in certify_blocks(report):
        console.print(block)


def certify_blocks(report: CertifyReport) -> Iterator[RenderableType]:
    """The verdict, every check, what was sampled, and what no check speaks of."""
    wrong = sum(not check.passed for check in report.checks)
    verdict = (
        "everything holds" if report.passed else f"[bold]{wrong} of {len(report.checks)} checks fail[/bold]"
    )
    yield f"{escape(report.run)}: {verdict}"
    table = plain_table("Checks", "", "", "")
    table.show_header = False
    table.columns[1].justify = table.columns[2].justify = "left"
    for check in report.checks:
        table.add_row(escape(check.name), "holds" if check.passed else "FAILS", escape(check.note))
    yield table
    picked = Counter(sample.stratum for sample in report.samples)
    if picked:
        told = (f"{count} {escape(_STRATA.get(name, name))}" for name, count in picked.items())
        yield "Sampled: " + ", ".join(told)
    if report.unchecked:
        yield f"Not checked: {escape(', '.join(_places(report.unchecked)))}"


_STRATA = {
    "neighbour of the winner": "next to the winner",
    "neighbour of the frontier": "next to the frontier",
    "highest roofline": "of the highest roofline",
}
"""Where samples are from, as it reads behind how many there are."""


def _places(paths: Sequence[str]) -> list[str]:
    """Paths by their first two names, with how many are below them; the document has each by itself."""
    found = Counter(".".join(path.replace("[]", "").split(".")[:2]) for path in paths)
    return [place if count == 1 else f"{place} ({count} fields)" for place, count in found.items()]


def print_validation_report(report: ValidationReport, console: Console) -> None:
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
    """Errors on what was left out of the fit in turn, by what that was."""
    errors = comparison.unseen_pct.items()
    return ", ".join(f"{kind} {error:.1f}" for kind, error in errors) if errors else "-"


def _verdict(comparison: Comparison) -> str:
    if comparison.f1 is not None:
        least = "" if comparison.passed else f", below {comparison.least_f1:g}"
        return f"F1 {comparison.f1:.3f}{least}"
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
