"""`dse explain NAME|RUN`: what a name means; why the answer of a run is what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt


def command(
    what: Annotated[
        str,
        typer.Argument(
            help="A word, field, option, or name of a design, chip, model or anything packaged; or a run directory.",
            metavar="NAME|RUN",
        ),
    ],
    budgets: Annotated[
        bool,
        typer.Option("--budgets", help="Of a run: also search under budgets that are up to 10 % larger."),
    ] = False,
    time_limit: opt.TimeLimit = "60s",
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Explain whatever a command prints or takes, or why the answer of a run is what it is.

    Of a name: meaning, unit, default, source. Of a run: what binds the winner, what its layers wait for, what more
    of anything would buy, and why known chips are slower.

    Examples:
        dse explain tdp
        dse explain port4KiB
        dse explain results/gpt3-400W --budgets

    Exit codes: 3, 4

    See also: dse report; dse certify.
    """
    if _is_run(what):
        _run(Path(what), budgets=budgets, time_limit=time_limit, json=json, quiet=quiet)
    else:
        _name(what, json=json)


def _is_run(what: str) -> bool:
    """Whether a folder is meant; one without a run may have the name of something: a clone has a folder `phaze`."""
    from phaze.api.meanings import is_known
    from phaze.runs.run_directory import RESULT

    folder = Path(what)
    return folder.is_dir() and ((folder / RESULT).exists() or not is_known(what))


def _run(run: Path, *, budgets: bool, time_limit: str, json: bool, quiet: bool) -> None:
    from phaze.cli.console_output import console, print_json, progress
    from phaze.explore.explaining.run_explanation import explain
    from phaze.inputs.recorded.recorded_request import question_of
    from phaze.quantity import parse_time
    from phaze.report.terminal.explanation_tables import print_explanation
    from phaze.runs.run_directory import load_run

    document = load_run(run)
    request = question_of(document, run, "dse explain")
    with progress(quiet=quiet) as report:
        search_s = parse_time(time_limit, "--time-limit") if budgets else None
        explanation = explain(request, document, report, search_s)
    if json:
        print_json(explanation)
    else:
        print_explanation(explanation, console())


def _name(name: str, *, json: bool) -> None:
    from dataclasses import asdict

    from phaze.api.meanings import meanings
    from phaze.cli.console_output import print_json

    found = meanings(name)
    if json:
        print_json([asdict(entry) for entry in found])
        return
    for entry in found:
        typer.secho(f"{entry.name} ({entry.kind})", bold=True)
        _echo(entry.text)
        for label, text in (("unit", entry.unit), ("default", entry.default), ("source", entry.source)):
            if text:
                _echo(f"{label}: {text}")


def _echo(text: str) -> None:
    from textwrap import fill

    typer.echo(fill(text, 80, initial_indent="  ", subsequent_indent="  ", break_long_words=False))
