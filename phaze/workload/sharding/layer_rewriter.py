"""Base of all divisions: a layer's operators rewritten one by one, collectives and slices between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from types import MappingProxyType

from phaze.workload.operators.collective_rules import Role
from phaze.workload.operators.operator_graph import Operator, OpKind, Tensor
from phaze.workload.parallel_degrees import Group


@dataclass
class Part:
    """Part of a layer on one device, after the degrees applied so far.

    `tokens`: axis of the tokens in the tensors that hold some. `experts`: tensors (experts, rows, ...).
    `constants`: parameters and views of them. `makers`: operators of earlier layers that made the inputs.
    """

    operators: tuple[Operator, ...]
    tensors: dict[str, Tensor]
    tokens: dict[str, int]
    experts: set[str]
    constants: set[str]
    makers: tuple[Operator, ...] = ()

    def size(self, name: str, axis: int) -> int:
        """Elements along an axis of a tensor."""
        return self.tensors[name].shape[axis]

    def resize(self, name: str, axis: int, size: int) -> None:
        """Change the size of a tensor along one axis."""
        shape = list(self.tensors[name].shape)
        shape[axis] = size
        self.tensors[name] = replace(self.tensors[name], shape=tuple(shape))

    def twin(self, name: str, source: str) -> str:
        """Declare a tensor like another one; returns its name."""
        self.tensors[name] = replace(self.tensors[source], name=name, is_parameter=False)
        if source in self.tokens:
            self.tokens[name] = self.tokens[source]
        for names in (self.experts, self.constants):
            if source in names:
                names.add(name)
        return name


class Rewriter(ABC):
    """Rewrites a part's operators for one group of devices.

    Tensors may be divided along their tokens; of those, the number of tokens before is kept.
    """

    def __init__(self, part: Part, group: Group) -> None:
        """Start with a part that this group has not divided yet."""
        self.part = part
        self.group = group
        self.operators: list[Operator] = []
        self._whole_tokens: dict[str, int] = {}

    def rewrite(self) -> None:
        """Replace the part's operators."""
        for op in self.part.operators:
            self.add(op)
        self.part.operators = tuple(self.operators)

    @abstractmethod
    def add(self, op: Operator) -> None:
        """Append an operator in its divided form, with the collectives around it."""

    def divide_tokens(self, tensor: str) -> None:
        """Leave a device its own tokens of a tensor: with the most, where they do not come out even."""
        axis = self.part.tokens[tensor]
        self._whole_tokens[tensor] = self.part.size(tensor, axis)
        self.part.resize(tensor, axis, -(-self._whole_tokens[tensor] // self.group.size))

    def has_own_tokens(self, tensor: str) -> bool:
        """Whether a device holds only its own tokens of a tensor."""
        return tensor in self._whole_tokens

    def collective(self, name: str, role: Role, source: str, target: str, **more: object) -> None:
        """Append a collective between two declared tensors, with more attributes."""
        attributes = MappingProxyType({"role": role, "group": self.group.parallel, **more})
        self.operators.append(Operator(name, OpKind.COLLECTIVE, (source,), (target,), attributes))

    def gathered(self, tensor: str, **more: object) -> str:
        """The tensor with all its tokens; one gather, with more attributes, serves all readers."""
        if not self.has_own_tokens(tensor):
            return tensor
        name = f"{tensor}.gather_{self.group.parallel}"
        if name not in self.part.tensors:
            whole = self.part.twin(name, tensor)
            self.part.resize(whole, self.part.tokens[tensor], self._whole_tokens[tensor])
            self.collective(name, Role.GATHER, tensor, whole, **more)
        return name

    def own_tokens(self, op: Operator) -> tuple[str, ...]:
        """Operands of an operator that makes a device's own tokens of its result."""
        return tuple(self._operand(op, place, t) for place, t in enumerate(op.inputs))

    def _operand(self, op: Operator, place: int, tensor: str) -> str:
        if self._reads_all_tokens(op, place):
            return self.gathered(tensor)
        axis = self._token_axis(op, tensor)
        whole = axis is not None and self.part.size(tensor, axis) == self._whole_tokens[op.outputs[0]]
        return self._slice(tensor, axis) if axis is not None and whole else tensor

    def _reads_all_tokens(self, op: Operator, place: int) -> bool:
        """Attention and its indexer: each query meets all keys and values, and finds its own choice among all."""
        if op.kind is OpKind.MATMUL:
            return place == 1 and op.inputs[1] not in self.part.constants
        if op.kind is OpKind.INDEX:
            return place == 1
        return op.kind is OpKind.ATTENTION and place in (1, 2)

    def _token_axis(self, op: Operator, tensor: str) -> int | None:
        """Axis of an undivided operand along which an operator reads a token of it for one of its own."""
        if self.has_own_tokens(tensor):
            return None
        if op.kind is OpKind.ELEMENTWISE:
            shape, out = self.part.tensors[tensor].shape, op.outputs[0]
            axis = self.part.tokens[out] + len(shape) - len(self.part.tensors[out].shape)
            return axis if axis >= 0 else None
        return self.part.tokens.get(tensor)

    def _slice(self, tensor: str, axis: int) -> str:
        """A device's own tokens of a tensor that it holds whole."""
        name = f"{tensor}.slice_{self.group.parallel}"
        if name not in self.part.tensors:
            own = -(-self.part.size(tensor, axis) // self.group.size)
            self.part.resize(self.part.twin(name, tensor), axis, own)
            self.operators.append(Operator(name, OpKind.VIEW, (tensor,), (name,)))
        return name
