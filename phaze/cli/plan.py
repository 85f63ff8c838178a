"""`dse plan`: the best way to run a workload on a cluster of one architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import options as opt
from phaze.cli import plan_options as own
from phaze.cli import plan_serving

app = typer.Typer(
    name="plan",
    help="The best way to train (or serve) a model on a cluster of one architecture.",
    invoke_without_command=True,
)


@app.callback()
def training(
    context: typer.Context,
    arch: Annotated[
        str | None, typer.Option("--arch", "-a", help="Built-in chip, YAML file, run directory or RUN:ID.")
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", "-w", help="Built-in name, YAML, ONNX or .pt2 file, or hf:CONFIG.JSON."),
    ] = None,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    framework: own.Framework = "ideal",
    data_parallel: own.Degree = None,
    tensor_parallel: own.Degree = None,
    pipeline_parallel: own.Degree = None,
    context_parallel: own.Degree = None,
    expert_parallel: own.Degree = None,
    sequence_parallel: own.Sequence = None,
    microbatch: own.Degree = None,
    schedule: own.Schedule = None,
    chunks: own.Chunks = None,
    recompute: own.Recompute = None,
    zero: own.Zero = None,
    order: own.Order = None,
    attention: own.Attention = None,
    fusion: own.Fusion = None,
    bind: opt.Bind = None,
    network: opt.Network = "default",
    rung: opt.Rung = "analytic",
    calibration: opt.Calibration = None,
    json: opt.Json = False,
) -> None:
    """Find the fastest training plan that fits in memory, with a proof; what is fixed stays fixed.

    Example: dse plan --arch h100 --workload gpt3 --devices 1024
    """
    if context.invoked_subcommand is not None:
        return
    from phaze.cli.output import console, print_json
    from phaze.errors import InputError
    from phaze.inputs.plan import held, planned
    from phaze.report.plan import print_plan

    if arch is None or not workload:
        raise InputError("dse plan needs --arch and --workload, for instance --arch h100 --workload gpt3")
    choices = held(
        data_parallel=data_parallel,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        context_parallel=context_parallel,
        expert_parallel=expert_parallel,
        sequence_parallel=sequence_parallel,
        microbatch=microbatch,
        schedule=schedule,
        chunks=chunks,
        recompute=recompute,
        zero=zero,
        order=order,
    )
    document = planned(
        arch,
        workload,
        framework,
        choices,
        devices=devices,
        global_batch=global_batch,
        network=network,
        bind=bind or (),
        attention=attention,
        fusion=fusion,
        rung=rung,
        calibration=calibration,
    )
    if json:
        print_json(document)
    else:
        print_plan(document, console())


@app.command()
def export(
    file: Annotated[
        Path, typer.Argument(help="What dse plan --json printed ( - : standard input).", metavar="PLAN")
    ],
    target: Annotated[str, typer.Option("--for", help="megatron-lm, torchtitan or maxtext.")] = "megatron-lm",
) -> None:
    """Print a plan as a launch recipe.

    Example: dse plan export plan.json --for torchtitan
    """
    from phaze.cli.output import say
    from phaze.explore.planning.file import read_plan
    from phaze.inputs.choice import choose
    from phaze.report.recipes.recipe import Target, recipe

    told = recipe(read_plan(file), choose(Target, target, "--for"))
    typer.echo(told.text, nl=False)
    for remark in told.remarks:
        say(f"dse: {remark}", quiet=False)


app.command("serving")(plan_serving.command)
