"""`dse run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.document import ResultDocument


def command(
    context: typer.Context,
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    power_density: opt.PowerDensity = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Accelerators the workload is spread over (default: 1024).")
    ] = None,
    global_batch: opt.GlobalBatch = None,
    objective: Annotated[
        str,
        typer.Option(
            help="throughput, throughput_per_tdp, tdp, area, energy_per_sample, memory or cost_per_chip."
        ),
    ] = "throughput",
    axes: Annotated[
        str | None,
        typer.Option(help="Frontier on these metrics besides the objective, for instance throughput,area."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="certified, phaze, wham, random, tpe, gp, nsga2 or cmaes.")
    ] = "certified",
    evaluations: Annotated[
        int | None, typer.Option(min=1, help="Architectures a strategy may evaluate (default: 200).")
    ] = None,
    designs: Annotated[str | None, typer.Option(help="Of wham: one design (default), or per-stage.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Of wham: designs kept for each stage (default: 10).")
    ] = None,
    robust: Annotated[
        bool,
        typer.Option("--robust", help="Rank near-optimal designs where the model's constants are wrong."),
    ] = False,
    combine: Annotated[
        str, typer.Option(help="Several workloads: geomean, mean or worst of ratios, or throughput.")
    ] = "geomean",
    weight: Annotated[
        list[str] | None, typer.Option(help="Weight of one of several workloads.", metavar="NAME=NUMBER")
    ] = None,
    min_throughput: Annotated[
        float | None, typer.Option(min=0.0, help="Least throughput of every workload, samples/s.")
    ] = None,
    max_latency: Annotated[
        str | None, typer.Option(help="Longest iteration (prefill: batch), for instance 2s.")
    ] = None,
    cluster_power: Annotated[
        str | None, typer.Option(help="Power budget of all devices, their number being free: 1MW.")
    ] = None,
    cluster_overhead: Annotated[
        float, typer.Option(help="Power of the cluster over that of its accelerators.")
    ] = 1.0,
    tokens: Annotated[
        float | None, typer.Option(help="Tokens to train on: days, energy and money of the run.")
    ] = None,
    samples: Annotated[float | None, typer.Option(help="Samples to train on, instead of --tokens.")] = None,
    electricity_price: Annotated[
        float | None, typer.Option(help="USD per kWh (default: of the price file).")
    ] = None,
    pue: Annotated[
        float | None, typer.Option(help="Power usage effectiveness (default: of the price file).")
    ] = None,
    space: opt.Space = "default",
    network: opt.Network = "default",
    node: opt.Node = None,
    clock: opt.Clock = None,
    fix: opt.Fix = None,
    dvfs: opt.Dvfs = False,
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
    """Find the best architecture and placement, with a proof; several workloads share one design.

    Example: dse run --workload gpt3 --power 400W
    """
    from phaze.cli.interrupt import INTERRUPTED, interruptible
    from phaze.cli.output import progress
    from phaze.cli.request import make_request
    from phaze.cli.task import input_files, run_folder, with_inputs
    from phaze.explore.api import explore
    from phaze.explore.progress import Clock
    from phaze.runs.directory import run_directory, write_run

    request = make_request(context.params)
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
