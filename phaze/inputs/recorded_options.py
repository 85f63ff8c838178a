"""Question as a run directory keeps it: the options of a verb as JSON, and back."""

from __future__ import annotations

import math
from pathlib import Path

from phaze.errors import InputError
from phaze.explore.documents.result_document import Asked, Manifest
from phaze.inputs.option_models import Options
from phaze.inputs.option_reading import Model, read

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
    option was an object of Python, and where one is of a type that the verb does not take.
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
        f"{what} was no name and no file but an object of Python ({value.get('object')} {value.get('name')!r}), "
        "which a run directory cannot keep; give it in a file"
    )
