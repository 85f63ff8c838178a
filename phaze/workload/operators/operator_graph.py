"""The operator graph: tensors, operators, and the dependencies between them.

A forward graph is built by a front end (a family or ONNX) at one microbatch size; sharding, fusion
and the training graph are rewrites of it. What the hardware must do for an operator is worked out
in `work.py`; nothing here knows about chips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    import networkx as nx

MOST_OPERATORS = 300_000
"""Where a graph is given up: it would take minutes and gigabytes."""

MOST_ELEMENTS = 2**60
"""Of one tensor; beyond any memory, and its bytes are still exact."""


class OpKind(StrEnum):
    """Kind of operator. Each has one rule in `rule_table.py`."""

    MATMUL = "matmul"  # inputs a (..., m, k), b (..., k, n); b may be a parameter
    CONV = "conv"
    ATTENTION = "attention"  # flash: softmax(q k^T / sqrt(d)) v, no s x s tensor kept
    SOFTMAX = "softmax"
    NORM = "norm"  # layer norm, RMS norm, batch norm
    ELEMENTWISE = "elementwise"  # attribute `function`: gelu, relu, add, mul, ...
    POOL = "pool"
    REDUCE = "reduce"
    EMBEDDING = "embedding"
    LOSS = "loss"  # cross-entropy on logits
    DISPATCH = "dispatch"  # tokens sorted by expert
    COMBINE = "combine"  # experts' results back to their tokens, weighted
    VIEW = "view"  # reshape, transpose, concat, ...: costs nothing
    COLLECTIVE = "collective"  # all-reduce, all-gather, ... by its role; inserted by sharding
    CACHE = "cache"  # append to the key-value cache
    INDEX = "index"  # which keys sparse attention looks at
    RECURRENCE = "recurrence"  # linear attention, state space: a state that tokens change one after the other


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph. `shape` in elements, batch first for activations; a frozen parameter is not trained."""

    name: str
    shape: tuple[int, ...]
    element_bytes: int = 2
    is_parameter: bool = False
    is_frozen: bool = False

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. `inputs` and `outputs` are tensor names, parameters included.

    `attributes` are plain numbers and words that the kind's rule reads (strides, groups, heads,
    the element-wise function, the sharding role).
    """

    name: str
    kind: OpKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class OperatorGraph:
    """Operators in topological order over named tensors; validated on construction.

    Raises ValueError where a tensor has two producers, an operator reads a tensor that nobody makes
    and that is neither a parameter nor a graph input, or the order is not topological.
    """

    name: str
    tensors: Mapping[str, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]  # activation tensors that come from outside
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the graph once, so that everything after can trust it."""
        known = set(self.inputs) | {t.name for t in self.tensors.values() if t.is_parameter}
        for op in self.operators:
            missing = [t for t in op.inputs if t not in known]
            if missing:
                msg = f"operator {op.name!r} reads {missing[0]!r} before anything makes it"
                raise ValueError(msg)
            for out in op.outputs:
                if out in known:
                    msg = f"tensor {out!r} has two producers (second: {op.name!r})"
                    raise ValueError(msg)
                if out not in self.tensors:
                    msg = f"operator {op.name!r} writes undeclared tensor {out!r}"
                    raise ValueError(msg)
                known.add(out)
        for out in self.outputs:
            if out not in known:
                msg = f"graph output {out!r} is made by no operator"
                raise ValueError(msg)

    def producers(self) -> dict[str, int]:
        """Map a tensor name to the position of the operator that makes it."""
        return {t: i for i, op in enumerate(self.operators) for t in op.outputs}

    def consumers(self) -> dict[str, list[int]]:
        """Map a tensor name to the positions of the operators that read it."""
        readers: dict[str, list[int]] = {}
        for i, op in enumerate(self.operators):
            for t in op.inputs:
                readers.setdefault(t, []).append(i)
        return readers

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (before, after) of operator positions, sorted, without repeats."""
        made = self.producers()
        pairs = {(made[t], i) for i, op in enumerate(self.operators) for t in op.inputs if t in made}
        return tuple(sorted(pairs))

    def parameters(self) -> tuple[Tensor, ...]:
        """Parameter tensors in name order."""
        return tuple(t for _, t in sorted(self.tensors.items()) if t.is_parameter)

    def to_networkx(self) -> nx.DiGraph[int]:
        """Operators as nodes (by position), dependencies as edges."""
        import networkx as nx  # takes 0.1 s, and few ask

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(len(self.operators)))
        graph.add_edges_from(self.edges())
        return graph


class GraphBuilder:
    """Grows a graph operator by operator; each call returns the name of the tensor it made.

    Raises InputError for a tensor that is empty or of more than `MOST_ELEMENTS`, and for more than `MOST_OPERATORS`.
    """

    def __init__(self, name: str) -> None:
        """Start an empty graph."""
        self._name = name
        self._tensors: dict[str, Tensor] = {}
        self._operators: list[Operator] = []
        self._inputs: list[str] = []
        self.common: Mapping[str, object] = {}
        """Attributes that all operators get which are added while it stands."""

    def input(self, name: str, shape: Iterable[int], element_bytes: int = 2) -> str:
        """Declare an activation that comes from outside."""
        self._declare(Tensor(name, tuple(shape), element_bytes))
        self._inputs.append(name)
        return name

    def parameter(
        self, name: str, shape: Iterable[int], element_bytes: int = 2, *, is_frozen: bool = False
    ) -> str:
        """Declare a parameter (the same name twice is the same parameter: tied weights)."""
        self._declare(Tensor(name, tuple(shape), element_bytes, is_parameter=True, is_frozen=is_frozen))
        return name

    def add(
        self,
        name: str,
        kind: OpKind,
        inputs: Iterable[str],
        shape: Iterable[int],
        element_bytes: int = 2,
        **attributes: object,
    ) -> str:
        """Append an operator with one output of the given shape; returns the output's name."""
        self._declare(Tensor(name, tuple(shape), element_bytes))
        self.reserve(1, name)
        known = MappingProxyType({**self.common, **attributes})
        self._operators.append(Operator(name, kind, tuple(inputs), (name,), known))
        return name

    def reserve(self, operators: int, name: str, most: int = MOST_OPERATORS) -> None:
        """Raise InputError where so many further operators, of what `name` says, make more than `most`."""
        if len(self._operators) + operators > most:
            raise InputError(f"{self._name}: with {name} the graph has more than {most} operators")

    def _declare(self, tensor: Tensor) -> None:
        if not 1 <= tensor.elements <= MOST_ELEMENTS:
            shape = " x ".join(map(str, tensor.shape))
            raise InputError(f"{self._name}: {tensor.name} has {shape} elements; 1 to 2^60 are possible")
        self._tensors[tensor.name] = tensor

    def has(self, tensor: str) -> bool:
        """Whether a tensor is declared already."""
        return tensor in self._tensors

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of a tensor declared so far."""
        return self._tensors[tensor].shape

    def split_into(
        self, name: str, tensor: str, pieces: Mapping[str, Iterable[int]], **attributes: object
    ) -> tuple[str, ...]:
        """Append a view whose outputs, named and of the given shapes, are pieces of a tensor."""
        size = self._tensors[tensor].element_bytes
        for piece, shape in pieces.items():
            self._declare(Tensor(piece, tuple(shape), size))
        self.reserve(1, name)
        made, known = tuple(pieces), MappingProxyType({**self.common, **attributes})
        self._operators.append(Operator(name, OpKind.VIEW, (tensor,), made, known))
        return made

    @property
    def operators(self) -> int:
        """Number of operators so far."""
        return len(self._operators)

    def made_since(self, operators: int) -> frozenset[str]:
        """Tensors that operators make which were added after so many."""
        return frozenset(t for op in self._operators[operators:] for t in op.outputs)

    def build(self, outputs: Iterable[str]) -> OperatorGraph:
        """Freeze the graph."""
        return OperatorGraph(
            self._name,
            MappingProxyType(dict(self._tensors)),
            tuple(self._operators),
            tuple(self._inputs),
            tuple(outputs),
        )


def without_unread(graph: OperatorGraph) -> OperatorGraph:
    """Drop operators and tensors that no output needs."""
    wanted, kept = set(graph.outputs), []
    for op in reversed(graph.operators):
        if not wanted.isdisjoint(op.outputs):
            kept.append(op)
            wanted.update(op.inputs, op.outputs)
    wanted.update(graph.inputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in wanted}
    return replace(graph, tensors=tensors, operators=tuple(reversed(kept)))
