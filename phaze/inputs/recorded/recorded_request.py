"""Question as a run directory keeps it: the options of a verb as JSON, and from a run directory back to them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError
from phaze.explore.documents.result_document import Asked, Manifest
from phaze.inputs.option_reading import Model, read
from phaze.inputs.options.option_model import Options

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.explore.request.explore_request import ExploreRequest
    from phaze.explore.services.service_request import ServiceRequest
    from phaze.inputs.options.search_options import RunOptions

_SEARCHING = ("run", "evaluate", "compare", "sweep")
_EARLIER = (
    "{run} was answered under 1F1B pipelines alone, a model that this version no longer has; ask again with dse {verb} "
    "(--plans phaze has such pipelines)"
)


def recorded_options(verb: str, options: Options) -> Asked:
    """The options of a verb by their names in Python, without those that change no answer."""
    return Asked(verb=verb, options={name: _plain(value) for name, value in options.kept.items()})


def asked_before(manifest: Manifest, run: Path, model: type[Model]) -> Model:
    """The recorded options; what the verb did not have then is at its default.

    Raises InputError where the run is from before plans were searched, whose model of a plan is no more, where an
    option was a Python object, and where one is of a type that the verb does not take.
    """
    if manifest.asked is None and manifest.command[:2] == ["dse", "run"]:
        raise InputError(_EARLIER.format(run=run, verb="run"))
    if manifest.asked is None:
        raise InputError(f"{run} was not made by dse run, whose options its manifest would hold")
    options = {name: _back(value, f"{name} of {run}") for name, value in manifest.asked.options.items()}
    if manifest.asked.verb in _SEARCHING and options.get("plans") is None:
        if options.get("framework") in (None, "ideal"):
            raise InputError(_EARLIER.format(run=run, verb=manifest.asked.verb))
        del options["plans"]  # where software was named, plans were the default's
    try:
        return read(model, options)
    except InputError as error:
        raise InputError(f"{run}: its manifest was changed: {error}") from error


def _plain(value: object) -> object:
    """As JSON has it; a file by its path, any other object by its kind and name."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {"object": type(value).__name__, "name": str(getattr(value, "name", ""))}


def _back(value: object, what: str) -> object:
    if isinstance(value, list):
        return [_back(item, what) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"}:
        return float(value["float"])
    raise InputError(
        f"{what} was a Python object ({value.get('object')} {value.get('name')!r}), "
        "which a run directory cannot keep: give it by name or as a file"
    )


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
            f"{run} was asked about {', '.join(sorted(asked))} and answers for {names}: it was changed"
        )
    if any(result.placement.plan is None for result in document.best.workloads.values()):
        raise InputError(f"{run} has no plan of its best design: it was changed")
    return request


def service_of(document: ServingDocument, run: Path) -> ServiceRequest:
    """The request behind a run of `dse run --serve`. Raises InputError as `request_of` does."""
    from phaze.inputs.run_inputs import make_service

    options = asked_of_run(document.manifest, run)
    if options.serve is None:
        raise InputError(f"{run} was asked about training and answers for a service: it was changed")
    return make_service(options)


def question_of(document: ResultDocument, run: Path, verb: str) -> ExploreRequest:
    """The question of a run of one workload: `request_of`, then `question_in`."""
    return question_in(request_of(document, run), document, run, verb)


def question_in(request: ExploreRequest, document: ResultDocument, run: Path, verb: str) -> ExploreRequest:
    """A request without what does not change the winner's surroundings: the search, the length of training.

    A budget for a cluster becomes each device's share of it, the networks of a space that of the winner. `run` and
    `verb` are for messages. Raises InputError where there are several workloads.
    """
    from phaze.explore.answers.cluster_exploration import with_devices
    from phaze.explore.answers.network_exploration import within_network

    if request.others:
        names = ", ".join(task.workload.name for task in request.tasks)
        raise InputError(f"{verb} is for runs of one workload; {run} was made for {names}")
    if request.cluster is not None:
        devices = next(iter(document.best.workloads.values())).devices
        request = with_devices(request, request.cluster, devices)
    request = within_network(request, document)
    alike = replace(request.space, heterogeneous=False)
    return replace(request, space=alike, strategy=None, robust=False, length=None)


def asked_of_run(manifest: Manifest, run: Path) -> RunOptions:
    """The options that a run of `dse run` or `phaze.explore` was made with.

    Raises InputError where it is of another verb, was changed, or an input has changed since.
    """
    from phaze.inputs.options.search_options import RunOptions

    if manifest.asked is not None and manifest.asked.verb != "run":
        raise InputError(f"{run} was made by dse {manifest.asked.verb}; this is for runs of dse run")
    options = asked_before(manifest, run, RunOptions)
    check_inputs(manifest, options)
    return options


def check_inputs(manifest: Manifest, options: Options) -> None:
    """Raises InputError where a file that the run has read is not what it was."""
    from phaze.inputs.recorded.input_files import input_files
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
