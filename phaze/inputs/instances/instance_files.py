"""Instances of the solvers: from a JSON file, or what such a file holds, to a checked problem or its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.inputs.instances.host_instances import HostInstance, SplitInstance
    from phaze.inputs.instances.layers_instance import NamedLayers
    from phaze.solvers.hosts import HostShares, InstanceSplit
    from phaze.solvers.layerwise import LayerResult
    from phaze.solvers.placement import PlacementResult
    from phaze.solvers.placement.general import GeneralResult
    from phaze.solvers.rental import Composition, RentalProblem
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
    from phaze.inputs.instances.rental_instance import read_rental

    return _read(source, read_rental, InputError)


def layers_problem(source: Source) -> NamedLayers:
    """A strategy for each layer, with names. Raises InputError for what makes no sense."""
    from phaze.inputs.instances.layers_instance import read_layers

    return _read(source, read_layers, InputError)


def split_on_cores(source: Source) -> tuple[SplitInstance, InstanceSplit]:
    """Instances that run a batch on a host's cores.

    Raises InputError for what makes no sense, InfeasibleError where measured batches do not add up to it.
    """
    from phaze.inputs.instances.host_instances import read_split, why_no_split
    from phaze.solvers.hosts import split_batch

    told = _read(source, read_split, InputError)
    found = split_batch(told.profiles, told.cores, told.batch)
    if not found.instances:
        raise why_no_split(told)
    return told, found


def shared_host(source: Source) -> tuple[HostInstance, HostShares]:
    """Shares of a host for its jobs.

    Raises InputError for what makes no sense, InfeasibleError with what is missing where fair shares do not fit.
    """
    from phaze.inputs.instances.host_instances import read_host, why_no_shares
    from phaze.solvers.hosts import share_host

    told = _read(source, read_host, InputError)
    found = share_host(told.jobs, told.cores, told.memory_bytes)
    if not found.uses:
        raise why_no_shares(told)
    return told, found


def rented(source: Source, within_s: float | None) -> tuple[RentalProblem, tuple[str, ...], Composition]:
    """The fleet of an instance, with the names of its workloads: of least time, or the cheapest within some seconds.

    Raises InputError for what makes no sense, InfeasibleError with what is missing where no fleet serves all.
    """
    from phaze.inputs.instances.rental_instance import why_no_fleet
    from phaze.solvers.rental import compose

    problem, names = rental_problem(source)
    found = compose(problem, within_s)
    if not found.feasible or found.shares is None:
        raise why_no_fleet(problem, names, within_s)
    return problem, names, found


def chosen_layers(source: Source, limit_bytes: float | None) -> tuple[NamedLayers, LayerResult]:
    """A strategy for each layer of an instance, under its own limit of memory or another.

    Raises InputError for what makes no sense, InfeasibleError where the leanest strategies do not fit.
    """
    from phaze.inputs.instances.layers_instance import why_no_choice
    from phaze.solvers.layerwise import ChoiceStatus, choose_layers

    named = layers_problem(source)
    if limit_bytes is not None:
        named = replace(named, problem=replace(named.problem, limit_bytes=limit_bytes))
    found = choose_layers(named.problem)
    if found.status is ChoiceStatus.INFEASIBLE:
        raise why_no_choice(named.problem)
    return named, found


def _read(source: Source, reader: Callable[[object], _Found], error_type: type[Exception]) -> _Found:
    from phaze.runs.atomic_files import read_json

    where, data = (source, read_json(source)) if isinstance(source, Path) else ("instance", source)
    try:
        return reader(data)
    except error_type as error:
        raise InputError(f"{where}: {error}") from error
