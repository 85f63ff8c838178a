"""Two runs side by side, as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from phaze.report.design import plain_table
from phaze.report.format import number
from phaze.runs.run_difference import Change, Difference

MOST = 20  # changes that are listed of each kind


def print_difference(found: Difference, console: Console) -> None:
    """One sentence, then what differs."""
    console.print(_sentence(found))
    for title, changes in (
        ("Asked", found.asked),
        ("Files read", found.inputs),
        ("Versions", found.versions),
        ("Answer", found.answer),
    ):
        if changes:
            console.print()
            _print_changes(title, changes, console)


def _sentence(found: Difference) -> str:
    asked = "Same question" if found.same_question else "Different questions"
    return f"{asked}, {'the same answer' if found.same_answer else 'different answers'}."


def _print_changes(title: str, changes: Sequence[Change], console: Console) -> None:
    table = plain_table(title, "", "first", "second")
    for change in changes[:MOST]:
        table.add_row(escape(change.name), _text(change.first), _text(change.second))
    console.print(table)
    if rest := changes[MOST:]:
        console.print(f"and {len(rest)} more; --json lists all of them")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    text = str(value)
    return escape(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")


_LONGEST = 24
