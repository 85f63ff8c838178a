"""Rows that an operator must reduce before it can write them."""

import pytest

from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.operator_steps import OperatorContext
from phaze.workload.operators.rule_table import RULES
from phaze.workload.workload_loader import load_workload


def forward(kind, shape, **attributes):
    g = GraphBuilder("one")
    g.add("y", kind, (g.input("x", shape),), shape, **attributes)
    graph = g.build(("y",))
    ctx = OperatorContext(graph.tensors, set(), frozenset(), training=False)
    return RULES[kind].forward(graph.operators[0], ctx).work


@pytest.mark.parametrize(
    ("kind", "attributes", "rows"),
    [
        (OpKind.SOFTMAX, {}, 6),
        (OpKind.SOFTMAX, {"axis": 1}, 8),
        (OpKind.NORM, {"function": "layer"}, 6),
        (OpKind.NORM, {"function": "rms"}, 6),
        (OpKind.NORM, {"function": "batch"}, 0),
        (OpKind.ELEMENTWISE, {"function": "gelu"}, 0),
    ],
)
def test_rows_of_operators(kind, attributes, rows):
    assert forward(kind, (2, 3, 4), **attributes).rows == rows


def test_a_norm_keeps_its_rows_with_a_residual_sum_on_it():
    layers = load_workload("gpt3-small").chain(4, 1).layers
    works = [w for layer in layers for p in (layer.forward, layer.backward) if p for w in p.works]
    norms = [w for w in works if w.kind == "norm"]
    assert any("+" in w.name for w in norms)
    assert {w.rows for w in norms} == {4 * 2048}
