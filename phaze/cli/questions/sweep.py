"""`dse sweep`: sample the design space with Optuna; the options that it alone has."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze.cli import shared_options as opt
from phaze.cli import shell_completion as known
from phaze.cli import training_plan_options

if TYPE_CHECKING:
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.sampling.claim_board import SharedEvaluation
    from phaze.explore.sampling.optuna_sweep import Sweep, SweepPlan, SweepResult


Trials = Annotated[int, typer.Option(min=1, help="Designs to try, those of earlier runs included.")]
Sampler = Annotated[
    str,
    typer.Option(
        help="tpe, random, nsga2, gp or cmaes; the last two need extras of these names.",
        autocompletion=known.one_of("tpe", "random", "nsga2", "gp", "cmaes"),
    ),
]
Objectives = Annotated[
    str, typer.Option(help="Metrics, separated by commas.", autocompletion=known.several_of(*known.METRICS))
]
Storage = Annotated[
    str | None,
    typer.Option(
        help="Database URL, sqlite:///FILE or postgresql://... (default: a journal file in the run directory).",
        metavar="URL",
    ),
]
Batch = Annotated[
    int,
    typer.Option(min=1, max=10_000, help="Trials asked together: the most that can be evaluated at a time."),
]
Join = Annotated[
    bool,
    typer.Option("--join", help="Begin or continue the study together with all hosts that say the same."),
]
Study = Annotated[str, typer.Option(help="Name of the study in its storage.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the study, in a run directory that holds something.")
]


def command(
    typed: typer.Context,
    workload: opt.Workload,
    power: opt.Power = None,
    area: opt.Area = None,
    power_density: opt.PowerDensity = None,
    trials: Trials = 100,
    sampler: Sampler = "tpe",
    objectives: Objectives = "throughput,tdp",
    devices: opt.Devices = 1024,
    global_batch: opt.GlobalBatch = None,
    plans: training_plan_options.Plans = "full",
    framework: training_plan_options.Framework = "ideal",
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
    storage: Storage = None,
    study: Study = "sweep",
    batch: Batch = 8,
    join: Join = False,
    seed: opt.Seed = 0,
    workers: opt.Workers = 1,
    executor: opt.Executor = None,
    out: opt.Out = None,
    resume: Resume = False,
    no_cache: opt.NoCache = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Sample the design space with Optuna; the study lasts and can be resumed.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, energy_per_sample, memory.

    Examples:
        dse sweep --workload gpt3 --power 400W --trials 50 --objectives throughput,tdp
        dse sweep -w bert-large --devices 32 --sampler nsga2 --storage sqlite:///all.db --study mine

    Exit codes: 3

    See also: dse run, which proves its answer; dse pareto and dse report for what was found.
    """
    from phaze.cli.console_output import console, print_json
    from phaze.cli.interruption import INTERRUPTED
    from phaze.report.terminal.search_tables import sweep_table

    done = _sampled(typed.params)
    if json:
        print_json(done.document)
    else:
        found = done.result
        console().print(
            sweep_table(found.frontier, done.sweep.plan.objectives, found.trials, found.infeasible)
        )
    _say(done.sweep.plan, done.folder, done.sweep.share, quiet=quiet)
    if done.stopped:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class _Done:
    """A sweep that has ended, by itself or because somebody stopped it."""

    sweep: Sweep
    result: SweepResult
    document: SweepDocument
    folder: Path
    stopped: bool


def _sampled(asked: dict[str, Any]) -> _Done:
    """Sample as options by their names ask for, and keep what was found."""
    from phaze.cli.console_output import progress
    from phaze.cli.interruption import interruptible
    from phaze.cli.questions.search_stores import shared_store
    from phaze.explore.documents.sweep_document import sweep_document
    from phaze.explore.request.search_resources import SearchResources
    from phaze.explore.sampling.optuna_sweep import Sweep
    from phaze.inputs.input_files import record_question, run_folder
    from phaze.inputs.sweep_inputs import JOURNAL, make_plan
    from phaze.runs.executors.open_executor import open_executor
    from phaze.runs.run_directory import run_directory, write_sweep
    from phaze.runs.run_log import logged_progress

    started = datetime.now(UTC)
    folder = run_folder(asked["out"], asked["workload"], each_host=asked["join"])
    plan = make_plan(asked, asked["storage"] or folder / JOURNAL)
    with (
        run_directory(folder, resume=asked["resume"] or asked["join"]),
        interruptible() as interrupted,
        progress(quiet=asked["quiet"]) as report,
        logged_progress(folder, report, _typed()) as log,
        open_executor(asked["workers"], asked["executor"]) as team,
    ):
        sampling = Sweep(
            plan, log, interrupted, SearchResources(team, shared_store(cached=not asked["no_cache"]))
        )
        result = sampling.run()
        found = sweep_document(sampling, result, started)
        document = record_question(found, "sweep", asked, ["dse", *_typed()])
        write_sweep(folder, document, result)
        return _Done(sampling, result, document, folder, interrupted())


def _typed() -> list[str]:
    """The command line without the password of a database."""
    from phaze.explore.sampling.study_storage import without_password

    words = []
    for word in sys.argv[1:]:
        option, equals, url = word.partition("=") if word.startswith("--storage=") else ("", "", word)
        words.append(option + equals + without_password(url) if "://" in url else word)
    return words


def _say(plan: SweepPlan, folder: Path, share: SharedEvaluation | None, *, quiet: bool) -> None:
    from phaze.cli.console_output import say

    say(f"run directory: {folder}", quiet=quiet)
    if isinstance(plan.place.storage, str):
        say(str(plan.place), quiet=quiet)
    if share:
        done = f"this host evaluated {share.evaluated} designs and waited {share.waited_s:.1f} s for others"
        say(done, quiet=quiet)
