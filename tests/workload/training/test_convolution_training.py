"""Training of random convolution nets against first principles, worked out here a second time."""

from math import prod

from hypothesis import example, given, settings
from hypothesis import strategies as st

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.layer_cutting import whole_context
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.training.backward_pass import backward_steps
from phaze.workload.training.training_loss import with_loss
from phaze.workload.workload import Mode

SETTINGS = settings(max_examples=60, deadline=None)
CLASSES = 5


class Net:
    """A convolution net from a list of choices; it notes what its training must cost and keep."""

    name = "net"
    heads = None

    def __init__(self, choices):
        self.choices = choices

    def graph(self, batch):
        self.flops, self.kept, self.trained, self.pieces = 0, {}, [], {}
        g = self.g = GraphBuilder(self.name)
        g.input("image", (batch, 4, 16, 16))
        x = self.convolution("stem", "image", 8, 3, 1)
        seen = [x]
        for i, (what, back) in enumerate(self.choices):
            x = self.step(f"{what}{i}", what, x, seen[-1 - back % len(seen)])
            seen.append(x)
        window = g.shape(x)[2:]
        pooled = g.add("pool", OpKind.POOL, [x], (*g.shape(x)[:2], 1, 1), function="average", kernel=window)
        flat = g.add("flat", OpKind.VIEW, [pooled], g.shape(x)[:2])
        weight = g.parameter("head.w", (g.shape(x)[1], CLASSES))
        logits = g.add("head", OpKind.MATMUL, [flat, weight], (batch, CLASSES))
        self.flops += 3 * 2 * batch * g.shape(x)[1] * CLASSES
        self.kept |= {"pool": 2 * prod(g.shape(flat)), "loss": batch * (2 * CLASSES + 8 + 4)}
        self.trained.append("head")
        return g.build([logits])

    def step(self, name, what, x, other):  # noqa: PLR0911
        g, shape = self.g, self.g.shape(x)
        if what in ("conv", "strided", "depthwise"):
            return self.convolution(name, x, shape[1], 3, 2 if what == "strided" else 1, what == "depthwise")
        if what == "relu":
            self.keep(name, 2 * prod(shape))
            return g.add(name, OpKind.ELEMENTWISE, [x], shape, function="relu")
        if what == "norm":
            self.keep(x, 2 * prod(shape))
            self.trained.append(name)
            parts = [g.parameter(f"{name}.{i}", (shape[1],)) for i in range(4)]
            return g.add(name, OpKind.NORM, [x, *parts], shape, function="batch", statistics=2)
        if what == "max" and shape[2] > 1:
            half = (*shape[:2], shape[2] // 2, shape[3] // 2)
            self.kept[f"{name}:winner"] = prod(half)
            return g.add(
                name, OpKind.POOL, [x], half, function="max", kernel=(2, 2), strides=(2, 2), pads=(0,) * 4
            )
        if what == "add" and g.shape(other) == shape and other != x:
            return g.add(name, OpKind.ELEMENTWISE, [x, other], shape, function="add")
        # The same tensor twice in a concatenation is two copies where it crosses a cut: not this test's matter.
        apart = not self.roots(x) & self.roots(other)
        if what == "concat" and g.shape(other)[2:] == shape[2:] and apart and shape[1] < 100:
            self.pieces[name] = (x, other)
            return g.add(name, OpKind.VIEW, [x, other], (shape[0], shape[1] + g.shape(other)[1], *shape[2:]))
        return x

    def convolution(self, name, x, filters, kernel, stride, depthwise=False):
        batch, channels, *space = self.g.shape(x)
        groups = channels if depthwise else 1
        out = (batch, filters, *(-(-s // stride) for s in space))
        weight = self.g.parameter(f"{name}.w", (filters, channels // groups, kernel, kernel))
        products = 2 if x == "image" else 3  # nobody wants the gradient of the image
        self.flops += products * 2 * prod(out) * channels // groups * kernel**2
        self.keep(x, 2 * batch * channels * prod(space))
        self.trained.append(name)
        window = {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (1,) * 4, "dilations": (1, 1)}
        return self.g.add(name, OpKind.CONV, [x, weight], out, groups=groups, **window)

    def roots(self, tensor):
        """The tensors a joined one is made of."""
        parts = [self.roots(piece) for piece in self.pieces.get(tensor, ())]
        return set().union(*parts) if parts else {tensor}

    def keep(self, tensor, size):
        """A joined tensor lives in the tensors it joins."""
        if tensor in self.pieces:
            for piece in self.pieces[tensor]:
                self.keep(piece, 2 * prod(self.g.shape(piece)))
        else:
            self.kept[tensor] = size


KINDS = ["conv", "strided", "depthwise", "relu", "norm", "max", "add", "concat"]
NETS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4)), max_size=12).map(Net)


def layers_of(chain):
    return [chain.layers[i] for i in chain.index]


@SETTINGS
@given(NETS, st.integers(1, 3))
def test_flops_are_three_products_each_but_two_at_the_image(net, batch):
    chain = GraphWorkload(net, Mode.TRAINING).chain(batch, 1)
    net.graph(batch)
    assert chain.model_flops == net.flops
    done = 2 * sum(
        w.macs for layer in layers_of(chain) for p in (layer.forward, layer.backward) for w in p.works
    )
    assert done == net.flops
    twice = GraphWorkload(net, Mode.TRAINING).chain(2 * batch, 1)
    assert twice.model_flops == 2 * chain.model_flops


@SETTINGS
@given(NETS)
@example(
    Net([("relu", 0), ("relu", 0), ("concat", 1), ("conv", 0)])
)  # a joined tensor that alone crosses a cut
def test_every_tensor_is_kept_once(net):
    chain = GraphWorkload(net, Mode.TRAINING).chain(2, 1)
    net.graph(2)
    kept = sum(layer.saved_bytes for layer in layers_of(chain))
    copies = sum(
        2 * prod(net.g.shape(joined)) for joined in net.pieces
    )  # at most: where the joined one crosses
    assert sum(net.kept.values()) <= kept <= sum(net.kept.values()) + copies


def gradients_of(graph):
    """Backward operators of the whole net with its loss, before any fusion."""
    graph = with_loss(graph)
    ctx = whole_context(graph, training=True)
    return [step.work for step in backward_steps(graph.operators, ctx, {}, ())[0] if step.work is not None]


@SETTINGS
@given(NETS)
def test_every_operator_has_its_gradients(net):
    graph = net.graph(2)
    names = [work.name for work in gradients_of(graph)]
    expected = {"loss.dX"}
    for op in graph.operators:
        if op.kind in (OpKind.CONV, OpKind.MATMUL):
            expected |= {f"{op.name}.dW"} | ({f"{op.name}.dX"} if op.inputs[0] != "image" else set())
        elif op.kind is not OpKind.VIEW and op.attributes["function"] != "add":
            expected.add(f"{op.name}.dX")  # views and sums hand the gradient on as it is
    assert {name for name in names if name != "gradient_sum"} == expected
    assert len(names) - names.count("gradient_sum") == len(expected)


@SETTINGS
@given(NETS)
def test_gradients_are_summed_where_a_tensor_is_read_more_than_once(net):
    graph = net.graph(2)
    readers = {t: len(found) for t, found in graph.consumers().items() if t in graph.producers()}
    expected = sum((count - 1) * graph.tensors[t].elements for t, count in readers.items())
    sums = [w for w in gradients_of(graph) if w.name == "gradient_sum"]
    assert sum(w.vector_cycles for w in sums) == expected


@SETTINGS
@given(NETS)
def test_passes_are_ordered(net):
    for layer in GraphWorkload(net, Mode.TRAINING).chain(1, 1).layers:
        for one in (layer.forward, layer.backward):
            assert all(before < after < len(one.works) for before, after in one.edges)
