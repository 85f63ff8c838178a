"""`dse sweep`: sample the design space with Optuna; the options that it alone has."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phaze.cli.derived_options import takes
from phaze.inputs.options.search_options import SweepOptions

if TYPE_CHECKING:
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.sampling.claim_board import SharedEvaluation
    from phaze.explore.sampling.optuna_sweep import Sweep, SweepPlan, SweepResult


@takes(SweepOptions)
def command(options: SweepOptions) -> None:
    """Sample the design space with Optuna; the study lasts and can be resumed.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, cost_per_chip, energy_per_sample, memory,
    cost_per_sample, cost_per_million_tokens, carbon_per_sample, carbon_per_million_tokens.

    Examples:
        dse sweep --workload gpt3 --power 400W --trials 50 --objectives throughput,tdp
        dse sweep -w bert-large --devices 32 --sampler nsga2 --storage sqlite:///all.db --study mine

    Exit codes: 3

    See also: dse run, which proves its answer; dse pareto and dse report for what was found.
    """
    from phaze.cli.console_output import console, print_json
    from phaze.cli.interruption import INTERRUPTED
    from phaze.report.terminal.strategy_tables import sweep_table

    done = _sampled(options)
    if options.json:
        print_json(done.document)
    else:
        found = done.result
        console().print(
            sweep_table(found.frontier, done.sweep.plan.objectives, found.trials, found.infeasible)
        )
    _say(done.sweep.plan, done.folder, done.sweep.share, quiet=options.quiet)
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


def _sampled(options: SweepOptions) -> _Done:
    """Sample as options ask for, and keep what was found."""
    from phaze.cli.console_output import progress
    from phaze.cli.interruption import interruptible
    from phaze.cli.questions.search_stores import shared_store
    from phaze.explore.documents.sweep_document import sweep_document
    from phaze.explore.request.search_resources import SearchResources
    from phaze.explore.sampling.optuna_sweep import Sweep
    from phaze.inputs.recorded.input_files import run_folder
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.sweep_inputs import JOURNAL, make_plan
    from phaze.runs.executors.open_executor import open_executor
    from phaze.runs.run_directory import run_directory, write_sweep
    from phaze.runs.run_log import logged_progress

    started = datetime.now(UTC)
    folder = run_folder(options.out, options.workload, each_host=options.join)
    plan = make_plan(options, options.storage or folder / JOURNAL)
    with (
        run_directory(folder, resume=options.resume or options.join),
        interruptible() as interrupted,
        progress(quiet=options.quiet) as report,
        logged_progress(folder, report, _typed()) as log,
        open_executor(options.workers, options.executor, interrupted) as team,
    ):
        sampling = Sweep(
            plan, log, interrupted, SearchResources(team, shared_store(cached=not options.no_cache))
        )
        result = sampling.run()
        found = sweep_document(sampling, result, started)
        document = record_question(found, "sweep", options, ["dse", *_typed()])
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
