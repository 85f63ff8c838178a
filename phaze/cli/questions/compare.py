"""`dse compare`: several architectures side by side."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from phaze.cli.derived_options import takes
from phaze.cli.shell_completion import archs
from phaze.inputs.options.plan_options import CompareOptions


@takes(CompareOptions)
def command(
    options: CompareOptions,
    more: Annotated[
        list[str] | None,
        typer.Argument(help="Further architectures.", metavar="[ARCH]...", autocompletion=archs),
    ] = None,
) -> None:
    """Compare architectures, each under its own best placement.

    Examples:
        dse compare --arch a100 h100 tpuv4 --workload gpt3
        dse compare --arch mine.yaml h100 --workload llama3-8b --mode decode --devices 8 --json

    Exit codes: 3

    See also: dse evaluate for one; dse archs for built-in chips.
    """
    from dataclasses import replace

    from phaze.cli.console_output import console, print_json, progress
    from phaze.inputs.evaluate_inputs import check_some_can, compare_given
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.side_by_side import print_comparison
    from phaze.runs.run_directory import kept_answer

    options = replace(options, arch=[*options.arch, *(more or ())])
    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="comparing"):
        found = compare_given(options)
        document = record_question(found.document, "compare", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_comparison(found.rows, console())
    check_some_can(found.rows, options.workload)
