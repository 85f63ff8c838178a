"""An operator graph to be rewritten: who makes and reads a tensor, and operators put in the place of others.

A pattern gives the operator at its end another meaning; what nobody reads any more is dropped when the graph is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import MappingProxyType

from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind, Tensor, without_unread

Shape = tuple[int, ...]


class GraphEditor:
    """Operators by their first result, in topological order: what is added stands just before what it is for."""

    def __init__(self, graph: OperatorGraph) -> None:
        """Start from a graph."""
        self._graph = graph
        self.tensors = dict(graph.tensors)
        self._operators = {op.outputs[0]: op for op in graph.operators}
        self._order: dict[str, tuple[int, int]] = {
            op.outputs[0]: (i, 0) for i, op in enumerate(graph.operators)
        }
        self._names = {op.name for op in graph.operators}
        self._added = -len(graph.tensors) - 2**20  # below 0: before the operator that stood there
        self._makers = {t: op.outputs[0] for op in graph.operators for t in op.outputs}
        self._readers: dict[str, list[str]] = {}
        self.trained = {name for name, tensor in graph.tensors.items() if tensor.is_parameter}
        """Tensors that parameters take part in."""
        for op in graph.operators:
            self._note(op)
            if not self.trained.isdisjoint(op.inputs):
                self.trained.update(op.outputs)

    def operators(self, kind: OpKind | None = None, function: str | None = None) -> Iterator[Operator]:
        """Operators of a kind and function at the moment of asking; those replaced meanwhile are left out."""
        for op in tuple(self._operators.values()):
            alike = kind in (None, op.kind) and (
                function is None or op.attributes.get("function") == function
            )
            if alike and self._operators.get(op.outputs[0]) is op and not op.attributes.get("detached"):
                yield op

    def shape(self, tensor: str) -> Shape:
        """Shape of a tensor."""
        return self.tensors[tensor].shape

    def elements(self, tensor: str) -> int:
        """Elements of a tensor."""
        return self.tensors[tensor].elements

    def is_parameter(self, tensor: str) -> bool:
        """Whether a tensor is a parameter."""
        return self.tensors[tensor].is_parameter

    def maker(self, tensor: str, kind: OpKind | None = None, *functions: str) -> Operator | None:
        """The operator that makes a tensor, if it is of that kind and has one of the functions."""
        op = self._operators.get(self._makers.get(tensor, ""))
        if op is None or op.attributes.get("detached") or (kind is not None and op.kind is not kind):
            return None
        return op if not functions or op.attributes.get("function") in functions else None

    def reader(self, tensor: str) -> Operator | None:
        """The only operator that reads a tensor; None where there are several, or the model hands it out."""
        readers = self._readers.get(tensor, [])
        return (
            self._operators[readers[0]] if len(readers) == 1 and tensor not in self._graph.outputs else None
        )

    def readers(self, tensor: str) -> list[Operator]:
        """All operators that read a tensor."""
        return [self._operators[name] for name in self._readers.get(tensor, [])]

    def is_output(self, tensor: str) -> bool:
        """Whether the model hands a tensor out."""
        return tensor in self._graph.outputs

    def table(self, tensor: str) -> str | None:
        """The parameter that a tensor is made of by views and steps that take nothing else, as tables of distances."""
        while not self.is_parameter(tensor):
            op = self.maker(tensor)
            alone = op is not None and len(op.inputs) == 1 and op.kind in (OpKind.VIEW, OpKind.ELEMENTWISE)
            if op is None or not alone:
                return None
            tensor = op.inputs[0]
        return tensor

    def reader_through_views(self, tensor: str) -> Operator | None:
        """The only reader, but for views that keep all elements."""
        op = self.reader(tensor)
        while op is not None and op.kind is OpKind.VIEW and self.is_renaming(op):
            op = self.reader(op.outputs[0])
        return op

    def is_renaming(self, op: Operator) -> bool:
        """Whether a view has all elements of one tensor."""
        alone = len(op.inputs) == len(op.outputs) == 1 and op.kind is OpKind.VIEW
        return alone and self.elements(op.inputs[0]) == self.elements(op.outputs[0])

    def source(self, tensor: str) -> str:
        """The tensor behind views that keep all elements."""
        while (op := self.maker(tensor, OpKind.VIEW)) is not None and self.is_renaming(op):
            tensor = op.inputs[0]
        return tensor

    def same(self, one: str, other: str) -> bool:
        """Whether two tensors are views of one, with all its elements."""
        return self.source(one) == self.source(other)

    def become(self, op: Operator, kind: OpKind, inputs: Iterable[str], **attributes: object) -> None:
        """Let an operator be another one with the same results."""
        self._forget(op)
        self._put(replace(op, kind=kind, inputs=tuple(inputs), attributes=MappingProxyType(attributes)))

    def renamed(self, op: Operator, name: str) -> Operator:
        """The operator under another name, if that is free; its results keep theirs."""
        if not name or name in self._names:
            return op
        self._names.add(name)
        self._operators[op.outputs[0]] = replace(op, name=name)
        return self._operators[op.outputs[0]]

    def unscaled(self, tensor: str) -> str:
        """The tensor before multiplications by numbers, and views that keep all elements."""
        tensor = self.source(tensor)
        while (op := self.maker(tensor, OpKind.ELEMENTWISE, "scale")) is not None and len(op.inputs) == 1:
            tensor = self.source(op.inputs[0])
        return tensor

    def reshape(self, tensor: str, shape: Shape) -> None:
        """Let a tensor have another shape, with as many elements; its maker and readers have to follow."""
        self.tensors[tensor] = replace(self.tensors[tensor], shape=shape)

    def view_before(self, op: Operator, name: str, inputs: Iterable[str], shape: Shape) -> str:
        """A view added for an operator."""
        return self.add_before(op, name, OpKind.VIEW, inputs, shape)

    def add_before(
        self, op: Operator, name: str, kind: OpKind, inputs: Iterable[str], shape: Shape, **attributes: object
    ) -> str:
        """An operator with one result added just before another; returns the result."""
        given = tuple(inputs)
        self.tensors[name] = Tensor(name, shape, self.tensors[given[0]].element_bytes)
        self.insert_before(op, Operator(name, kind, given, (name,), MappingProxyType(attributes)))
        return name

    def insert_before(self, op: Operator, new: Operator) -> None:
        """An operator, whose results are declared, just before another."""
        self._added += 1
        self._order[new.outputs[0]] = (self._order[op.outputs[0]][0], self._added)
        self._names.add(new.name)
        self._put(new)

    def remove(self, op: Operator) -> None:
        """Take an operator out; another one makes its results, or nobody reads them."""
        self._forget(op)
        del self._operators[op.outputs[0]]

    def first(self, ops: Iterable[Operator]) -> Operator:
        """That of some operators which comes first."""
        return min(ops, key=lambda op: self._order[op.outputs[0]])

    def ordered(self, ops: Iterable[Operator]) -> list[Operator]:
        """Operators in the order in which they run."""
        return sorted(ops, key=lambda op: self._order[op.outputs[0]])

    def free(self, name: str) -> str:
        """The name, lengthened until no tensor and no operator has it."""
        while name in self.tensors or name in self._names:
            name += "_"
        return name

    def graph(self) -> OperatorGraph:
        """The graph without what nobody reads."""
        order = sorted(self._operators.values(), key=lambda op: self._order[op.outputs[0]])
        tensors = MappingProxyType(self.tensors)
        return without_unread(replace(self._graph, tensors=tensors, operators=tuple(order)))

    def _put(self, op: Operator) -> None:
        self._operators[op.outputs[0]] = op
        self._makers.update(dict.fromkeys(op.outputs, op.outputs[0]))
        self._note(op)

    def _note(self, op: Operator) -> None:
        for t in dict.fromkeys(op.inputs):
            self._readers.setdefault(t, []).append(op.outputs[0])

    def _forget(self, op: Operator) -> None:
        for t in dict.fromkeys(op.inputs):
            self._readers[t].remove(op.outputs[0])
