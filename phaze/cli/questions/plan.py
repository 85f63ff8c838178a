"""`dse plan`: the best way to run a workload on a cluster of one architecture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from phaze.cli.derived_options import takes
from phaze.cli.manual.typer_app import App
from phaze.cli.questions import plan_pools, plan_serving
from phaze.cli.shell_completion import one_of
from phaze.inputs.options.plan_options import PlanOptions

app = App(name="plan", invoke_without_command=True)


@app.callback()
@takes(PlanOptions, may_lack=("arch", "workload"))
def training(options: PlanOptions, context: typer.Context) -> None:
    """Find the fastest training plan that fits in memory, with a proof; what is fixed stays fixed.

    Examples:
        dse plan --arch h100 --workload gpt3 --devices 1024
        dse plan --arch h100 --workload llama3-70b --devices 512 --framework megatron-lm-2022 --zero 1 --json
        dse plan --arch a100-80gb --workload llama3-70b --devices 8 --global-batch 64 --offload any
        dse plan --arch h100 --workload llama3-8b --devices 8 --global-batch 64 --recipe fp8

    Exit codes: 3

    See also: dse plan export, dse plan pools and dse plan serving; dse whatif, for every value of one thing.
    """
    if context.invoked_subcommand is not None:
        return
    from phaze.cli.console_output import console, print_json, progress
    from phaze.errors import InputError
    from phaze.inputs.plan_inputs import plan_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.plan_tables import print_plan
    from phaze.runs.run_directory import kept_answer

    if not options.arch or not options.workload:
        raise InputError("dse plan needs --arch and --workload, for instance --arch h100 --workload gpt3")
    with kept_answer(options.out) as keep, progress(quiet=options.quiet, phase="planning"):
        document = record_question(plan_answer(options), "plan", options, ["dse", *sys.argv[1:]])
        keep(document)
    if options.json:
        print_json(document)
    else:
        print_plan(document, console())


@app.command()
def export(
    file: Annotated[
        Path,
        typer.Argument(
            help="What dse plan --json printed ( - : standard input), or a folder of dse plan --out.",
            metavar="PLAN",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--for",
            help="megatron-lm, torchtitan or maxtext.",
            autocompletion=one_of("megatron-lm", "torchtitan", "maxtext"),
        ),
    ] = "megatron-lm",
) -> None:
    """Print a plan as a launch recipe, as far as the framework can run it, with its time under that framework.

    Examples:
        dse plan export plan.json --for torchtitan
        dse plan export - --for maxtext

    See also: dse plan --json, which prints the document.
    """
    from phaze.api.planning_verbs import launch_recipe
    from phaze.cli.console_output import say
    from phaze.runs.document_formats import read_plan

    text, remarks = launch_recipe(read_plan(file), target, "--for")
    typer.echo(text, nl=False)
    for remark in remarks:
        say(f"dse: {remark}", quiet=False)


app.command("pools")(plan_pools.command)
app.command("serving")(plan_serving.command)
