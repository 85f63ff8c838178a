"""A layer's operators and tensors while they are being divided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phaze.workload.ir import Operator, Tensor


@dataclass
class Part:
    """What one device has of a layer, after the degrees applied so far.

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
