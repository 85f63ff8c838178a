"""Symbolic dimensions that are formulas of others, as exporters write them: `past_length + length`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

LONGEST = 200
"""Characters; a longer text is a name."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.floordiv,
        ast.FloorDiv: operator.floordiv,
    }
)


@dataclass(frozen=True)
class Formula:
    """A symbol, or sums, differences, products and quotients of symbols and whole numbers."""

    text: str
    tree: ast.expr | None = None

    @property
    def is_symbol(self) -> bool:
        """Whether it is nothing but a name."""
        return self.tree is None

    @property
    def symbols(self) -> frozenset[str]:
        """Names in it."""
        if self.tree is None:
            return frozenset({self.text})
        return frozenset(node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name))

    def value(self, known: Mapping[str, int]) -> int:
        """Size at the given sizes of the symbols; 0 for a quotient by zero."""
        try:
            return known[self.text] if self.tree is None else _value(self.tree, known)
        except ZeroDivisionError:
            return 0


def parse_formula(text: str) -> Formula:
    """A formula, or a plain symbol where the text is none that is understood."""
    try:
        tree = ast.parse(text, mode="eval").body if len(text) <= LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    understood = tree is not None and not isinstance(tree, ast.Name) and _is_understood(tree)
    return Formula(text, tree if understood else None)


def _is_understood(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _OPERATORS and _is_understood(tree.left) and _is_understood(tree.right)
    return isinstance(tree, ast.Name) or (isinstance(tree, ast.Constant) and type(tree.value) is int)


def _value(tree: ast.expr, known: Mapping[str, int]) -> int:
    match tree:
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left, known), _value(right, known))
        case ast.Name(name):
            return known[name]
        case ast.Constant(int() as number):
            return number
    msg = f"{ast.dump(tree)} is no formula"
    raise ValueError(msg)
