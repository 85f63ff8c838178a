"""From a run directory back to what was asked: its command line, read again by the same parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.explore.document import Manifest, ResultDocument
    from phaze.explore.request import ExploreRequest


def request_of(document: ResultDocument, run: Path, verb: str) -> ExploreRequest:
    """The request behind a run of `dse run`, for a verb that looks at runs over throughput and TDP.

    Files are looked for where the command line says, from the working directory. Raises InputError where the run
    was not made by `dse run`, an input has changed since, or its objective or axes are others.
    """
    from phaze.inputs.request import make_request

    asked = recorded(document.manifest.command, run)
    check_inputs(document.manifest, asked)
    request = make_request(asked)
    if request.axes or not request.objective.on_frontier:
        other = "--axes" if request.axes else f"--objective {request.objective}"
        raise InputError(f"{verb} is for runs over throughput and TDP; {run} was made with {other}")
    return request


def question_of(document: ResultDocument, run: Path, verb: str) -> ExploreRequest:
    """The same without what does not change the winner's surroundings: the search, the length of training.

    A budget for a cluster becomes each device's share of it. Raises InputError also where there are several
    workloads.
    """
    from phaze.explore.cluster_choice import with_devices

    request = request_of(document, run, verb)
    if request.others:
        names = ", ".join(task.workload.name for task in request.tasks)
        raise InputError(f"{verb} is for runs of one workload; {run} was made for {names}")
    if request.cluster is not None:
        devices = next(iter(document.best.workloads.values())).devices
        request = with_devices(request, request.cluster, devices)
    alike = replace(request.space, heterogeneous=False)
    return replace(request, space=alike, strategy=None, robust=False, length=None)


def recorded(line: Sequence[str], run: Path) -> Mapping[str, Any]:
    """The options of the command line that a run was made with, by their names in Python.

    Raises InputError where it was not `dse run`.
    """
    from phaze.cli.run import command

    if list(line[:2]) != ["dse", "run"]:
        raise InputError(f"{run} was not made by dse run, whose command line its manifest would hold")
    app = typer.Typer(add_completion=False)
    app.command("run")(command)
    context = typer.main.get_command(app).make_context("run", list(line[2:]))
    return dict(context.params)


def check_inputs(manifest: Manifest, asked: Mapping[str, Any]) -> None:
    """Raises InputError where a file that the run has read is not what it was."""
    from phaze.inputs.files import input_files
    from phaze.runs.manifest import hashes

    files = input_files(asked["workload"], asked["network"], asked["space"])
    for name, path in files.items():
        if not path.is_file():
            raise InputError(f"{path} ({name}) is missing; go to where the run was made, or restore it")
    for name, now in hashes(files).items():
        if manifest.inputs_sha256.get(name) != now:
            raise InputError(
                f"{files[name]} has changed since the run was made; restore it, or run again with dse run"
            )
