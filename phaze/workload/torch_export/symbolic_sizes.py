"""Symbolic sizes of a saved program: sympy expressions over its symbols, evaluated without sympy."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

Number = int | float

LARGEST = 2.0**64
"""Bound on every number in an expression; sizes are smaller by far."""

_LONGEST = 10_000  # characters of an expression


def _power(base: Number, exponent: Number) -> Number:
    """A power; where whole numbers would grow without end, the real one tells that it is too large."""
    return float(base) ** exponent if abs(base) > 1 and exponent > math.log2(LARGEST) else base**exponent


_FUNCTIONS: Mapping[str, Callable[..., Number]] = MappingProxyType(
    {
        "Add": lambda *a: sum(a),
        "CeilToInt": math.ceil,
        "CleanDiv": lambda a, b: a // b,
        "FloorDiv": lambda a, b: a // b,
        "Float": lambda a, *_: float(a),
        "IntTrueDiv": lambda a, b: a / b,
        "Integer": int,
        "Max": max,
        "Min": min,
        "Mod": lambda a, b: a % b,
        "ModularIndexing": lambda a, b, c: a // b % c,
        "Mul": lambda *a: math.prod(a),
        "Pow": _power,
        "PythonMod": lambda a, b: a % b,
        "Rational": lambda a, b: a / b,
        "ToFloat": float,
        "TruncToInt": math.trunc,
    }
)


def symbols(expression: str) -> Iterator[str]:
    """Names of the symbols in an expression, as `Symbol('s0', ...)`. Raises ValueError for no expression."""
    for node in ast.walk(_parsed(expression)):
        if isinstance(node, ast.Call) and _called(node) == "Symbol":
            yield str(ast.literal_eval(node.args[0]))


def evaluate(expression: str, values: Mapping[str, int]) -> int:
    """Value of an expression such as `Mul(Integer(6), Symbol('s0', positive=True))`.

    Raises ValueError for functions that are unknown, symbols without a value, numbers beyond `LARGEST` on the way,
    and results that are not whole.
    """
    try:
        value = _value(_parsed(expression), values)
    except (ArithmeticError, IndexError, RecursionError, TypeError) as error:
        raise ValueError(f"{_short(expression)} has no value ({error})") from error
    if value != int(value):
        raise ValueError(f"{_short(expression)} is {value}, not a whole number")
    return int(value)


def _parsed(expression: str) -> ast.expr:
    if not isinstance(expression, str) or len(expression) > _LONGEST:
        raise ValueError(f"{_short(str(expression))} is not an expression of at most {_LONGEST} characters")
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{_short(expression)} is not an expression") from error


def _short(expression: str) -> str:
    return expression if len(expression) <= 60 else f"{expression[:57]}..."


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _value(node: ast.expr, values: Mapping[str, int]) -> Number:
    """Value of a part of an expression, within bounds."""
    value = _unbounded(node, values)
    if isinstance(value, complex) or not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{_short(ast.unparse(node))} is not a number between -2^64 and 2^64")
    return value


def _unbounded(node: ast.expr, values: Mapping[str, int]) -> Number:
    if isinstance(node, ast.Call):
        name = _called(node)
        if name == "Symbol":
            symbol = str(ast.literal_eval(node.args[0]))
            if symbol not in values:
                raise ValueError(f"symbol {symbol} has no value")
            return values[symbol]
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, values) for argument in node.args))
        raise ValueError(f"{name or 'a call'} is not known")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return float(node.value)
    raise ValueError(f"{ast.unparse(node)} is not a size")
