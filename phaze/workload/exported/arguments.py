"""Plain values among the arguments of a node, with the abbreviations that aten allows."""

from __future__ import annotations

from phaze.workload.exported.program import Node


def integer(node: Node, argument: str, default: int) -> int:
    """A whole number."""
    value = node.get(argument, default)
    return int(value) if isinstance(value, int | float) else default


def number(node: Node, argument: str) -> float | None:
    """A number, None where the argument is a tensor or absent."""
    value = node.get(argument)
    return float(value) if isinstance(value, int | float) else None


def per_axis(node: Node, argument: str, axes: int, default: int) -> tuple[int, ...]:
    """One number per spatial axis; a single number stands for all, an empty list for the default."""
    value = node.get(argument, default)
    given = (
        value if isinstance(value, tuple) and value else (value,) if isinstance(value, int) else (default,)
    )
    sizes = tuple(int(str(size)) for size in given)
    return sizes * axes if len(sizes) == 1 else sizes
