"""`dse sweep`: sample the design space with Optuna."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phaze.cli import options as opt
from phaze.cli import sweep_options as own

if TYPE_CHECKING:
    from phaze.explore.document import Design
    from phaze.explore.sweep import SweepPlan, SweepResult


def command(
    typed: typer.Context,
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    power_density: opt.PowerDensity = None,
    trials: own.Trials = 100,
    sampler: own.Sampler = "tpe",
    objectives: own.Objectives = "throughput,tdp",
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
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
    attention: opt.Attention = "flash",
    fusion: opt.Fusion = "all",
    bind: opt.Bind = None,
    workers: own.Workers = 1,
    storage: own.Storage = None,
    study: own.Study = "sweep",
    seed: opt.Seed = 0,
    out: opt.Out = None,
    resume: own.Resume = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Sample the design space with Optuna; the study lasts and can be resumed.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, energy_per_sample, memory.

    Example: dse sweep --workload gpt3 --power 400W --trials 50 --objectives throughput,tdp
    """
    from phaze.cli.interrupt import INTERRUPTED, interruptible
    from phaze.cli.output import progress
    from phaze.explore.sweep import Sweep
    from phaze.inputs.files import input_files, run_folder
    from phaze.inputs.sweep import JOURNAL, make_plan
    from phaze.runs.directory import run_directory
    from phaze.runs.sweep import write_sweep

    started = datetime.now(UTC)
    folder = run_folder(out, workload)
    plan = make_plan(typed.params, typed.params["storage"] or folder / JOURNAL)
    with (
        run_directory(folder, resume=resume),
        interruptible() as interrupted,
        progress(quiet=quiet) as report,
    ):
        sampling = Sweep(plan, report, interrupted)
        result = sampling.run()
        files = input_files(workload, network, space)
        write_sweep(folder, result, plan.seed, files, started, ["dse", *_typed()])
        best = [sampling.design(row) for row in result.frontier] if json else []
        stopped = interrupted()
    _show(result, plan, best, json=json)
    _say(plan, folder, quiet=quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _typed() -> list[str]:
    """The command line without the password of a database."""
    from phaze.explore.sampling.record import without_password

    words = []
    for word in sys.argv[1:]:
        option, equals, url = word.partition("=") if word.startswith("--storage=") else ("", "", word)
        words.append(option + equals + without_password(url) if "://" in url else word)
    return words


def _show(result: SweepResult, plan: SweepPlan, best: list[Design], *, json: bool) -> None:
    from phaze.cli.output import console, print_json
    from phaze.report.sweep import sweep_table

    if json:
        print_json(
            {
                "schema": "phaze-sweep/1",
                "trials": result.trials,
                "infeasible": result.infeasible,
                "objectives": [metric.name for metric in plan.objectives],
                "frontier": [design.model_dump(mode="json") for design in best],
            }
        )
    else:
        console().print(sweep_table(result.frontier, plan.objectives, result.trials, result.infeasible))


def _say(plan: SweepPlan, folder: Path, *, quiet: bool) -> None:
    from phaze.cli.output import say

    say(f"run directory: {folder}", quiet=quiet)
    if isinstance(plan.place.storage, str):
        say(str(plan.place), quiet=quiet)
