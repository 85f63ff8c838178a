"""`dse run`: the main job, and the options that it alone has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze.cli import shared_options as opt
from phaze.cli import shell_completion as known
from phaze.cli import training_plan_options

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import ResultDocument


Devices = Annotated[
    int | None, typer.Option(min=1, help="Accelerators the workload is spread over (default: 1024).")
]
Objective = Annotated[
    str,
    typer.Option(
        help="throughput, throughput_per_tdp, tdp, area, energy_per_sample, memory or cost_per_chip.",
        autocompletion=known.one_of(*known.OBJECTIVES),
    ),
]
Axes = Annotated[
    str | None,
    typer.Option(
        help="Frontier on these metrics besides the objective, for instance throughput,area.",
        autocompletion=known.several_of(*known.METRICS),
    ),
]
Strategy = Annotated[
    str,
    typer.Option(
        help="certified, phaze, wham, random, tpe, gp, nsga2 or cmaes.",
        autocompletion=known.one_of("certified", "phaze", "wham", "random", "tpe", "gp", "nsga2", "cmaes"),
    ),
]
Evaluations = Annotated[
    int | None, typer.Option(min=1, help="Architectures a strategy may evaluate (default: 200).")
]
Designs = Annotated[
    str | None,
    typer.Option(
        help="Of wham: one design (default), or per-stage.", autocompletion=known.one_of("one", "per-stage")
    ),
]
TopK = Annotated[int | None, typer.Option(min=1, help="Of wham: designs kept for each stage (default: 10).")]
Robust = Annotated[
    bool,
    typer.Option("--robust", help="Rank near-optimal designs where the model's constants are wrong."),
]
Combine = Annotated[
    str,
    typer.Option(
        help="Several workloads: geomean, mean or worst of ratios, or throughput.",
        autocompletion=known.one_of("geomean", "mean", "worst", "throughput"),
    ),
]
Weight = Annotated[
    list[str] | None, typer.Option(help="Weight of one of several workloads.", metavar="NAME=NUMBER")
]
MinThroughput = Annotated[
    float | None, typer.Option(min=0.0, help="Least throughput of every workload, samples/s.")
]
MaxLatency = Annotated[str | None, typer.Option(help="Longest iteration (prefill: batch), for instance 2s.")]
ClusterPower = Annotated[
    str | None, typer.Option(help="Power budget of all devices, their number being free: 1MW.")
]
ClusterCost = Annotated[
    float | None,
    typer.Option(help="Budget for making all devices, in USD, their number being free: 20e6."),
]
ClusterOverhead = Annotated[float, typer.Option(help="Power of the cluster over that of its accelerators.")]
Tokens = Annotated[float | None, typer.Option(help="Tokens to train on: days, energy and money of the run.")]
Samples = Annotated[float | None, typer.Option(help="Samples to train on, instead of --tokens.")]
ElectricityPrice = Annotated[float | None, typer.Option(help="USD per kWh (default: of the price file).")]
Pue = Annotated[float | None, typer.Option(help="Power usage effectiveness (default: of the price file).")]
Gap = Annotated[float, typer.Option(min=0.0, help="Stop as soon as this gap is proven.")]


def command(
    typed: typer.Context,
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    power_density: opt.PowerDensity = None,
    devices: Devices = None,
    global_batch: opt.GlobalBatch = None,
    plans: training_plan_options.Plans = "full",
    framework: training_plan_options.Framework = "ideal",
    objective: Objective = "throughput",
    axes: Axes = None,
    strategy: Strategy = "certified",
    evaluations: Evaluations = None,
    designs: Designs = None,
    top_k: TopK = None,
    robust: Robust = False,
    combine: Combine = "geomean",
    weight: Weight = None,
    min_throughput: MinThroughput = None,
    max_latency: MaxLatency = None,
    cluster_power: ClusterPower = None,
    cluster_cost: ClusterCost = None,
    cluster_overhead: ClusterOverhead = 1.0,
    tokens: Tokens = None,
    samples: Samples = None,
    electricity_price: ElectricityPrice = None,
    pue: Pue = None,
    space: opt.Space = "default",
    network: opt.Network = "default",
    node: opt.Node = None,
    clock: opt.Clock = None,
    fix: opt.Fix = None,
    dvfs: opt.Dvfs = False,
    tdp_margin: opt.TdpMargin = 1.0,
    mode: opt.ModeOption = "training",
    context: opt.Context = None,
    kv_cache: opt.KvCache = "contiguous",
    attention: training_plan_options.Attention = None,
    fusion: training_plan_options.Fusion = None,
    recipe: opt.Recipe = None,
    bind: opt.Bind = None,
    rung: opt.Rung = "analytic",
    time_limit: opt.TimeLimit = "60s",
    gap: Gap = 0.0,
    seed: opt.Seed = 0,
    workers: opt.Workers = 1,
    executor: opt.Executor = None,
    out: opt.Out = None,
    resume: opt.Resume = False,
    no_cache: opt.NoCache = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best architecture and placement, with a proof; several workloads share one design.

    Examples:
        dse run --workload gpt3 --power 400W
        dse run --workload gpt3 --power 400W --framework megatron-core-2024
        dse run -w bert-large -w resnet50 --devices 64 --power 300W --combine worst --out results/common
        dse run --workload model.onnx --devices 8 --strategy wham --designs per-stage --json

    Exit codes: 3, 4

    See also: dse report, dse explain and dse certify for the run directory; dse sweep; dse plan.
    """
    from phaze.cli.interruption import INTERRUPTED

    document, folder, stopped = _found(typed.params)
    show(document, folder, json=json, quiet=quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _found(asked: dict[str, Any]) -> tuple[ResultDocument, Path, bool]:
    """The answer to options by their names, the folder that keeps it, and whether somebody ended the search."""
    from phaze.cli.console_output import progress
    from phaze.cli.interruption import interruptible
    from phaze.cli.questions.search_stores import open_run_stores
    from phaze.explore.answers.main_job import explore
    from phaze.explore.request.search_progress import Clock
    from phaze.explore.request.search_resources import SearchResources
    from phaze.inputs.input_files import input_files, record_question, run_folder
    from phaze.inputs.run_inputs import make_request
    from phaze.runs.executors.open_executor import open_executor
    from phaze.runs.run_directory import run_directory, write_run
    from phaze.runs.run_log import logged_progress

    request = make_request(asked)
    timer, files = Clock(request.time_limit_s), input_files(asked)
    with (
        run_directory(run_folder(asked["out"], asked["workload"]), resume=asked["resume"]) as folder,
        interruptible(timer.interrupt) as interrupted,
        progress(quiet=asked["quiet"]) as report,
        logged_progress(folder, report, sys.argv[1:]) as log,
        open_run_stores(folder, asked, files) as kept,
        open_executor(asked["workers"], asked["executor"]) as team,
    ):
        answer = explore(request, log, timer, SearchResources(team, kept.store))
        document = record_question(answer.document, "run", asked, ["dse", *sys.argv[1:]])
        write_run(folder, document, answer.designs)
        if not timer.over:
            kept.complete()
        return document, folder, interrupted()


def show(document: ResultDocument, folder: Path, *, json: bool, quiet: bool) -> None:
    """Print the document or its tables, and where the run is kept."""
    from phaze.cli.console_output import console, print_json, say
    from phaze.report.terminal.search_tables import print_result

    if json:
        print_json(document)
    else:
        print_result(document, console())
    say(f"run directory: {folder}", quiet=quiet)
