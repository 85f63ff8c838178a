"""Reading a parsed JSON document: every refusal is one sentence that starts with the path at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Choice = TypeVar("Choice", bound=StrEnum)

# Far beyond any instance, and sums and products of some thousands of them still are finite.
LARGEST_COUNT = 2**31 - 1
LARGEST = 1e100


class InstanceError(ValueError):
    """The document is not a placement instance; the message starts with the JSON path at fault."""


@dataclass(frozen=True)
class Node:
    """A JSON value together with the path that leads to it."""

    value: object
    path: str

    def fail(self, must_be: str) -> InstanceError:
        """The refusal of this value, to be raised."""
        return InstanceError(f"{self.path}: must be {must_be}, got {self.value!r}")

    def __getitem__(self, key: str) -> Node:
        """A field of an object."""
        if not isinstance(self.value, Mapping):
            raise self.fail("an object")
        if key not in self.value:
            raise InstanceError(f"{self.path}: field {key!r} is missing")
        return Node(self.value[key], f"{self.path}.{key}")

    def items(self) -> list[Node]:
        """The entries of a list."""
        if not isinstance(self.value, Sequence) or isinstance(self.value, str):
            raise self.fail("a list")
        return [Node(value, f"{self.path}[{i}]") for i, value in enumerate(self.value)]

    def integer(self, minimum: int | None = None, maximum: int = LARGEST_COUNT) -> int:
        """A whole number; one with a minimum is a count, which has a maximum too."""
        kind = "an integer" if minimum is None else f"an integer of {minimum} to {maximum}"
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.fail(kind)
        if minimum is not None and not minimum <= self.value <= maximum:
            raise self.fail(kind)
        return self.value

    def number(self, *, positive: bool = False) -> float:
        """A number of a size that sums and quotients can handle."""
        least = 1 / LARGEST if positive else 0.0
        kind = f"a finite number of {least:g} to {LARGEST:g}"
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            raise self.fail(kind)
        # Comparing, unlike converting, takes integers of any size; NaN fails it.
        if not least <= self.value <= LARGEST:
            raise self.fail(kind)
        return float(self.value)

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value

    def text(self) -> str:
        """A string that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.fail("a text")
        return self.value

    def choice(self, kind: type[Choice]) -> Choice:
        """One of the words of a kind."""
        if not isinstance(self.value, str) or self.value not in list(kind):
            raise self.fail(" or ".join(repr(str(word)) for word in kind))
        return kind(self.value)


def layers_by_id(model: Node) -> dict[int, Node]:
    """The layer objects by id, each id once."""
    by_id: dict[int, Node] = {}
    for layer in model["layers"].items():
        identity = layer["id"].integer()
        if identity in by_id:
            raise layer["id"].fail(f"unique (it is the id of {by_id[identity].path} too)")
        by_id[identity] = layer
    if not by_id:
        raise model["layers"].fail("a list of at least one layer")
    return by_id


def edge_ends(edge: Node, known: Mapping[int, object]) -> tuple[int, int]:
    """Source and target of an edge between known layers."""
    source, target = edge["source"].integer(), edge["target"].integer()
    for end in ("source", "target"):
        if edge[end].integer() not in known:
            raise edge[end].fail("the id of a layer")
    if source == target:
        raise InstanceError(f"{edge.path}: layer {source} has an edge to itself")
    return source, target
