"""Properties that hold for any operator graph: random chains with residuals, splits and joins."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.workload.fusion_rules import ALL_FUSION, NO_FUSION
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.layer_cutting import LONG_SKIP, cut, whole_context
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.training.training_loss import with_loss
from phaze.workload.workload import Mode

SETTINGS = settings(max_examples=60, deadline=None)
WIDTH, ROWS = 8, 4


class Drawn:
    """A forward model made from a list of operator choices."""

    name = "drawn"
    heads = None

    def __init__(self, choices):
        self.choices = choices

    def graph(self, batch):
        g = GraphBuilder(self.name)
        seen = [g.input("x", (batch, ROWS, WIDTH))]
        for i, (what, back) in enumerate(self.choices):
            seen.append(self._append(g, f"op{i}", what, seen[-1], seen[-1 - back % len(seen)]))
        return g.build((seen[-1],))

    @staticmethod
    def _append(g, name, what, x, other):
        shape = g.shape(x)
        kind, inputs, attributes = OpKind.ELEMENTWISE, (x,), {"function": what}
        if what in ("add", "mul"):
            inputs = (x, other)
        elif what == "norm":
            kind, inputs = OpKind.NORM, (x, g.parameter(f"{name}.w", (WIDTH,)))
            attributes = {"function": "rms"}
        elif what in ("softmax", "view", "split"):
            kind, attributes = OpKind.SOFTMAX if what == "softmax" else OpKind.VIEW, {}
            if what == "split":
                inputs = g.split_into(
                    f"{name}.cut", x, {f"{name}.{i}": (*shape[:-1], WIDTH // 2) for i in (0, 1)}
                )[::-1]
        elif what in ("linear", "biased"):
            weight = g.parameter(f"{name}.w", (WIDTH, WIDTH))
            y = g.add(f"{name}.product", OpKind.MATMUL, (x, weight), shape)
            if what == "linear":
                return y
            inputs, attributes = (y, g.parameter(f"{name}.v", (WIDTH,))), {"function": "add"}
        return g.add(name, kind, inputs, shape, **attributes)


OPERATORS = [
    "linear",
    "biased",
    "gelu",
    "relu",
    "dropout",
    "tanh",
    "add",
    "mul",
    "norm",
    "softmax",
    "view",
    "split",
]
CHOICES = st.lists(
    st.tuples(
        st.sampled_from(OPERATORS),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=14,
).map(lambda choices: [("linear", 0), *choices, ("linear", 0)])


def passes(layer):
    return [p for p in (layer.forward, layer.backward) if p is not None]


def total(chain, figure):
    return sum(figure(w) for i in chain.index for p in passes(chain.layers[i]) for w in p.works)


@SETTINGS
@given(CHOICES, st.integers(1, 3))
def test_products_are_all_there_and_fusion_changes_no_arithmetic(choices, batch):
    model = Drawn(choices)
    fused = GraphWorkload(model, Mode.TRAINING).chain(batch, 1)
    plain = GraphWorkload(model, Mode.TRAINING, fusion=NO_FUSION).chain(batch, 1)
    products = sum(what in ("linear", "biased") for what, _ in choices)
    macs = batch * ROWS * WIDTH * WIDTH * (3 * products - 1)  # the first needs no input gradient
    assert total(fused, lambda w: w.macs) == total(plain, lambda w: w.macs) == macs
    assert fused.model_flops == plain.model_flops == 2 * macs
    assert total(fused, lambda w: w.vector_cycles) == pytest.approx(total(plain, lambda w: w.vector_cycles))
    moved = [total(c, lambda w: w.stream_bytes + sum(g.c_bytes for g in w.gemms)) for c in (fused, plain)]
    assert 0 < moved[0] <= moved[1]
    assert fused.parameters == plain.parameters


@SETTINGS
@given(CHOICES)
def test_passes_are_ordered_and_name_each_operator_once(choices):
    chain = GraphWorkload(Drawn(choices), Mode.TRAINING).chain(1, 1)
    assert len(chain.names) == len(set(chain.names)) == len(chain.index)
    for layer in chain.layers:
        assert layer.forward.works
        assert layer.saved_bytes >= 0
        assert layer.working_bytes >= 0
        for one in passes(layer):
            assert all(i < j < len(one.works) for i, j in one.edges)
            assert all(w.stream_bytes >= 0 for w in one.works)


@SETTINGS
@given(CHOICES)
def test_fusion_keeps_every_precedence_between_products(choices):
    """Whatever product had to wait for another still does."""
    orders = []
    for fusion in (ALL_FUSION, NO_FUSION):
        workload = GraphWorkload(Whole(choices), Mode.TRAINING, fusion=fusion)
        chain = workload.chain(1, 1)
        order = set()
        for i in chain.index:
            backward = chain.layers[i].backward
            graph = nx.DiGraph(backward.edges)
            graph.add_nodes_from(range(len(backward.works)))
            closure = nx.transitive_closure(graph)
            names = {k: w.name.split("+")[0].split(".")[-3:] for k, w in enumerate(backward.works) if w.gemms}
            order |= {(*names[a], *names[b]) for a, b in closure.edges if a in names and b in names}
        orders.append(order)
    assert orders[0] >= orders[1]


class Whole(Drawn):
    """A drawn graph that cannot be cut: its input is needed again at the end."""

    def graph(self, batch):
        g = GraphBuilder(self.name)
        x = g.input("x", (batch, ROWS, WIDTH))
        seen = [x]
        for i, (what, back) in enumerate(self.choices):
            seen.append(self._append(g, f"m.op{i}", what, seen[-1], seen[-1 - back % len(seen)]))
        return g.build((g.add("m.end", OpKind.ELEMENTWISE, (seen[-1], x), g.shape(x), function="mul"),))


@SETTINGS
@given(CHOICES)
def test_exactly_one_tensor_passes_each_cut(choices):
    """Counted anew from the operators: tensors made before the cut and read after it, views as one.

    Two may pass inside what is long without them, where both are others than at the cut before.
    """
    graph = with_loss(Drawn(choices).graph(1))
    segments = cut(graph, whole_context(graph, training=True))
    assert [op for s in segments for op in s.operators] == list(graph.operators)
    origin = {}
    for op in graph.operators:
        if op.kind is OpKind.VIEW and len(op.inputs) == len(op.outputs) == 1:
            origin[op.outputs[0]] = origin.get(op.inputs[0], op.inputs[0])
    done, before = {"x"}, set()
    for k, segment in enumerate(segments[:-1]):
        done |= {t for op in segment.operators for t in op.outputs}
        later = {t for s in segments[k + 1 :] for op in s.operators for t in op.inputs}
        passing = {origin.get(t, t) for t in done & later}
        long = len(graph.operators) >= LONG_SKIP
        assert len(passing) == 1 or (
            long and len(passing) == 2 and not (len(before) == 2 and passing & before)
        )
        before = passing


@SETTINGS
@given(CHOICES)
def test_layer_signatures_ignore_names(choices):
    """The same stack twice in a row: the second copy adds no new kinds of layer but those at the seam."""
    once = GraphWorkload(Drawn(choices * 2), Mode.TRAINING).chain(1, 1)
    twice = GraphWorkload(Drawn(choices * 3), Mode.TRAINING).chain(1, 1)
    if all(back == 0 or what not in ("add", "mul") for what, back in choices):
        assert len(once.layers) == len(twice.layers)


def test_gradients_that_meet_are_summed_once():
    """h is read by a product and by a gelu: its gradient has two contributions."""
    g = GraphBuilder("two")
    x = g.input("x", (1, ROWS, WIDTH))
    h = g.add("m.h", OpKind.MATMUL, (x, g.parameter("h.w", (WIDTH, WIDTH))), g.shape(x))
    a = g.add("m.a", OpKind.MATMUL, (h, g.parameter("a.w", (WIDTH, WIDTH))), g.shape(x))
    b = g.add("m.b", OpKind.ELEMENTWISE, (h,), g.shape(x), function="gelu")
    y = g.add("m.y", OpKind.ELEMENTWISE, (a, b), g.shape(x), function="add")
    graph = g.build((y,))

    class Fixed:
        name, heads = "two", None

        @staticmethod
        def graph(batch):
            return graph

    chain = GraphWorkload(Fixed(), Mode.TRAINING, fusion=NO_FUSION).chain(1, 1)
    backward = next(layer for layer in chain.layers if layer.kind == "m").backward
    names = [w.name for w in backward.works]
    assert names.count("gradient_sum") == 1
    total_at = names.index("gradient_sum")
    parents = {names[i] for i, j in backward.edges if j == total_at}
    assert parents == {"a.dX", "b.dX"}
    assert chain.names[0] == "m.h"  # the sum goes to the layer before
