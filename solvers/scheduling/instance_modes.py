"""The instance format `dse-schedule/2`: units by name, moldable operators, a shared bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .instance_fields import (
    InstanceError,
    count,
    edges,
    flag,
    listing,
    mapping,
    name,
    number,
    place,
    required,
)
from .operators import Mode, Operator
from .problem import ProblemError, ScheduleProblem

RATE = "bandwidth_bytes_per_s"
"""Key of the shared bandwidth, and of what a mode draws of it."""

KEYS = ("format", "name", "units", "unblocked", "core_pairing", RATE, "ops", "edges", "expected")
OPERATOR_KEYS = ("id", "units", "latency_s", "parallel_latency_s", "modes")
MODE_KEYS = ("cores", "latency_s", RATE)


def read_modes(root: Mapping[str, Any]) -> ScheduleProblem:
    """Problem of a `dse-schedule/2` document. Raises InstanceError with the JSON path of the first fault."""
    _only(root, KEYS)
    units = mapping(required(root, "units"), "units")
    capacity = {unit: count(units, unit, "units") for unit in units}
    unblocked = _names(root, "unblocked") if "unblocked" in root else ()
    pairing = flag(root, "core_pairing")
    if pairing and not {"TC", "VC"} <= capacity.keys():
        raise InstanceError("core_pairing", "pairs cores of the units TC and VC, which must both be there")
    for i, unit in enumerate(unblocked):
        if unit not in capacity:
            raise InstanceError(f"unblocked[{i}]", f"unknown unit {unit!r}; known are {', '.join(capacity)}")
    try:
        return ScheduleProblem(
            operators=tuple(_operator(entry, f"ops[{i}]") for i, entry in enumerate(listing(root, "ops"))),
            edges=edges(root),
            capacity=capacity,
            pairing=pairing,
            unblocked=frozenset(unblocked),
            bandwidth=_optional(root, RATE, "bytes per second"),
        )
    except ProblemError as error:
        raise InstanceError(_json_path(error.path), error.reason) from error


def _operator(entry: object, path: str) -> Operator:
    row = mapping(entry, path)
    _only(row, OPERATOR_KEYS, path)
    modes = listing(row, "modes", path) if "modes" in row else []
    return Operator(
        name(row, path),
        _names(row, "units", path),
        _optional(row, "latency_s", "seconds", path),
        _optional(row, "parallel_latency_s", "seconds", path),
        tuple(_mode(mode, f"{path}.modes[{k}]") for k, mode in enumerate(modes)),
    )


def _mode(entry: object, path: str) -> Mode:
    row = mapping(entry, path)
    _only(row, MODE_KEYS, path)
    rate = _optional(row, RATE, "bytes per second", path)
    return Mode(count(row, "cores", path), number(row, "latency_s", "seconds", path), rate or 0.0)


def _optional(row: Mapping[str, Any], key: str, unit: str, path: str = "") -> float | None:
    """A number; None where it is missing or null."""
    return None if row.get(key) is None else number(row, key, unit, path)


def _names(row: Mapping[str, Any], key: str, path: str = "") -> tuple[str, ...]:
    """A list of unit names."""
    names = listing(row, key, path)
    for i, unit in enumerate(names):
        if not isinstance(unit, str):
            raise InstanceError(f"{place(path, key)}[{i}]", f"expected the name of a unit, got {unit!r}")
    return tuple(map(str, names))


def _only(row: Mapping[str, Any], keys: tuple[str, ...], path: str = "") -> None:
    """No key that nobody reads: a misspelt one would silently change the problem."""
    for key in row:
        if key not in keys:
            raise InstanceError(place(path, key), f"unknown key; known are {', '.join(keys)}")


def _json_path(path: str) -> str:
    """The place in the document of a place in the problem."""
    path = path.replace("operators[", "ops[").replace("].moldable", "].modes")
    if path == "capacity" or path.startswith("capacity."):
        return path.replace("capacity", "units", 1)
    return f"{path.removesuffix('bandwidth')}{RATE}" if path.endswith("bandwidth") else path
