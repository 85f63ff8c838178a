"""Fields of an instance document, each checked; what is wrong is said with its JSON path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
