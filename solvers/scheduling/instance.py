"""Instance files: the format says which reader; `dse-schedule/1` is operators on tensor and vector cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .instance_fields import InstanceError, count, edges, flag, listing, mapping, name, number, required
from .instance_modes import read_modes
from .operators import Operator
from .problem import ProblemError, ScheduleProblem

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
    operators = tuple(_operator(entry, f"ops[{i}]") for i, entry in enumerate(listing(root, "ops")))
    pairs = edges(root)
    capacity = {unit: count(root, key) for unit, key in _CAPACITY_KEYS.items()}
    try:
        return ScheduleProblem(operators, pairs, capacity, flag(root, "core_pairing"))
    except ProblemError as error:
        raise InstanceError(_json_path(error.path), error.reason) from error


def _operator(entry: object, path: str) -> Operator:
    row = mapping(entry, path)
    unit = required(row, "unit", path)
    if not isinstance(unit, str) or unit not in _UNITS:
        raise InstanceError(f"{path}.unit", f"unknown unit {unit!r}; known are {', '.join(_UNITS)}")
    latency_s, parallel_s = (number(row, key, "seconds", path) for key in ("latency_s", "parallel_latency_s"))
    return Operator(name(row, path), _UNITS[unit], latency_s, parallel_s)


def _json_path(path: str) -> str:
    """The place in the document of a place in the problem."""
    if path.startswith("capacity."):
        return _CAPACITY_KEYS[path.removeprefix("capacity.")]
    return path.replace("operators[", "ops[").replace("].units", "].unit")
