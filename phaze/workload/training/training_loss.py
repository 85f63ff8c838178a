"""The loss that training adds to a forward model: cross-entropy on its outputs."""

from __future__ import annotations

from collections.abc import Container
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind, Tensor
from phaze.workload.operators.operator_steps import integer, word
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.training.backward_pass import differentiable

LABEL_BYTES = 8  # class indices as 64-bit integers


def with_loss(graph: OperatorGraph) -> OperatorGraph:
    """Append a cross-entropy over the classes of every output that parameters take part in.

    A softmax at the very end is left out, for the loss contains it. Outputs without gradient stay
    outputs. Raises InputError if no output depends on a trained parameter, ValueError for a graph that has
    its loss already.
    """
    if any(op.kind is OpKind.LOSS for op in graph.operators):
        msg = f"{graph.name} has its loss already: a training graph is derived once"
        raise ValueError(msg)
    flows = differentiable(graph)
    if flows.isdisjoint(graph.outputs):
        msg = f"{graph.name}: no output depends on a trained parameter, so there is nothing to train"
        raise InputError(msg)
    parts = _Parts(graph)
    outputs = tuple(parts.add_loss(t) if t in flows else t for t in graph.outputs)
    return OperatorGraph(
        graph.name,
        MappingProxyType(parts.tensors),
        tuple(op for op in parts.operators if op.name not in parts.dropped),
        (*graph.inputs, *parts.labels),
        outputs,
    )


class _Parts:
    """A graph that grows by its losses."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.tensors = dict(graph.tensors)
        self.operators = list(graph.operators)
        self.labels: list[str] = []
        self.dropped: set[str] = set()
        self._makers = {t: op for op in graph.operators for t in op.outputs}
        self._readers = graph.consumers()
        self._outputs = graph.outputs

    def add_loss(self, output: str) -> str:
        """Append the loss of one output; returns the loss's name."""
        suffix = "" if not self.labels else str(len(self.labels) + 1)
        logits, axis = self._logits(output)
        loss, label = (_free(f"{stem}{suffix}", self.tensors) for stem in ("loss", "labels"))
        shape = list(self.tensors[logits].shape)
        if len(shape) > 1:
            del shape[axis]
        self.tensors[loss] = Tensor(loss, tuple(shape), 4)
        self.tensors[label] = Tensor(label, tuple(shape), LABEL_BYTES)
        role = _logits_role(self._makers[logits]) if logits in self._makers else Shard.NONE
        attributes = MappingProxyType({"shard": role} if role is not Shard.NONE else {})
        self.operators.append(Operator(loss, OpKind.LOSS, (logits, label), (loss,), attributes))
        self.labels.append(label)
        return loss

    def _logits(self, output: str) -> tuple[str, int]:
        """Input of the loss and the axis of its classes: below a final softmax, if there is one.

        Without one, the classes of a map (batch, channels, height, width) are its channels, as in every
        framework's cross-entropy; otherwise they are the last axis.
        """
        name, passed = output, []
        while (op := self._makers.get(name)) is not None and self._is_last(op):
            passed.append(op.name)
            name = op.inputs[0]
            if op.kind is OpKind.SOFTMAX:
                self.dropped.update(passed)
                return name, integer(op, "axis", -1)
        return output, 1 if len(self.tensors[output].shape) > 3 else -1

    def _is_last(self, op: Operator) -> bool:
        """Whether only the end of the model reads a softmax or a view after one."""
        tensor = op.outputs[0]
        readers = len(self._readers.get(tensor, ())) + (tensor in self._outputs)
        alone = len(op.inputs) == len(op.outputs) == readers == 1
        return alone and op.kind in (OpKind.SOFTMAX, OpKind.VIEW)


def _free(name: str, taken: Container[str]) -> str:
    """The name, lengthened until no tensor of the model has it."""
    while name in taken:
        name += "_"
    return name


def _logits_role(op: Operator) -> Shard:
    """A loss is divided over the vocabulary where its logits are."""
    role = Shard(word(op, "shard", Shard.NONE))
    return Shard.VOCAB if role in (Shard.VOCAB, Shard.COLUMN) else Shard.NONE
