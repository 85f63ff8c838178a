"""`dse sweep`: sample the design space with Optuna."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.sweep import SweepPlan, SweepResult

JOURNAL = "study.journal"


def command(
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    trials: Annotated[int, typer.Option(min=1, help="Designs to try, those of earlier runs included.")] = 100,
    sampler: Annotated[str, typer.Option(help="tpe, random or nsga2.")] = "tpe",
    objectives: Annotated[str, typer.Option(help="Metrics, separated by commas.")] = "throughput,tdp",
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    space: opt.Space = "default",
    network: opt.Network = "default",
    node: opt.Node = None,
    clock: opt.Clock = None,
    tdp_margin: opt.TdpMargin = 1.0,
    mode: opt.ModeOption = "training",
    attention: opt.Attention = "flash",
    bind: opt.Bind = None,
    seed: opt.Seed = 0,
    out: opt.Out = None,
    resume: opt.Resume = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Sample the design space with Optuna; the study is a journal file and can be resumed.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, energy_per_sample, memory.

    Example: dse sweep --workload gpt3 --power 400W --trials 50 --objectives throughput,tdp
    """
    from phaze.cli.interrupt import INTERRUPTED, interruptible
    from phaze.cli.output import choose, progress
    from phaze.cli.task import input_files, make_budgets, make_space, make_task, run_folder
    from phaze.explore.api import evaluate
    from phaze.explore.feasible import rows_within
    from phaze.explore.metrics import metric
    from phaze.explore.space_evaluator import SpaceEvaluator, parameters
    from phaze.explore.sweep import Sampler, SweepPlan, sweep
    from phaze.runs.directory import run_directory

    started = datetime.now(UTC)
    task = make_task(
        workload,
        mode=mode,
        attention=attention,
        devices=devices,
        global_batch=global_batch,
        network=network,
        bind=bind or (),
    )
    ranges = make_space(space, node, clock)
    budgets = make_budgets(power, area, tdp_margin)
    rows_within(ranges.table(), budgets, ranges.name)
    evaluator = SpaceEvaluator(ranges, budgets, partial(evaluate, task, tdp_margin=tdp_margin))
    folder = run_folder(out, workload)
    plan = SweepPlan(
        parameters=parameters(ranges),
        objectives=[metric(name.strip()) for name in objectives.split(",")],
        trials=trials,
        journal=folder / JOURNAL,
        sampler=choose(Sampler, sampler, "--sampler"),
        seed=seed,
    )
    with (
        run_directory(folder, resume=resume),
        interruptible() as interrupted,
        progress(quiet=quiet) as report,
    ):
        result = sweep(evaluator, plan, report, interrupted)
        _write(folder, result, input_files(workload, network, space), seed, started)
        stopped = interrupted()
    _show(result, plan, folder, json=json, quiet=quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _write(folder: Path, result: SweepResult, inputs: dict[str, Path], seed: int, started: datetime) -> None:
    from phaze.explore.sweep import design_row
    from phaze.runs.directory import columns, write_manifest, write_tables
    from phaze.runs.manifest import make_manifest

    rows = [design_row(design) for design in result.designs]
    if rows:
        write_tables(folder, columns(rows), [design_row(design) for design in result.frontier])
    write_manifest(folder, make_manifest(["dse", *sys.argv[1:]], seed, inputs, started))


def _show(result: SweepResult, plan: SweepPlan, folder: Path, *, json: bool, quiet: bool) -> None:
    from phaze.cli.output import console, print_json, say
    from phaze.report.sweep import sweep_table

    names = [metric.name for metric in plan.objectives]
    if json:
        print_json(
            {
                "schema": "phaze-sweep/1",
                "trials": result.trials,
                "infeasible": result.infeasible,
                "objectives": names,
                "frontier": [design.model_dump(mode="json") for design in result.frontier],
            }
        )
    else:
        console().print(sweep_table(result.frontier, plan.objectives, result.trials, result.infeasible))
    say(f"run directory: {folder}", quiet=quiet)
