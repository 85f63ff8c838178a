"""Constraints of a design space: comparisons of products and sums of hardware fields, read safely from text.

`tensor_cores * tensor_core_rows * tensor_core_columns <= 131072`, `8MiB * tensor_cores <= global_buffer_bytes`.
Numbers may carry the units of the field table; everything is in SI units. Nothing is ever executed: the text is
parsed into a tree of which only fields, numbers, + - * / and comparisons are let through.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import FieldKind, field_named
from phaze.quantity import si_value

LONGEST = 300
"""Characters of a constraint; more than any sensible one has, and too few for the parser to run out of stack."""

_QUANTITY = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([A-Za-z]+(?:/s)?)(?!\w)")
_UNITS = ("byte", "byte/s", "Hz")
_ARITHMETIC: dict[type[ast.operator], Callable[[Floats, Floats], Floats]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISON: dict[type[ast.cmpop], Callable[[Floats, Floats], Flags]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True)
class Constraint:
    """A comparison that architectures must fulfil; `fields` are those it reads."""

    text: str
    tree: ast.Compare
    fields: tuple[str, ...]

    def keeps(self, table: ArchitectureTable) -> Flags:
        """Architectures that fulfil it; one that lacks an optional field it reads, or divides 0 by 0, does not."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sides = self._sides(table)
            kept = np.ones(len(table), dtype=np.bool_)
            for compare, left, right in zip(self.tree.ops, sides[:-1], sides[1:], strict=True):
                kept &= _COMPARISON[type(compare)](left, right)
        return kept

    def apart(self, table: ArchitectureTable) -> Floats:
        """Largest distance of the sides of the comparison, as a share of the larger; 1 where undefined."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sides = self._sides(table)
            shares = [np.abs(a - b) / np.maximum(np.abs(a), np.abs(b)) for a, b in pairwise(sides)]
            apart: Floats = np.nan_to_num(np.max(shares, axis=0), nan=1.0, posinf=1.0)
        return apart

    def _sides(self, table: ArchitectureTable) -> list[Floats]:
        return [_value(side, table) for side in (self.tree.left, *self.tree.comparators)]


def parse_constraint(text: object, where: str) -> Constraint:
    """A constraint from its text. Raises InputError that names `where` and what is not understood."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise InputError(f"{where}: {str(text)[:60]!r} is not a comparison of at most {LONGEST} characters")
    plain = _QUANTITY.sub(lambda match: _in_si_units(match[0], where), text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{where}: {text!r} is not a comparison, such as {_EXAMPLE}") from None
    if not isinstance(tree, ast.Compare):
        raise InputError(f"{where}: {text!r} compares nothing; write for example {_EXAMPLE}")
    for comparison in tree.ops:
        if type(comparison) not in _COMPARISON:
            raise InputError(f"{where}: {text!r} compares other than by < <= > >= == !=")
    names = [name for side in (tree.left, *tree.comparators) for name in _checked(side, text, where)]
    if not names:
        raise InputError(f"{where}: {text!r} names no hardware field")
    return Constraint(text, tree, tuple(dict.fromkeys(names)))


_EXAMPLE = "tensor_cores * tensor_core_rows <= 4096"


def _in_si_units(quantity: str, where: str) -> str:
    """A quantity such as 16MiB, 900GB/s or 1.2GHz as a plain number in SI units."""
    for unit in _UNITS:
        try:
            return repr(si_value(quantity, unit, where))
        except InputError:
            continue
    raise InputError(
        f"{where}: {quantity!r} is not a size, a rate or a frequency such as 16MiB, 900GB/s, 1.2GHz"
    )


def _checked(node: ast.expr, text: str, where: str) -> list[str]:
    """The fields an expression reads, once everything else in it is allowed."""
    match node:
        case ast.Name(id=name):
            return [_numeric(name, where)]
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value) if value < 1e300 and math.isfinite(value):
            return []
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _checked(operand, text, where)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _checked(left, text, where) + _checked(right, text, where)
    piece = ast.unparse(node)
    raise InputError(f"{where}: {piece!r} in {text!r} is not a field, a number or one of + - * /")


def _numeric(name: str, where: str) -> str:
    if field_named(name, where).kind not in (FieldKind.INTEGER, FieldKind.NUMBER):
        raise InputError(f"{where}: {name} is not a number; list its values on an axis or under `when`")
    return name


def _value(node: ast.expr, table: ArchitectureTable) -> Floats:
    """Value of a checked expression, one per architecture."""
    match node:
        case ast.Name(id=name):
            return table[name].astype(np.float64)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, table)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, table), _value(right, table))
        case ast.Constant(value=int() | float() as number):
            return np.full(len(table), float(number))
    raise TypeError(ast.dump(node))
