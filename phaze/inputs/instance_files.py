"""Instances of the solvers: from a JSON file, or what such a file holds, to a checked problem or its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.inputs.layers_instance import NamedLayers
    from phaze.solvers.placement import PlacementResult
    from phaze.solvers.placement.general import GeneralResult
    from phaze.solvers.rental import RentalProblem
    from phaze.solvers.scheduling import ScheduleProblem

Source = Path | Mapping[str, Any]
"""A JSON file, or what it holds."""
_Found = TypeVar("_Found")


class Compat(StrEnum):
    """Whose rules to follow instead of the instance's own."""

    PHAZE = "phaze"


def schedule_problem(source: Source) -> ScheduleProblem:
    """The layer to schedule. Raises InputError, which names the file and the JSON path at fault."""
    from phaze.solvers.scheduling import InstanceError, read_instance

    return _read(source, read_instance, InstanceError)


def placed(source: Source, compat: Compat | None) -> PlacementResult | GeneralResult:
    """The best placement of the layers of an instance, whose `format` tells which problem it is.

    Raises InputError where it is malformed, or too large for the exact search.
    """
    from phaze.solvers.placement import InstanceError

    return _read(source, lambda data: _place(data, compat), InstanceError)


def _place(data: object, compat: Compat | None) -> PlacementResult | GeneralResult:
    from phaze.solvers.placement import FORMAT as CHAIN
    from phaze.solvers.placement import InstanceError, place, read_problem
    from phaze.solvers.placement.general import FORMAT as GENERAL
    from phaze.solvers.placement.general import place_general, read_general_problem, with_phaze_conventions

    named = data.get("format", CHAIN) if isinstance(data, Mapping) else CHAIN
    if named not in (CHAIN, GENERAL):
        raise InstanceError(f"$.format: must be {CHAIN!r} or {GENERAL!r}, got {named!r}")
    if named == CHAIN:
        return place(read_problem(data))
    problem = read_general_problem(data)
    return place_general(with_phaze_conventions(problem) if compat is Compat.PHAZE else problem)


def rental_problem(source: Source) -> tuple[RentalProblem, tuple[str, ...]]:
    """Which fleet to rent, and the names of the workloads. Raises InputError for what makes no sense."""
    from phaze.inputs.rental_instance import read_rental

    return _read(source, read_rental, InputError)


def layers_problem(source: Source) -> NamedLayers:
    """A strategy for each layer, with names. Raises InputError for what makes no sense."""
    from phaze.inputs.layers_instance import read_layers

    return _read(source, read_layers, InputError)


def _read(source: Source, reader: Callable[[object], _Found], error_type: type[Exception]) -> _Found:
    from phaze.runs.atomic_files import read_json

    where, data = (source, read_json(source)) if isinstance(source, Path) else ("instance", source)
    try:
        return reader(data)
    except error_type as error:
        raise InputError(f"{where}: {error}") from error
