"""Mixture of experts: rules worked out by hand, and what of it is divided."""

import pytest

from phaze.workload.layers.layer_cutting import whole_context
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.operator_steps import gradient_of
from phaze.workload.operators.rule_table import RULES
from phaze.workload.work import Unit
from phaze.workload.workload_loader import load_workload

BATCH, TOKENS, HIDDEN, EXPERTS, CHOSEN = 2, 6, 16, 4, 2
ROWS = BATCH * TOKENS * CHOSEN // EXPERTS
SENT = 2 * EXPERTS * ROWS * HIDDEN  # bytes of all copies
TOKEN = 2 * BATCH * TOKENS * HIDDEN
ROUTES = 8 * BATCH * TOKENS * CHOSEN


@pytest.fixture(scope="module")
def mixtral():
    return load_workload("mixtral-8x7b", sequence_length=4096)


@pytest.fixture(scope="module")
def small():
    """Tokens made from a parameter, routes from another, sent to experts that do nothing, and back."""
    g = GraphBuilder("small")
    x = g.input("x", (BATCH, TOKENS, HIDDEN))
    x = g.add("fc", OpKind.MATMUL, (x, g.parameter("w", (HIDDEN, HIDDEN))), (BATCH, TOKENS, HIDDEN))
    scores = g.add(
        "router", OpKind.MATMUL, (x, g.parameter("r", (HIDDEN, EXPERTS))), (BATCH, TOKENS, EXPERTS)
    )
    routes = g.add("routes", OpKind.REDUCE, (scores,), (BATCH, TOKENS, CHOSEN), 8, function="top")
    sent = g.add("dispatch", OpKind.DISPATCH, (x, routes), (EXPERTS, ROWS, HIDDEN))
    y = g.add("combine", OpKind.COMBINE, (sent, routes), (BATCH, TOKENS, HIDDEN))
    graph = g.build((y,))
    return {op.name: op for op in graph.operators}, whole_context(graph, training=True)


def test_forward_moves_every_copy_once(small):
    ops, ctx = small
    out = RULES[OpKind.DISPATCH].forward(ops["dispatch"], ctx).work
    assert (out.vector_cycles, out.stream_bytes) == (SENT / 2, 2 * SENT + ROUTES)
    back = RULES[OpKind.COMBINE].forward(ops["combine"], ctx).work
    assert (back.vector_cycles, back.stream_bytes) == (SENT / 2, SENT + ROUTES + TOKEN)


def test_backward_is_the_mirror(small):
    ops, ctx = small
    (back,) = RULES[OpKind.COMBINE].backward(ops["combine"], ctx, {"combine": "d"})
    # the gradient read once per copy, what the experts made, both gradients written
    assert back.work.stream_bytes == SENT + SENT + SENT + 2 * ROUTES
    assert back.work.vector_cycles == 2 * SENT / 2
    assert set(back.writes) == {gradient_of(ops["combine"], t) for t in ("dispatch", "routes")}
    (out,) = RULES[OpKind.DISPATCH].backward(ops["dispatch"], ctx, {"dispatch": "d"})
    assert (out.work.vector_cycles, out.work.stream_bytes) == (SENT / 2, SENT + ROUTES + TOKEN)
    assert set(out.writes) == {gradient_of(ops["dispatch"], "fc")}


def test_saved(small):
    ops, ctx = small
    assert RULES[OpKind.DISPATCH].saved(ops["dispatch"], ctx) == {"routes": ROUTES}
    assert RULES[OpKind.COMBINE].saved(ops["combine"], ctx) == {"dispatch": SENT, "routes": ROUTES}


def test_the_largest_few_take_a_pass_each(small):
    ops, ctx = small
    assert (
        RULES[OpKind.REDUCE].forward(ops["routes"], ctx).work.vector_cycles
        == CHOSEN * BATCH * TOKENS * EXPERTS
    )


def test_sums_wait_until_tokens_are_back_in_order(mixtral):
    """One all-reduce of b s h elements in each direction, as of a dense block; and the routes' gradients."""
    layer = next(x for x in mixtral.chain(2, 4).layers if x.kind == "block.experts")
    forward, backward = ([w for w in p.works if w.unit is Unit.LINK] for p in (layer.forward, layer.backward))
    assert [(w.name, w.link.payload_bytes) for w in forward] == [("combine.reduce", 2 * 2 * 4096 * 4096)]
    assert {w.name: w.link.payload_bytes for w in backward} == {
        "routes.copy.dX": 8 * 2 * 4096 * 2,
        "norm.copy.dX": 2 * 2 * 4096 * 4096,
    }


def test_only_the_chosen_experts_work(mixtral):
    layer = next(x for x in mixtral.chain(1, 1).layers if x.kind == "block.experts")
    router, expert = 4096 * 8, 3 * 4096 * 14336
    assert layer.parameters == 4096 + router + 8 * expert
    assert layer.model_flops == 3 * 2 * 4096 * (router + 2 * expert)


def test_experts_are_divided_inside(mixtral):
    whole, part = (next(x for x in mixtral.chain(1, t).layers if x.kind == "block.experts") for t in (1, 8))
    kept = 4096 + 4096 * 8
    assert part.parameters - kept == (whole.parameters - kept) / 8
    for works, divided in (
        (whole.forward.works, part.forward.works),
        (whole.backward.works, part.backward.works),
    ):
        undivided = {w.name: w.macs for w in works}
        for work in divided:
            share = 1 if work.name.startswith("router") else 8
            assert work.macs * share == undivided.get(work.name, 0)
