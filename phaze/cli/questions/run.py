"""`dse run`: the main job, and the options that it alone has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from phaze.cli.derived_options import takes
from phaze.inputs.options.search_options import RunOptions

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import ResultDocument


@takes(RunOptions)
def command(options: RunOptions) -> None:
    """Find the best architecture and plan for training, or with --serve for a service, with a proof.

    Examples:
        dse run --workload gpt3 --power 400W
        dse run --workload gpt3 --power 400W --framework megatron-core-2024
        dse run -w bert-large -w resnet50 --devices 64 --power 300W --combine worst --out results/common
        dse run --workload model.onnx --devices 8 --strategy wham --designs per-stage --json
        dse run --workload llama3-70b --serve concurrency=64 --ttft 2s --tpot 50ms --power 700W
        dse run --workload llama3-70b --serve saturated --ttft 2s --tpot 50ms --power 700W --designs 2

    Exit codes: 3, 4

    See also: dse report, dse explain and dse certify for the run directory; dse sweep; dse plan.
    """
    from phaze.cli.interruption import INTERRUPTED

    if options.serve is not None:
        _serve(options)
        return
    document, folder, stopped = _found(options)
    show(document, folder, json=options.json, quiet=options.quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _found(options: RunOptions) -> tuple[ResultDocument, Path, bool]:
    """The answer, the folder that keeps it, and whether somebody ended the search."""
    from phaze.cli.console_output import progress
    from phaze.cli.interruption import Heard, interruptible
    from phaze.cli.questions.search_stores import open_run_stores
    from phaze.errors import InputError
    from phaze.explore.answers.main_job import explore
    from phaze.explore.request.search_progress import Clock
    from phaze.explore.request.search_resources import SearchResources
    from phaze.inputs.recorded.input_files import input_files, run_folder
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.run_inputs import make_request
    from phaze.runs.executors.open_executor import open_executor
    from phaze.runs.run_directory import run_directory, write_run
    from phaze.runs.run_log import logged_progress

    if options.resume and options.out is None:
        raise InputError("--resume continues in a run directory: give --out, the folder")
    request = make_request(options)
    timer, files = Clock(request.time_limit_s), input_files(options)
    with (
        run_directory(run_folder(options.out, options.workload), resume=options.resume) as folder,
        progress(quiet=options.quiet, limit_s=request.time_limit_s) as report,
        logged_progress(folder, heard := Heard(report), sys.argv[1:]) as log,
        interruptible(timer.interrupt, heard) as interrupted,
        open_run_stores(folder, options, files) as kept,
        open_executor(options.workers, options.executor) as team,
    ):
        answer = explore(request, log, timer, SearchResources(team, kept.store))
        document = record_question(answer.document, "run", options, ["dse", *sys.argv[1:]])
        write_run(folder, document, answer.designs)
        if not timer.over:
            kept.complete()
        return document, folder, interrupted()


def _serve(options: RunOptions) -> None:
    """The chip of a service, and its plan."""
    from phaze.cli.console_output import console, print_json, progress, say
    from phaze.cli.interruption import INTERRUPTED, Heard, interruptible
    from phaze.explore.request.search_progress import Clock
    from phaze.explore.services.service_answer import find_service
    from phaze.inputs.recorded.input_files import run_folder
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.run_inputs import make_service
    from phaze.report.terminal.plans.service_tables import print_service
    from phaze.runs.run_directory import run_directory, write_answer
    from phaze.runs.run_log import logged_progress

    request = make_service(options)
    timer = Clock(request.time_limit_s)
    with (
        run_directory(run_folder(options.out, options.workload)) as folder,
        progress(quiet=options.quiet, limit_s=request.time_limit_s) as report,
        logged_progress(folder, heard := Heard(report), sys.argv[1:]) as log,
        interruptible(timer.interrupt, heard) as interrupted,
    ):
        found = find_service(request, log, timer, options.seed)
        document = record_question(found.document, "run", options, ["dse", *sys.argv[1:]])
        write_answer(folder, document)
        stopped = interrupted()
    if options.json:
        print_json(document)
    else:
        print_service(document, found, console())
    say(f"run directory: {folder}", quiet=options.quiet)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def show(document: ResultDocument, folder: Path, *, json: bool, quiet: bool) -> None:
    """Print the document or its tables, and where the run is kept."""
    from phaze.cli.console_output import console, print_json, say
    from phaze.report.terminal.search_tables import print_result

    if json:
        print_json(document)
    else:
        print_result(document, console())
    say(f"run directory: {folder}", quiet=quiet)
