"""Sizes of the graph's inputs: which dimension is the batch, and what the symbolic ones are bound to.

Symbolic dimensions may be formulas of others, as exporters write them: `past_length + length`.

The batch is the dimension whose symbol says so (`batch`, `batch_size`, `N`, ...), wherever it stands; in a
file without such a symbol it is the first dimension of each input, of recurrent layers the second. An
input of another size has none. All other symbols need a size. A dimension may be a formula of symbols,
such as `past_length + length`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onnx import ValueInfoProto

from phaze.errors import InputError
from phaze.workload.onnx.batch_axes import Shape
from phaze.workload.onnx.onnx_graph import OnnxGraph
from phaze.workload.onnx.onnx_nodes import node_attributes

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
    msg = f"{ast.dump(tree)} is not a formula"
    raise ValueError(msg)


RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_BATCH = re.compile(r"batch|.*_batch|batch_.*|batch_?size|batch\d*|n|b|bs|bsz", re.IGNORECASE)
_STATES = (0, 5, 6)  # operands of recurrent layers that have the batch second: X, initial_h, initial_c

LARGEST = 2**48
"""Elements along one dimension."""

Dimension = int | Formula


@dataclass(frozen=True)
class InputSizes:
    """Shapes of the inputs at any batch; `batch` is the file's own, `bound_batch` the one that was asked for."""

    dimensions: Mapping[str, tuple[Dimension, ...]]
    bind: Mapping[str, int]
    symbols: frozenset[str]
    axes: Mapping[str, int | None]
    batch: int
    bound_batch: int | None

    def at(self, name: str, batch: int) -> Shape:
        """Shape of an input at a batch."""
        known = {**self.bind, **dict.fromkeys(self.symbols, batch)}
        sizes = [size if isinstance(size, int) else size.value(known) for size in self.dimensions[name]]
        axis = self.axes[name]
        shape = tuple(batch if i == axis else size for i, size in enumerate(sizes))
        if max(shape, default=0) > LARGEST:
            raise ValueError(
                f"input {name!r} has {' x '.join(map(str, shape))} elements; a dimension holds {LARGEST}"
            )
        return shape


def input_sizes(graph: OnnxGraph, bind: Mapping[str, int]) -> InputSizes:
    """Find the batch and bind all other symbols.

    Raises InputError for inputs without a rank, for symbols without a size (all of them at once), for
    bindings of what is not there, and for two sizes of the batch.
    """
    dimensions = {value.name: _dimensions(graph, value) for value in graph.inputs}
    symbols = frozenset(
        symbol for sizes in dimensions.values() for size in sizes for symbol in _symbols_of(size)
    )
    batch = _batch_symbols(dimensions, symbols)
    _check_bindings(graph, bind, symbols)
    _check_complete(graph, dimensions, bind, batch)
    axes = {name: _fixed_axis(graph, name, sizes, batch) for name, sizes in dimensions.items()}
    own = _file_batch(dimensions, axes)
    axes = {
        name: axis if axis is None or dimensions[name][axis] in {1, own} else None
        for name, axis in axes.items()
    }
    asked = {bind[symbol] for symbol in batch if symbol in bind}
    if len(asked) > 1:
        raise InputError(f"{graph.path}: {', '.join(sorted(batch))} are the batch, and cannot differ")
    return InputSizes(dimensions, bind, batch, axes, own, next(iter(asked), None))


def _dimensions(graph: OnnxGraph, value: ValueInfoProto) -> tuple[Dimension, ...]:
    """Sizes of an input: numbers, symbols or formulas of symbols; a nameless one is called by its place."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        raise InputError(f"{graph.path}: input {value.name!r} is not a tensor of known rank")
    sizes: list[Dimension] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value != -1:  # some exporters write -1 for "any"
            sizes.append(dim.dim_value)
        elif dim.dim_param:
            sizes.append(parse_formula(dim.dim_param))
        else:
            sizes.append(Formula(f"{value.name}[{axis}]"))
    return tuple(sizes)


def _symbols_of(size: Dimension) -> frozenset[str]:
    return frozenset() if isinstance(size, int) else size.symbols


def _batch_symbols(
    dimensions: Mapping[str, tuple[Dimension, ...]], symbols: frozenset[str]
) -> frozenset[str]:
    """Symbols that stand for the batch: by name, or else the first dimension of each input."""
    first = {
        size.text: f"{name}[0]"
        for name, sizes in dimensions.items()
        for size in sizes[:1]
        if isinstance(size, Formula) and size.is_symbol
    }
    named = frozenset(symbol for symbol in symbols if _BATCH.fullmatch(symbol))
    nameless = frozenset(symbol for symbol, place in first.items() if symbol == place)
    return named | nameless if named else frozenset(first)


def _check_bindings(graph: OnnxGraph, bind: Mapping[str, int], symbols: frozenset[str]) -> None:
    """Raise InputError for a name the file does not have and for a size below 1."""
    for name, size in sorted(bind.items()):
        if name not in symbols:
            there = f"it has {', '.join(sorted(symbols))}" if symbols else "it has none"
            raise InputError(f"{graph.path}: no symbolic dimension is called {name!r}: {there}")
        if not 1 <= size <= LARGEST:
            raise InputError(f"{graph.path}: dimension {name!r} cannot be {size}, only 1 to {LARGEST}")


def _check_complete(
    graph: OnnxGraph,
    dimensions: Mapping[str, tuple[Dimension, ...]],
    bind: Mapping[str, int],
    batch: frozenset[str],
) -> None:
    """Raise InputError that lists the symbols without a size, in the order of the inputs."""
    symbols = (s for sizes in dimensions.values() for size in sizes for s in sorted(_symbols_of(size)))
    unbound = [symbol for symbol in dict.fromkeys(symbols) if symbol not in bind and symbol not in batch]
    if unbound:
        wanted = ",".join(f"{name}=..." for name in unbound)
        raise InputError(f"{graph.path}: symbolic dimensions need a size: give --bind {wanted}")


def _fixed_axis(
    graph: OnnxGraph, name: str, sizes: tuple[Dimension, ...], batch: frozenset[str]
) -> int | None:
    """Axis of the batch where its size is a number: none beside a symbol, unless it is 1."""
    if any(not batch.isdisjoint(_symbols_of(size)) for size in sizes):
        return None
    axis = 1 if _is_recurrent(graph, name) else 0
    if axis >= len(sizes) or not isinstance(sizes[axis], int):
        return None
    return axis if not batch or sizes[axis] == 1 else None


def _is_recurrent(graph: OnnxGraph, name: str) -> bool:
    """Whether a recurrent layer reads the input with its batch second."""
    for node in graph.nodes:
        if node.op_type in RECURRENT and name in {node.input[i] for i in _STATES if i < len(node.input)}:
            return not node_attributes(node).get("layout")
    return False


def _file_batch(dimensions: Mapping[str, tuple[Dimension, ...]], axes: Mapping[str, int | None]) -> int:
    """The batch the file was written for, 1 where it is symbolic: that of its first input that has one."""
    sizes = (dimensions[name][axis] for name, axis in axes.items() if axis is not None)
    return next((size for size in sizes if isinstance(size, int) and size != 1), 1)
