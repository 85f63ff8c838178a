"""Programs grown at random: shapes are consistent, FLOPs add up and grow with the batch."""

import pytest
from exported_tiny import B, Recorder
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.workload.fusion_rules import ALL_FUSION, NO_FUSION
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.layer_cutting import whole_context
from phaze.workload.operators.matrix_rules import model_flops
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.training.backward_pass import model_parameters
from phaze.workload.training.training_loss import with_loss
from phaze.workload.workload import Mode

WIDTHS = (4, 6)
STEPS = st.lists(
    st.tuples(st.sampled_from(["linear", "gelu", "add", "mix", "cat", "norm"]), st.integers(0, 99))
)


def grown(steps):
    """A program whose every step reads tensors made before; also the (m, k, n) of its products per sample."""
    r = Recorder()
    made, products = [(r.input("x", B, 5, 4), 4)], []
    for number, (kind, choice) in enumerate([*steps, ("linear", 0)]):
        x, width = made[choice % len(made)]
        other, other_width = made[(choice // 7) % len(made)]
        out = width
        if kind == "linear":
            out = WIDTHS[choice % 2]
            result = r.call("linear", (B, 5, out), input=x, weight=r.weight(f"w{number}", out, width))
            products.append((5, width, out))
        elif kind == "mix" and width == other_width:
            turned = r.call("transpose", (B, width, 5), self=other, dim0=1, dim1=2)
            scores = r.call("bmm", (B, 5, 5), self=x, mat2=turned)
            result = r.call("bmm", (B, 5, width), self=scores, mat2=x)
            products += [(5, width, 5), (5, 5, width)]
        elif kind == "add" and width == other_width:
            result = r.call("add", (B, 5, width), self=x, other=other)
        elif kind == "cat":
            out = width + other_width
            result = r.call("cat", (B, 5, out), tensors=(x, other), dim=-1)
        elif kind == "norm":
            result = r.call("layer_norm", (B, 5, width), input=x, weight=r.weight(f"s{number}", width))
        else:
            result = r.call("gelu", (B, 5, width), self=x)
        made.append((result, out))
    return r.model(*(ref for ref, _ in made[1:])), products


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(1, 5))
def test_shapes_flops_and_parameters(steps, batch):
    model, products = grown(steps)
    graph = model.graph(batch)
    for op in graph.operators:
        if op.kind is OpKind.MATMUL:
            left, right = (graph.tensors[t].shape for t in op.inputs)
            columns, rows = (right[-2:]) if op.attributes.get("transpose_b") else right[-1:-3:-1]
            assert left[-1] == rows
            assert graph.tensors[op.outputs[0]].shape == (*left[:-1], columns)
        elif op.kind is OpKind.ELEMENTWISE:
            assert {graph.tensors[t].shape for t in op.inputs} == {graph.tensors[op.outputs[0]].shape}
    forward = GraphWorkload(model, Mode.PREFILL).chain(batch, 1)
    assert forward.model_flops == 2 * batch * sum(m * k * n for m, k, n in products)
    assert forward.parameters == sum(t.elements for t in model_parameters(graph))


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_layers_do_the_work_of_their_operators(steps):
    model, _ = grown(steps)
    plain, fused = (GraphWorkload(model, Mode.TRAINING, fusion=fusion) for fusion in (NO_FUSION, ALL_FUSION))
    graph = plain.operator_graph(2)
    context = whole_context(graph, training=True)
    whole = sum(model_flops(op, context) for op in graph.operators)
    assert plain.chain(2, 1).model_flops == fused.chain(2, 1).model_flops == whole
    assert plain.chain(6, 1).model_flops == 3 * whole


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_a_training_graph_is_derived_once(steps):
    graph = GraphWorkload(grown(steps)[0], Mode.TRAINING).operator_graph(1)
    with pytest.raises(ValueError, match="derived once"):
        with_loss(graph)
