"""`dse run`: the main job."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.document import ResultDocument


def command(
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    objective: Annotated[str, typer.Option(help="throughput, throughput_per_tdp or tdp.")] = "throughput",
    space: opt.Space = "default",
    network: opt.Network = "default",
    node: opt.Node = None,
    clock: opt.Clock = None,
    dvfs: Annotated[
        bool, typer.Option("--dvfs", help="Lower the clock of a design until the power budget holds.")
    ] = False,
    tdp_margin: opt.TdpMargin = 1.0,
    mode: opt.ModeOption = "training",
    attention: opt.Attention = "flash",
    bind: opt.Bind = None,
    time_limit: opt.TimeLimit = "60s",
    gap: Annotated[float, typer.Option(min=0.0, help="Stop as soon as this gap is proven.")] = 0.0,
    seed: opt.Seed = 0,
    out: opt.Out = None,
    resume: opt.Resume = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best architecture and placement, with a proof.

    Example: dse run --workload gpt3 --power 400W
    """
    from phaze.cli.interrupt import INTERRUPTED, interruptible
    from phaze.cli.output import choose, progress
    from phaze.cli.task import input_files, make_budgets, make_space, make_task, run_folder, with_inputs
    from phaze.errors import InputError
    from phaze.explore.api import explore
    from phaze.explore.progress import Clock
    from phaze.explore.request import ExploreRequest, Objective
    from phaze.quantity import parse_time
    from phaze.runs.directory import run_directory, write_run

    if math.isnan(gap):
        raise InputError("--gap nan is not a number; write for example --gap 0.01")
    request = ExploreRequest(
        task=make_task(
            workload,
            mode=mode,
            attention=attention,
            devices=devices,
            global_batch=global_batch,
            network=network,
            bind=bind or (),
        ),
        space=make_space(space, node, clock),
        budgets=make_budgets(power, area, tdp_margin, dvfs=dvfs),
        objective=choose(Objective, objective, "--objective"),
        time_limit_s=parse_time(time_limit, "--time-limit"),
        gap=gap,
        seed=seed,
    )
    timer = Clock(request.time_limit_s)
    with (
        run_directory(run_folder(out, workload), resume=resume) as folder,
        interruptible(timer.interrupt) as interrupted,
        progress(quiet=quiet) as report,
    ):
        answer = explore(request, report, timer)
        document = with_inputs(answer.document, input_files(workload, network, space))
        write_run(folder, document, answer.designs)
        stopped = interrupted()
    show(document, folder, json=json, quiet=quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def show(document: ResultDocument, folder: Path, *, json: bool, quiet: bool) -> None:
    """Print the document or its tables, and where the run is kept."""
    from phaze.cli.output import console, print_json, say
    from phaze.report.tables import print_result

    if json:
        print_json(document)
    else:
        print_result(document, console())
    say(f"run directory: {folder}", quiet=quiet)
