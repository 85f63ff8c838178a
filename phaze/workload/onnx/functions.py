"""Functions that a file defines, put in the place of their calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from onnx import AttributeProto, FunctionProto, NodeProto

from phaze.errors import InputError
from phaze.workload.onnx.bodies import put_in_place
from phaze.workload.onnx.nodes import operator_type

MOST_NODES = 300_000
"""Where a file is given up: calls of calls multiply."""

DEEPEST = 100
"""Calls within calls; only a function that calls itself gets there."""


class Inliner:
    """Puts functions in the place of their calls; counts what it makes."""

    def __init__(self, functions: Iterable[FunctionProto], path: Path) -> None:
        """Know the functions of the file at `path`."""
        self._functions = {(f.domain, f.name, f.overload): f for f in functions}
        self._path = path
        self._made = 0

    def inlined(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Nodes without calls. Raises InputError for functions without end."""
        return list(self._walk(nodes, 0)) if self._functions else list(nodes)

    def count(self, made: int) -> None:
        """Note that so many nodes came out of bodies. Raises InputError if they are too many."""
        self._made += made
        if self._made > MOST_NODES:
            raise InputError(f"{self._path}: functions and branches make more than {MOST_NODES} operators")

    def _walk(self, nodes: Iterable[NodeProto], depth: int) -> Iterator[NodeProto]:
        for node in nodes:
            function = self._functions.get((node.domain, node.op_type, node.overload))
            if function is None:
                yield node
                continue
            if depth > DEEPEST:
                raise InputError(f"{self._path}: function {operator_type(node)} calls itself")
            self.count(len(function.node))
            yield from self._walk(function_body(node, function), depth + 1)


def function_body(
    call: NodeProto, function: FunctionProto, defaults: Iterable[AttributeProto] = ()
) -> list[NodeProto]:
    """What a call of a function stands for; operands that are left out stay left out.

    `defaults` are values of attributes that neither the call nor the function gives.
    """
    given = [*call.input, *[""] * (len(function.input) - len(call.input))]
    names = dict(zip(function.input, given, strict=False))
    attributes = {a.name: a for some in (defaults, function.attribute_proto, call.attribute) for a in some}
    return put_in_place(call, function.node, function.output, names, attributes)
