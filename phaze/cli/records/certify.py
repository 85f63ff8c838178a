"""`dse certify`: a run's claims worked out again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt

FAILED = 5
"""Exit code where a check fails."""


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run.", metavar="RUN")],
    samples: Annotated[
        int, typer.Option(min=0, help="Architectures that the run did not evaluate, to evaluate.")
    ] = 200,
    seed: opt.Seed = 0,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Work a run's whole document out again, and designs that it pruned; exit code 5 if anything is wrong.

    What nothing could work out again is listed.

    Examples:
        dse certify results/gpt3-400W --samples 50
        dse certify results/gpt3-400W --seed 7 --json

    Exit codes: 5

    See also: dse replay, which makes the whole run again.
    """
    from phaze.cli.console_output import console, print_json, progress
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.explore.recheck.certify_run import certify, question_changed
    from phaze.explore.recheck.service_recheck import ServiceRecheck
    from phaze.inputs.recorded.recorded_request import request_of, service_of
    from phaze.report.terminal.check_tables import print_certify_report
    from phaze.runs.run_directory import load_designs, load_searched

    document = load_searched(run)
    name = run.resolve().name
    if (result := question_changed(name, document, seed)) is None:
        with progress(quiet=quiet) as report:
            if isinstance(document, ServingDocument):
                asked = service_of(document, run)
                result = ServiceRecheck(name, asked, document, samples, seed, report).report()
            else:
                request = request_of(document, run)
                result = certify(name, request, document, load_designs(run), samples, seed, report)
    if json:
        print_json(result)
    else:
        print_certify_report(result, console())
    if not result.passed:
        raise typer.Exit(FAILED)
