"""A whole graph as a part of a larger one, with something travelling beside it."""

from __future__ import annotations

from phaze.workload.cut import cut, whole_context
from phaze.workload.families.beside import together
from phaze.workload.ir import GraphBuilder, Operator, OperatorGraph


def graft(g: GraphBuilder, part: OperatorGraph, entry: str, beside: str) -> tuple[str, str]:
    """Append all operators of `part`, which has one input and one output, behind the tensor `entry`.

    Wherever the part alone could be cut into layers, its activation and `beside` are one tensor for a
    moment, so that the whole can be cut there too. Names are put under the part's own. Returns the names
    of the part's output and of what travelled beside it.
    """
    grafting = _Grafting(g, part, {part.inputs[0]: entry})
    layers = cut(part, whole_context(part, training=True))
    for number, layer in enumerate(layers, 1):
        for op in layer.operators:
            grafting.append(op)
        if layer is not layers[-1] and len(layer.outputs) == 1:
            made = layer.outputs[0]
            name = f"{part.name}.beside{number}"
            grafting.names[made], beside = together(g, name, grafting.names[made], beside)
    return grafting.names[part.outputs[0]], beside


class _Grafting:
    """A graph that takes in another; `names` leads from the other's tensors to its own."""

    def __init__(self, g: GraphBuilder, part: OperatorGraph, names: dict[str, str]) -> None:
        self.g = g
        self.part = part
        self.names = names
        for tensor in part.parameters():
            self.names[tensor.name] = g.parameter(
                self._under(tensor.name), tensor.shape, tensor.element_bytes
            )

    def append(self, op: Operator) -> None:
        """The same operator over the tensors here."""
        name, inputs = self._under(op.name), tuple(self.names[t] for t in op.inputs)
        tensors = [self.part.tensors[t] for t in op.outputs]
        self.names |= {t.name: self._under(t.name) for t in tensors}
        if len(tensors) > 1:
            self.g.split_into(
                name, inputs[0], {self._under(t.name): t.shape for t in tensors}, **op.attributes
            )
        else:
            self.g.add(name, op.kind, inputs, tensors[0].shape, tensors[0].element_bytes, **op.attributes)

    def _under(self, name: str) -> str:
        return f"{self.part.name}.{name}"
