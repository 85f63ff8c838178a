"""`dse run`: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from phaze.cli import options as opt
from phaze.cli import plan_options
from phaze.cli import run_options as own

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import ResultDocument


def command(
    typed: typer.Context,
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    power_density: opt.PowerDensity = None,
    devices: own.Devices = None,
    global_batch: opt.GlobalBatch = None,
    plans: plan_options.Plans = "full",
    framework: plan_options.Framework = "ideal",
    objective: own.Objective = "throughput",
    axes: own.Axes = None,
    strategy: own.Strategy = "certified",
    evaluations: own.Evaluations = None,
    designs: own.Designs = None,
    top_k: own.TopK = None,
    robust: own.Robust = False,
    combine: own.Combine = "geomean",
    weight: own.Weight = None,
    min_throughput: own.MinThroughput = None,
    max_latency: own.MaxLatency = None,
    cluster_power: own.ClusterPower = None,
    cluster_cost: own.ClusterCost = None,
    cluster_overhead: own.ClusterOverhead = 1.0,
    tokens: own.Tokens = None,
    samples: own.Samples = None,
    electricity_price: own.ElectricityPrice = None,
    pue: own.Pue = None,
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
    attention: plan_options.Attention = None,
    fusion: plan_options.Fusion = None,
    recipe: opt.Recipe = None,
    bind: opt.Bind = None,
    rung: opt.Rung = "analytic",
    time_limit: opt.TimeLimit = "60s",
    gap: own.Gap = 0.0,
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
    from phaze.cli.interrupt import INTERRUPTED

    document, folder, stopped = _found(typed.params)
    show(document, folder, json=json, quiet=quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _found(asked: dict[str, Any]) -> tuple[ResultDocument, Path, bool]:
    """The answer to options by their names, the folder that keeps it, and whether somebody ended the search."""
    from phaze.cli.interrupt import interruptible
    from phaze.cli.kept import keeping
    from phaze.cli.output import progress
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
        keeping(folder, asked, files) as kept,
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
    from phaze.cli.output import console, print_json, say
    from phaze.report.tables import print_result

    if json:
        print_json(document)
    else:
        print_result(document, console())
    say(f"run directory: {folder}", quiet=quiet)
