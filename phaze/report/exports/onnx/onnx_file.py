"""The ONNX file of a workload: its forward pass, for any batch, as any tool that reads ONNX opens it.

Weights have names, types and shapes and no content, so a file of any model is small. What a graph does not say is not
in the file: how views order what they move, numbers that a formula has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from phaze.errors import InputError
from phaze.report.exports.onnx.onnx_draft import Draft, NotInOnnx
from phaze.report.exports.onnx.standard_operators import write_operator
from phaze.workload.operators.operator_graph import OperatorGraph, OpKind, without_unread
from phaze.workload.workload import Mode, Workload

OPSET = 23  # the first with attention, RMS norm and rotary embedding
IR_VERSION = 11
_PLACE_BYTES = 8  # of a whole number


def to_onnx(workload: Workload) -> bytes:
    """The file. Raises InputError, which lists all operators that ONNX does not have, and for `decode`."""
    return bytes(onnx_model(workload).SerializeToString())


def onnx_model(workload: Workload) -> ModelProto:
    """The message that `to_onnx` writes."""
    if workload.mode is Mode.DECODE:
        raise InputError("an ONNX file is of a pass over whole sequences: --mode training or prefill")
    one, two = (without_loss(workload.operator_graph(batch)) for batch in (1, 2))
    draft = Draft(one, two, _real(one), _whole_numbers(one))
    _write_all(draft, workload.name)
    return _packed(draft, workload.name)


def without_loss(graph: OperatorGraph) -> OperatorGraph:
    """The graph up to what its loss is taken of."""
    losses = [op for op in graph.operators if op.kind is OpKind.LOSS]
    if not losses:
        return graph
    logits = tuple(op.inputs[0] for op in losses)
    labels = {t for op in losses for t in op.inputs[1:]}
    kept = tuple(op for op in graph.operators if op.kind is not OpKind.LOSS)
    inputs = tuple(t for t in graph.inputs if t not in labels)
    return without_unread(replace(graph, operators=kept, outputs=logits, inputs=inputs))


def _real(graph: OperatorGraph) -> int:
    """Type of real numbers: that in which most weights are."""
    sizes = Counter(t.element_bytes for t in graph.parameters())
    return TensorProto.FLOAT if sizes and sizes.most_common(1)[0][0] == 4 else TensorProto.BFLOAT16


def _write_all(draft: Draft, name: str) -> None:
    """Weights, then every operator. Raises InputError that lists what is not in ONNX, with counts."""
    for tensor in draft.one.parameters():
        draft.zeros(tensor.name, tensor.shape)
    missing = Counter[str]()
    for op in draft.one.operators:
        try:
            write_operator(draft, op)
        except NotInOnnx as what:
            missing[str(what)] += 1
    if missing:
        listed = ", ".join(f"{what} ({count})" for what, count in sorted(missing.items()))
        raise InputError(f"{name} cannot be written in operators of ONNX: {listed}")


def _packed(draft: Draft, name: str) -> ModelProto:
    """The message around the nodes."""

    def info(tensor: str) -> ValueInfoProto:
        return draft.value_info(tensor, TensorProto.INT64 if tensor in draft.places else draft.real)

    apart = {*draft.one.outputs, *draft.begun}
    made = [t for op in draft.one.operators for t in op.outputs if t not in apart]
    graph = helper.make_graph(
        draft.nodes,
        name,
        [info(t) for t in (*draft.one.inputs, *draft.begun)],
        [info(t) for t in draft.one.outputs],
        value_info=[info(t) for t in made],
    )
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="phaze")


def _whole_numbers(graph: OperatorGraph) -> frozenset[str]:
    """Tensors that hold places in tables, on their way from the inputs as well, and what comes of an argmax.

    A view of several tensors, some of them places, holds real numbers.
    """
    places = {t for op in graph.operators if op.kind is OpKind.EMBEDDING for t in op.inputs[:1]}
    places |= {t for t in graph.inputs if graph.tensors[t].element_bytes == _PLACE_BYTES}
    for op in reversed(graph.operators):
        if op.kind is OpKind.VIEW and len(op.inputs) == 1 and places.issuperset(op.outputs):
            places.update(op.inputs)
    for op in graph.operators:
        argmax = op.kind is OpKind.REDUCE and op.attributes.get("function") == "argmax"
        moved = op.kind is OpKind.VIEW and bool(op.inputs)
        if argmax or (moved and places.issuperset(op.inputs)):
            places.update(op.outputs)
        elif moved:
            places.difference_update(op.outputs)
    return frozenset(places)
