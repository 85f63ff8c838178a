"""The instance format `dse-schedule/1`: operators on tensor cores (TC) and vector cores (VC)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .operators import Operator
from .problem import ProblemError, ScheduleProblem

FORMAT = "dse-schedule/1"
_UNITS = {"TC": ("TC",), "VC": ("VC",), "TC+VC": ("TC", "VC")}
_CAPACITY_KEYS = {"TC": "num_tensor_cores", "VC": "num_vector_cores"}


MOST_CORES = 1 << 20
"""Cores of one type an instance may have: every core of a core-parallel operator is named in the answer."""


class InstanceError(ValueError):
    """An instance that cannot be read; the text starts with the JSON path, such as `ops[3].latency_s`."""

    def __init__(self, path: str, reason: str) -> None:
        """Keep place and reason apart for callers that rephrase."""
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def read_instance(document: object) -> ScheduleProblem:
    """Problem of a parsed JSON document. Raises InstanceError with the JSON path of the first fault."""
    root = _mapping(document, "$")
    if root.get("format", FORMAT) != FORMAT:
        raise InstanceError("format", f"expected {FORMAT!r}, got {root['format']!r}")
    operators = tuple(_operator(entry, f"ops[{i}]") for i, entry in enumerate(_list(root, "ops")))
    edges = tuple(_edge(entry, f"edges[{i}]") for i, entry in enumerate(_list(root, "edges")))
    capacity = {unit: _count(root, key) for unit, key in _CAPACITY_KEYS.items()}
    pairing = root.get("core_pairing", False)
    if not isinstance(pairing, bool):
        raise InstanceError("core_pairing", f"expected true or false, got {pairing!r}")
    try:
        return ScheduleProblem(operators, edges, capacity, pairing)
    except ProblemError as error:
        raise InstanceError(_json_path(error.path), error.reason) from error


def _operator(entry: object, path: str) -> Operator:
    row = _mapping(entry, path)
    unit = _required(row, "unit", path)
    if not isinstance(unit, str) or unit not in _UNITS:
        raise InstanceError(f"{path}.unit", f"unknown unit {unit!r}; known are {', '.join(_UNITS)}")
    latency = _number(row, "latency_s", path)
    return Operator(_id(row, path), _UNITS[unit], latency, _number(row, "parallel_latency_s", path))


def _id(row: Mapping[str, Any], path: str) -> str:
    value = _required(row, "id", path)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InstanceError(f"{path}.id", f"expected a string or a number, got {value!r}")
    return str(value)


def _edge(entry: object, path: str) -> tuple[str, str]:
    if not isinstance(entry, list) or len(entry) != 2:
        raise InstanceError(path, f"expected [before, after], got {entry!r}")
    return str(entry[0]), str(entry[1])


def _number(row: Mapping[str, Any], key: str, path: str) -> float:
    value = _required(row, key, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InstanceError(f"{path}.{key}", f"expected a number of seconds, got {value!r}")
    return value


def _count(root: Mapping[str, Any], key: str) -> int:
    value = _required(root, key, "$")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InstanceError(key, f"expected a whole number of cores, got {value!r}")
    if value > MOST_CORES:
        raise InstanceError(key, f"expected at most {MOST_CORES} cores")
    return value


def _required(row: Mapping[str, Any], key: str, path: str) -> object:
    if key not in row:
        raise InstanceError(key if path == "$" else f"{path}.{key}", "missing")
    return row[key]


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InstanceError(path, f"expected an object, got {type(value).__name__}")
    return value


def _list(root: Mapping[str, Any], key: str) -> list[object]:
    value = _required(root, key, "$")
    if not isinstance(value, list):
        raise InstanceError(key, f"expected a list, got {type(value).__name__}")
    return value


def _json_path(path: str) -> str:
    """The place in the document of a place in the problem."""
    if path.startswith("capacity."):
        return _CAPACITY_KEYS[path.removeprefix("capacity.")]
    return path.replace("operators[", "ops[").replace("].units", "].unit")
