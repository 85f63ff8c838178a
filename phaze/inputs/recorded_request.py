"""From a run directory back to what was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import Manifest, ResultDocument
    from phaze.explore.request.explore_request import ExploreRequest
    from phaze.inputs.option_models import Options, RunOptions


def request_of(document: ResultDocument, run: Path) -> ExploreRequest:
    """The request behind a run of `dse run`.

    Files are looked for where they were named, from the working directory. Raises InputError where the run
    was not made by `dse run`, or an input has changed since.
    """
    from phaze.explore.answers.main_job import resolve_strategy
    from phaze.inputs.run_inputs import make_request

    request = resolve_strategy(make_request(asked_of_run(document.manifest, run)))
    asked, told = {task.workload.name for task in request.tasks}, set(document.best.workloads)
    if asked != told:
        names = ", ".join(sorted(told))
        raise InputError(
            f"{run} was asked about {', '.join(sorted(asked))} and tells of {names}: it was changed"
        )
    if any(result.placement.plan is None for result in document.best.workloads.values()):
        raise InputError(f"{run} tells no plan of its best design: it was changed")
    return request


def question_of(document: ResultDocument, run: Path, verb: str) -> ExploreRequest:
    """The question of a run of one workload: `request_of`, then `question_in`."""
    return question_in(request_of(document, run), document, run, verb)


def question_in(request: ExploreRequest, document: ResultDocument, run: Path, verb: str) -> ExploreRequest:
    """A request without what does not change the winner's surroundings: the search, the length of training.

    A budget for a cluster becomes each device's share of it. `run` and `verb` are for messages. Raises InputError where
    there are several workloads.
    """
    from phaze.explore.answers.cluster_exploration import with_devices

    if request.others:
        names = ", ".join(task.workload.name for task in request.tasks)
        raise InputError(f"{verb} is for runs of one workload; {run} was made for {names}")
    if request.cluster is not None:
        devices = next(iter(document.best.workloads.values())).devices
        request = with_devices(request, request.cluster, devices)
    alike = replace(request.space, heterogeneous=False)
    return replace(request, space=alike, strategy=None, robust=False, length=None)


def asked_of_run(manifest: Manifest, run: Path) -> RunOptions:
    """The options that a run of `dse run` or `phaze.explore` was made with.

    Raises InputError where it is of another verb, was changed, or an input has changed since.
    """
    from phaze.inputs.option_models import RunOptions
    from phaze.inputs.recorded_options import asked_before

    if manifest.asked is not None and manifest.asked.verb != "run":
        raise InputError(f"{run} was made by dse {manifest.asked.verb}; this is for runs of dse run")
    options = asked_before(manifest, run, RunOptions)
    check_inputs(manifest, options)
    return options


def check_inputs(manifest: Manifest, options: Options) -> None:
    """Raises InputError where a file that the run has read is not what it was."""
    from phaze.inputs.input_files import input_files
    from phaze.runs.atomic_files import file_hashes

    files = input_files(options)
    for name in manifest.inputs_sha256:
        if name not in files:
            raise InputError(
                f"{_named(name, options)} is missing; go to where the run was made, or restore it"
            )
    for name, now in file_hashes({name: files[name] for name in manifest.inputs_sha256}).items():
        if manifest.inputs_sha256[name] != now:
            raise InputError(f"{files[name]} has changed since the run was made; restore it, or ask again")


def _named(name: str, options: Options) -> str:
    """An input by what it is and as it was asked for."""
    given = options.values.get(name.split(maxsplit=1)[0])
    return f"{name} ({given})" if isinstance(given, str) else name
