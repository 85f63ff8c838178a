"""Instance files: the format says which reader, and what is wrong is said with its JSON path.

`dse-schedule/1` is operators on tensor and vector cores; `dse-schedule/2` has units by name, moldable operators
and a shared bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .schedule_problem import Mode, Operator, ProblemError, ScheduleProblem

MOST_CORES = 1 << 20
"""Cores of one type an instance may have: every core of a core-parallel operator is named in the answer."""


class InstanceError(ValueError):
    """An instance that cannot be read; the text starts with the JSON path, such as `ops[3].latency_s`."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep place and reason apart for callers that rephrase."""
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def place(path: str, key: str) -> str:
    """JSON path of a key of the object at a path ("" is the document)."""
    return f"{path}.{key}" if path else key


def required(row: Mapping[str, Any], key: str, path: str = "") -> object:
    """The value of a key that must be there."""
    if key not in row:
        raise InstanceError(place(path, key), "missing")
    return row[key]


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise InstanceError(path, f"expected an object, got {type(value).__name__}")
    return value


def listing(row: Mapping[str, Any], key: str, path: str = "") -> list[object]:
    """A list under a key."""
    value = required(row, key, path)
    if not isinstance(value, list):
        raise InstanceError(place(path, key), f"expected a list, got {type(value).__name__}")
    return value


def number(row: Mapping[str, Any], key: str, unit: str, path: str = "") -> float:
    """A number of a unit (named in the message); the problem checks its range."""
    value = required(row, key, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InstanceError(place(path, key), f"expected a number of {unit}, got {value!r}")
    return value


def count(row: Mapping[str, Any], key: str, path: str = "") -> int:
    """A number of cores; the problem checks that there is one."""
    value = required(row, key, path)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InstanceError(place(path, key), f"expected a whole number of cores, got {value!r}")
    if value > MOST_CORES:
        raise InstanceError(place(path, key), f"expected at most {MOST_CORES} cores")
    return value


def flag(row: Mapping[str, Any], key: str) -> bool:
    """True or false; false where the key is missing."""
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise InstanceError(key, f"expected true or false, got {value!r}")
    return value


def name(row: Mapping[str, Any], path: str) -> str:
    """The id of an operator, as text."""
    value = required(row, "id", path)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InstanceError(f"{path}.id", f"expected a string or a number, got {value!r}")
    return str(value)


def edges(root: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Pairs of operator ids; the problem checks that they exist."""
    pairs = []
    for i, entry in enumerate(listing(root, "edges")):
        if not isinstance(entry, list) or len(entry) != 2:
            raise InstanceError(f"edges[{i}]", f"expected [before, after], got {entry!r}")
        pairs.append((str(entry[0]), str(entry[1])))
    return tuple(pairs)


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
            operators=tuple(
                _moldable_operator(entry, f"ops[{i}]") for i, entry in enumerate(listing(root, "ops"))
            ),
            edges=edges(root),
            capacity=capacity,
            pairing=pairing,
            unblocked=frozenset(unblocked),
            bandwidth=_optional(root, RATE, "bytes per second"),
        )
    except ProblemError as error:
        raise InstanceError(_path_in_modes(error.path), error.reason) from error


def _moldable_operator(entry: object, path: str) -> Operator:
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


def _path_in_modes(path: str) -> str:
    """The place in the document of a place in the problem."""
    path = path.replace("operators[", "ops[").replace("].moldable", "].modes")
    if path == "capacity" or path.startswith("capacity."):
        return path.replace("capacity", "units", 1)
    return f"{path.removesuffix('bandwidth')}{RATE}" if path.endswith("bandwidth") else path


_UNITS = {"TC": ("TC",), "VC": ("VC",), "TC+VC": ("TC", "VC")}
_CAPACITY_KEYS = {"TC": "num_tensor_cores", "VC": "num_vector_cores"}


def read_instance(document: object) -> ScheduleProblem:
    """Problem of a parsed JSON document. Raises InstanceError with the JSON path of the first fault.

    Without `format` it is `dse-schedule/1`.
    """
    root = mapping(document, "$")
    match root.get("format", "dse-schedule/1"):
        case "dse-schedule/1":
            return _read_plain(root)
        case "dse-schedule/2":
            return read_modes(root)
        case other:
            raise InstanceError("format", f"expected 'dse-schedule/1' or 'dse-schedule/2', got {other!r}")


def _read_plain(root: Mapping[str, Any]) -> ScheduleProblem:
    operators = tuple(_plain_operator(entry, f"ops[{i}]") for i, entry in enumerate(listing(root, "ops")))
    pairs = edges(root)
    capacity = {unit: count(root, key) for unit, key in _CAPACITY_KEYS.items()}
    try:
        return ScheduleProblem(operators, pairs, capacity, flag(root, "core_pairing"))
    except ProblemError as error:
        raise InstanceError(_path_in_plain(error.path), error.reason) from error


def _plain_operator(entry: object, path: str) -> Operator:
    row = mapping(entry, path)
    unit = required(row, "unit", path)
    if not isinstance(unit, str) or unit not in _UNITS:
        raise InstanceError(f"{path}.unit", f"unknown unit {unit!r}; known are {', '.join(_UNITS)}")
    latency_s, parallel_s = (number(row, key, "seconds", path) for key in ("latency_s", "parallel_latency_s"))
    return Operator(name(row, path), _UNITS[unit], latency_s, parallel_s)


def _path_in_plain(path: str) -> str:
    """The place in the document of a place in the problem."""
    if path.startswith("capacity."):
        return _CAPACITY_KEYS[path.removeprefix("capacity.")]
    return path.replace("operators[", "ops[").replace("].units", "].unit")
