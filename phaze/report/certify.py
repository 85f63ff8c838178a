"""The re-check of a run as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from phaze.explore.documents.certify_document import CertifyReport
from phaze.report.design import plain_table


def print_report(report: CertifyReport, console: Console) -> None:
    """The verdict, then every check."""
    wrong = sum(not check.passed for check in report.checks)
    verdict = (
        "everything holds" if report.passed else f"[bold]{wrong} of {len(report.checks)} checks fail[/bold]"
    )
    console.print(f"{escape(report.run)}: {verdict}")
    table = plain_table("Checks", "", "", "")
    table.show_header = False
    table.columns[1].justify = table.columns[2].justify = "left"
    for check in report.checks:
        table.add_row(escape(check.name), "holds" if check.passed else "FAILS", escape(check.note))
    console.print(table)
    picked = Counter(sample.stratum for sample in report.samples)
    if picked:
        console.print("Sampled: " + ", ".join(f"{count} {escape(name)}" for name, count in picked.items()))
    if report.unchecked:
        console.print(f"Not checked: {escape(', '.join(_places(report.unchecked)))}")


def _places(paths: Sequence[str]) -> list[str]:
    """Paths by their first two names, with how many are below them; the document has each by itself."""
    found = Counter(".".join(path.replace("[]", "").split(".")[:2]) for path in paths)
    return [place if count == 1 else f"{place} ({count} fields)" for place, count in found.items()]
