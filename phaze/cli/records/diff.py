"""`dse diff`: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt


def command(
    first: Annotated[Path, typer.Argument(help="Run directory, of dse run or another verb.", metavar="RUN")],
    second: Annotated[Path, typer.Argument(help="Another one of the same verb.", metavar="RUN")],
    json: opt.Json = False,
) -> None:
    """Say what differs between two runs: what was asked, the files read, the versions, the answer.

    Examples:
        dse diff results/gpt3-400W results/gpt3-500W
        dse diff results/gpt3-400W results/gpt3-500W --json

    See also: dse runs; dse replay.
    """
    from phaze.cli.console_output import console, print_json
    from phaze.report.terminal.side_by_side import print_difference
    from phaze.runs.document_formats import load_answer
    from phaze.runs.run_difference import compare_runs

    found = compare_runs(load_answer(first), load_answer(second))
    if json:
        print_json(found)
    else:
        print_difference(found, console())
