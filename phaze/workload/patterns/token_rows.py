"""Tokens that stand apart again: rows (batch x tokens, width) as (batch, tokens, width), which they were made of."""

from __future__ import annotations

from math import prod

from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.patterns.graph_editor import GraphEditor, Shape

_BY_ROW = frozenset({OpKind.ELEMENTWISE, OpKind.NORM, OpKind.SOFTMAX, OpKind.REDUCE, OpKind.MATMUL})


def find_token_rows(e: GraphEditor) -> None:
    """Operators that work on each row by itself get their tokens back, up to the view that puts them apart.

    So products stored as (inputs, outputs) matrices and routers have the shapes of others, and what follows tokens
    (context and sequence parallelism, decoding) finds them.
    """
    lead: dict[str, Shape] = {}  # of flattened tensors: what their first axis stands for
    for op in e.operators():
        if op.kind is OpKind.VIEW:
            _follow_view(e, op, lead)
        elif not lead.keys().isdisjoint(op.inputs):
            _follow(e, op, lead)


def find_tokens(e: GraphEditor) -> None:
    """Ids that are looked up are the model's own, not views of them; patches of a map are the tokens they become."""
    for op in e.operators(OpKind.EMBEDDING):
        ids = e.source(op.inputs[0])
        if ids != op.inputs[0] and e.shape(ids) == e.shape(op.inputs[0]):
            e.become(op, op.kind, [ids, *op.inputs[1:]], **op.attributes)
    for op in e.operators(OpKind.VIEW):
        shape, before = e.shape(op.outputs[0]), e.shape(e.source(op.outputs[0]))
        apart = len(before) == 4 and len(shape) == 3 and e.source(op.outputs[0]) in e.trained
        if apart and shape == (before[0], before[2] * before[3], before[1]):
            e.become(op, op.kind, op.inputs, **op.attributes, tokens=1)


def _follow_view(e: GraphEditor, op: Operator, lead: dict[str, Shape]) -> None:
    """A view that flattens begins a trail, one that keeps the rows goes on."""
    (x, *others), out = op.inputs or ("",), op.outputs[0]
    if others or not x or not e.is_renaming(op) or e.is_output(out) or x not in e.tensors:
        return
    before, after = e.shape(x), e.shape(out)
    if x in lead:
        if after[0] == prod(lead[x]) and before[len(lead[x]) :] == after[1:]:
            lead[out] = lead[x]
            e.reshape(out, before)
    elif len(before) > len(after) == 2 and before[-1] == after[1] and not e.is_parameter(x):
        lead[out] = before[:-1]
        e.reshape(out, before)


def _follow(e: GraphEditor, op: Operator, lead: dict[str, Shape]) -> None:
    """An operator that reads rows: with its tokens apart where it works on each by itself, else as it was."""
    shape = next(lead[t] for t in op.inputs if t in lead)
    if _by_row(e, op, lead, shape):
        out = op.outputs[0]
        lead[out] = shape
        e.reshape(out, (*shape, *e.shape(out)[1:]))
        if op.kind is OpKind.SOFTMAX:
            e.become(op, op.kind, op.inputs, **{**op.attributes, "axis": -1})
        return
    inputs = [
        e.view_before(op, e.free(f"{op.name}.rows"), [t], (prod(lead[t]), *e.shape(t)[len(lead[t]) :]))
        if t in lead
        else t
        for t in op.inputs
    ]
    e.become(op, op.kind, inputs, **op.attributes)


def _by_row(e: GraphEditor, op: Operator, lead: dict[str, Shape], shape: Shape) -> bool:
    """Whether an operator makes one row of each, of operands with the same tokens or none."""
    out, rows = e.shape(op.outputs[0]), prod(shape)
    alike = op.kind in _BY_ROW and len(op.outputs) == 1 and not e.is_output(op.outputs[0])
    if not alike or len(out) != 2 or out[0] != rows:
        return False
    if op.kind is OpKind.MATMUL:
        whole = op.inputs[0] in lead and op.inputs[1] not in lead and len(e.shape(op.inputs[1])) == 2
        return whole and not op.attributes.get("transpose_a") and e.table(op.inputs[1]) is not None
    if op.kind is OpKind.SOFTMAX and op.attributes.get("axis", -1) not in {-1, 1}:
        return False
    others = [e.shape(t) for t in op.inputs if lead.get(t) != shape]
    return all(len(each) < 2 or each[0] == 1 for each in others)
