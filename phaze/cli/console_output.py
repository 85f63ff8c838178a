"""Output of the command line: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from phaze.errors import InfeasibleError
from phaze.quantity import shown
from phaze.text_file import shortened

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from phaze.explore.request.search_progress import Progress

_PIPED_WIDTH = 80
_LONGEST = 1500  # of a sentence on stderr


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; 80 columns where it is no terminal. NO_COLOR is honoured by rich."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, width=None if stream.isatty() else _PIPED_WIDTH, highlight=False, soft_wrap=False
    )


def print_json(document: BaseModel | dict[str, Any] | list[Any]) -> None:
    """The document and nothing else on stdout."""
    if isinstance(document, dict | list):
        text = json.dumps(document, indent=2, allow_nan=False)
    else:
        text = document.model_dump_json(by_alias=True, indent=2)
    sys.stdout.write(text + "\n")


def print_error(error: BaseException | str) -> None:
    """One line on stderr; an infeasible request adds what falls short and what would help."""
    lines = ["dse: " + shortened(" ".join(str(error).split()), _LONGEST)]
    if isinstance(error, InfeasibleError):
        for short in error.shortfalls:
            lines.append(
                f"  {short.what}: given {_amount(short.limit, short.unit)}, "
                f"{'largest' if short.floor else 'smallest'} feasible {_amount(short.demand, short.unit)}"
            )
            lines += [f"    - {lever}" for lever in short.levers]
    sys.stderr.write("\n".join(lines) + "\n")


def _amount(value: float, unit: str) -> str:
    """A limit or a demand with its unit: bytes as GiB, times in what they read well in."""
    if not math.isfinite(value):
        return "unknown"
    if unit == "s":
        from phaze.report.number_format import time_unit

        scale, unit = time_unit(value)
        return f"{shown(value * scale)} {unit}"
    return f"{shown(value / 2**30)} GiB" if unit == "bytes" else f"{shown(value)} {unit}"


def print_rows(rows: Sequence[Mapping[str, object]], note: str = "") -> None:
    """Rows with the same keys as a table on stdout, a note below it."""
    from rich.markup import escape

    from phaze.report.number_format import field, label
    from phaze.report.terminal.design_tables import plain_table

    if not rows:
        return
    table = plain_table("", *(label(key) for key in rows[0]))
    for column, value in zip(table.columns, rows[0].values(), strict=True):
        if isinstance(value, str):
            column.justify = "left"
        else:
            column.header = str(column.header).replace(" ", "\n")  # a number is narrower than its name
    for row in rows:
        table.add_row(*("-" if value is None else escape(field(key, value)) for key, value in row.items()))
    if note:
        table.caption, table.caption_justify = note, "left"
    console().print(table)


def say(text: str, *, quiet: bool) -> None:
    """A sentence on stderr, unless `quiet`."""
    if not quiet:
        sys.stderr.write(text + "\n")


def progress(
    *, quiet: bool, phase: str = "", limit_s: float | None = None
) -> AbstractContextManager[Progress]:
    """Progress on stderr, or none; `phase`: what the work is called, `limit_s`: the time that a search may take."""
    from phaze.explore.request.search_progress import SilentProgress
    from phaze.report.console_progress import ConsoleProgress

    if quiet:
        return nullcontext(SilentProgress())
    return ConsoleProgress(console(stderr=True), phase=phase, limit_s=limit_s)
