"""Programs made plain: in-place updates become results of their own, and what no output needs is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from phaze.errors import InputError
from phaze.workload.exported.program import Node, Program, Ref
from phaze.workload.exported.views import VIEWS

_WHOLE = frozenset({"relu", "dropout", "hardtanh", "leaky_relu", "silu", "gelu", "elu", "hardswish"})
"""In-place functions of modules: nobody reads the tensor behind the view afterwards."""


def clean(program: Program) -> Program:
    """The program without in-place updates and without dead code.

    Raises InputError where a part of a tensor is overwritten through a view.
    """
    return _needed(_functional(program))


def overwritten_part(program: Program) -> Node | None:
    """The first node that overwrites a part of a tensor through a view of it, if there is one."""
    views: set[str] = set()
    for node in program.nodes:
        changed = next(node.reads(), None)
        if node.operator in VIEWS:
            views.update(node.outputs)
        elif node.is_in_place and changed in views and node.operator not in _WHOLE:
            return node
    return None


def _functional(program: Program) -> Program:
    """Let everything after an in-place update read its result.

    Updates of stored statistics (buffers) have no later reader that matters.
    """
    if (part := overwritten_part(program)) is not None:
        raise InputError(
            f"{program.source}: {part.target} node {part.name!r} overwrites a part of a tensor; "
            "save the program after run_decompositions({}), which makes copies of such parts"
        )
    latest: dict[str, Ref] = {}
    nodes = []
    for node in program.nodes:
        arguments = {name: _renamed(value, latest) for name, value in node.arguments.items()}
        nodes.append(replace(node, arguments=arguments))
        changed = next(node.reads(), None)
        if node.is_in_place and node.outputs and changed is not None:
            latest[changed] = Ref(node.outputs[0])
    outputs = tuple(latest[t].tensor if t in latest else t for t in program.outputs)
    return replace(program, nodes=tuple(nodes), outputs=outputs)


def _renamed(value: object, latest: Mapping[str, Ref]) -> object:
    if isinstance(value, Ref):
        while value.tensor in latest:
            value = latest[value.tensor]
        return value
    return tuple(_renamed(item, latest) for item in value) if isinstance(value, tuple) else value


def _needed(program: Program) -> Program:
    wanted = set(program.outputs)
    kept: list[Node] = []
    for node in reversed(program.nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.reads())
    return replace(program, nodes=tuple(reversed(kept)))
