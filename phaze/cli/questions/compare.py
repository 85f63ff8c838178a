"""`dse compare`: several architectures side by side."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze.cli import shared_options as opt
from phaze.cli import training_plan_options
from phaze.cli.shell_completion import archs

if TYPE_CHECKING:
    from phaze.inputs.evaluate_inputs import ComparedArchitectures


def command(
    workload: opt.Workload,
    arch: Annotated[
        list[str],
        typer.Option("--arch", "-a", help="Chips, YAML files or run directories.", autocompletion=archs),
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(help="Further architectures.", metavar="[ARCH]...", autocompletion=archs),
    ] = None,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    plans: training_plan_options.Plans = "full",
    framework: training_plan_options.Framework = "ideal",
    mode: opt.ModeOption = "training",
    context: opt.Context = None,
    kv_cache: opt.KvCache = "contiguous",
    attention: training_plan_options.Attention = None,
    fusion: training_plan_options.Fusion = None,
    recipe: opt.Recipe = None,
    bind: opt.Bind = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    out: opt.Keep = None,
    json: opt.Json = False,
) -> None:
    """Compare architectures, each under its own best placement.

    Examples:
        dse compare --arch a100 h100 tpuv4 --workload gpt3
        dse compare --arch mine.yaml h100 --workload llama3-8b --mode decode --devices 8 --json

    Exit codes: 3

    See also: dse evaluate for one; dse archs for built-in chips.
    """
    asked = dict(locals())
    from phaze.cli.console_output import console, print_json
    from phaze.inputs.evaluate_inputs import check_some_can
    from phaze.inputs.input_files import record_question
    from phaze.report.terminal.side_by_side import print_comparison
    from phaze.runs.run_directory import kept_answer

    asked |= {"arch": [*arch, *(more or ())], "more": None}
    with kept_answer(out) as keep:
        found = answer(asked)
        document = record_question(found.document, "compare", asked, ["dse", *sys.argv[1:]])
        keep(document)
    if json:
        print_json(document)
    else:
        print_comparison(found.rows, console())
    check_some_can(found.rows, workload)


def answer(asked: Mapping[str, Any]) -> ComparedArchitectures:
    """The architectures as the options say."""
    from phaze.inputs.evaluate_inputs import compare_given

    return compare_given(asked["arch"], asked["workload"], asked)
