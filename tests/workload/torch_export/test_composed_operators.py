"""Operators that are several of the graph: products as torch counts them, all else by its definition."""

import pytest

from phaze import from_torch
from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.torch_tracing import record
from phaze.workload.workload import Mode

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
FlopCounterMode = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode
BATCH = 4


class Of(nn.Module):
    """A product, so that something is trained, and a function of it."""

    def __init__(self, function, width=16, *parameters):
        super().__init__()
        self.inner, self.function = nn.Linear(16, width), function
        self.more = nn.ParameterList(nn.Parameter(torch.randn(shape)) for shape in parameters)
        self.register_buffer("table", torch.randn(width, 6))

    def forward(self, x):
        return self.function(self, self.inner(x))


class Cells(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell(16, 16)

    def forward(self, x):
        state = self.cell(x)
        return self.cell(x, state)[0] if isinstance(state, tuple) else self.cell(x, state)


ROWS, IMAGE = (BATCH, 8, 16), (BATCH, 3, 8, 16)
PRODUCTS = {
    "a stored table": (Of(lambda m, y: y @ m.table), ROWS),
    "a made table": (Of(lambda m, y: y @ torch.eye(16).roll(1, 0)), ROWS),
    "a fixed filter": (Of(lambda m, y: F.conv1d(y, torch.ones(4, 8, 3))), ROWS),
    "three operands": (
        Of(lambda m, y: torch.einsum("bsh,hk,kn->bsn", y, *m.more), 16, (16, 5), (5, 7)),
        ROWS,
    ),
    "sum of one alone": (Of(lambda m, y: torch.einsum("bsh,kn->bsk", y, *m.more), 16, (5, 7)), ROWS),
    "dots": (Of(lambda m, y: torch.einsum("...h,hk->...k", y, *m.more), 16, (16, 5)), ROWS),
    "lstm cell": (Cells(nn.LSTMCell), (BATCH, 16)),
    "gru cell": (Cells(nn.GRUCell), (BATCH, 16)),
    "rnn cell": (Cells(nn.RNNCell), (BATCH, 16)),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), ROWS),
    "mean squares": (Of(lambda m, y: F.mse_loss(y, torch.zeros_like(y))), ROWS),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_torch_counts(name):
    module, shape = PRODUCTS[name]
    x = torch.randn(shape)
    with FlopCounterMode(display=False) as forward:
        module(x)
    with FlopCounterMode(display=False) as both:
        module(x).sum().backward()
    model = record(module, (x,), {}, "m")
    found = {
        mode: GraphWorkload(model, mode).chain(BATCH, 1).model_flops
        for mode in Mode
        if mode is not Mode.DECODE
    }
    assert found == {Mode.PREFILL: forward.get_total_flops(), Mode.TRAINING: both.get_total_flops()}
    assert GraphWorkload(model, Mode.TRAINING).parameter_count == sum(p.numel() for p in module.parameters())


def cycles(module, shape):
    """Vector cycles of a forward pass, beyond the product and bias of the module."""
    chain = from_torch(module, (torch.randn(shape),), name="m", mode=Mode.PREFILL).chain(BATCH, 1)
    total = sum(w.vector_cycles for i in chain.index for w in chain.layers[i].forward.works)
    return total - BATCH * 8 * 16 * (shape == ROWS)


ELEMENTS = BATCH * 8 * 16
BY_DEFINITION = {
    "addcmul": (lambda m, y: torch.addcmul(y, y, y, value=2.0), 2 * ELEMENTS),
    "addcdiv": (lambda m, y: torch.addcdiv(y, y, y), 11 * ELEMENTS),
    "lerp": (lambda m, y: torch.lerp(y, y * 1, 0.3), 4 * ELEMENTS),
    "reshape_as": (lambda m, y: y.reshape_as(y), 0),
    "outer": (lambda m, y: torch.outer(y.flatten(), torch.ones(2)).reshape(-1, 8, 32), 2 * ELEMENTS),
    "filled": (lambda m, y: y + torch.zeros_like(y).fill_(3.0), ELEMENTS),
    "drop path": (lambda m, y: y * y.new_empty(y.shape[0], 1, 1).bernoulli_(0.9), ELEMENTS),
    # 16 points: 4 stages of 5 operations for each complex element
    "complex transform": (lambda m, y: torch.view_as_real(torch.fft.fft(y)), 5 * 4 * ELEMENTS),
    "real transform": (lambda m, y: torch.view_as_real(torch.fft.rfft(y)), 5 * 4 * BATCH * 8 * 9),
    "and back": (lambda m, y: torch.fft.irfft(torch.fft.rfft(y)), 2 * 5 * 4 * BATCH * 8 * 9),
    "added in place": (
        lambda m, y: torch.zeros_like(y).index_add(1, torch.zeros(8, dtype=torch.long), y),
        ELEMENTS,
    ),
    "folded": (lambda m, y: F.fold(y, (5, 5), 2, stride=2, padding=0)[:, :, 0], None),
}


@pytest.mark.parametrize("name", [n for n in BY_DEFINITION if n != "folded"])
def test_other_work_is_as_defined(name):
    function, expected = BY_DEFINITION[name]
    assert cycles(Of(function), ROWS) == expected


def operators(function, *parameters):
    graph = from_torch(Of(function, 16, *parameters), (torch.randn(ROWS),), name="m").operator_graph(BATCH)
    return graph, [op.kind for op in graph.operators if op.kind is not OpKind.VIEW]


def test_patches_are_added_where_they_overlap():
    _, kinds = operators(lambda m, y: F.fold(y, (5, 5), 2, stride=1, padding=0).flatten(1))
    assert kinds == [OpKind.MATMUL, OpKind.ELEMENTWISE, OpKind.REDUCE, OpKind.LOSS]


def test_samples_are_of_four_neighbours():
    def sampled(m, y):
        grid = y[:, :, :8].reshape(BATCH if y.shape[0] == BATCH else y.shape[0], 8, 4, 2)
        return F.grid_sample(y[:, :, None].expand(-1, -1, 4, -1), grid, align_corners=False).flatten(1)

    graph, kinds = operators(sampled)
    (pool,) = (op for op in graph.operators if op.kind is OpKind.POOL)
    assert pool.attributes["kernel"] == (2, 2)
    assert graph.tensors[pool.outputs[0]].shape == (BATCH, 8, 8, 4)
    assert kinds[-2:] == [OpKind.ELEMENTWISE, OpKind.LOSS]


def test_a_spectrogram_is_a_transform_of_every_frame():
    def spectrum(m, y):
        return torch.view_as_real(
            torch.stft(y.flatten(1), 32, 16, return_complex=True, center=False)
        ).flatten(1)

    graph, _ = operators(spectrum)
    stages = [op for op in graph.operators if op.attributes.get("function") == "butterfly"]
    frames = (128 - 32) // 16 + 1
    assert len(stages) == 5
    assert all(graph.tensors[op.outputs[0]].elements == BATCH * frames * 17 for op in stages)


def test_experts_by_a_grouped_product():
    def routed(m, y):
        rows = y.flatten(0, 1).bfloat16()
        counts = torch.histc(rows[:, 0].float(), bins=4, min=0, max=3)
        offsets = counts.cumsum(0).to(torch.int32)
        return torch._grouped_mm(rows, m.more[0].bfloat16(), offs=offsets).view(y.shape[0], 8, 24)

    graph, _ = operators(routed, (4, 16, 24))
    (product,) = (op for op in graph.operators if op.inputs[-1] == "more.0" or op.name.endswith("products"))
    assert graph.tensors[product.outputs[0]].shape == (4, BATCH * 8 // 4, 24)


PAIRS = {  # rows of the other side, power: as a product from 26 rows on, unless torch is told otherwise
    "many": (40, 2.0, "use_mm_for_euclid_dist_if_necessary", True),
    "few": (5, 2.0, "use_mm_for_euclid_dist_if_necessary", False),
    "few, as a product": (5, 2.0, "use_mm_for_euclid_dist", True),
    "many, one by one": (40, 2.0, "donot_use_mm_for_euclid_dist", False),
    "sums": (40, 1.0, "use_mm_for_euclid_dist_if_necessary", False),
    "largest": (40, float("inf"), "use_mm_for_euclid_dist_if_necessary", False),
    "general": (40, 3.0, "use_mm_for_euclid_dist_if_necessary", False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_distances_of_all_pairs(name):
    """2 x rows x columns x width operations of a product, or a difference of every pair along every dimension."""
    columns, power, how, is_product = PAIRS[name]
    module = Of(lambda m, y: torch.cdist(y, m.more[0], power, how), 16, (columns, 16))
    graph = from_torch(module, (torch.randn(ROWS),), name="m", mode=Mode.PREFILL).operator_graph(BATCH)
    kinds = [op.kind for op in graph.operators if op.kind is not OpKind.VIEW]
    wide = [t for t in graph.tensors.values() if t.shape == (BATCH, 8, columns, 16)]
    assert kinds.count(OpKind.MATMUL) == 1 + is_product
    assert bool(wide) is not is_product
    assert graph.tensors[graph.outputs[0]].shape == (BATCH, 8, columns)
    if is_product:
        flops = (
            from_torch(module, (torch.randn(ROWS),), name="m", mode=Mode.PREFILL).chain(BATCH, 1).model_flops
        )
        assert flops == 2 * BATCH * 8 * 16 * (16 + columns)


def test_what_no_rule_knows_is_taken_apart_by_torch():
    """The same operators as of the parts written out, also where parts have parts of their own."""
    whole = {
        "inner": lambda m, y: torch.inner(y, m.more[0]),
        "logaddexp": lambda m, y: torch.logaddexp(y, 2 * y),
        "cosine": lambda m, y: F.cosine_similarity(y, m.table[:, 0] * y, dim=-1),
    }
    kinds = {name: operators(function, (5, 16))[1].count(OpKind.MATMUL) for name, function in whole.items()}
    assert kinds == {"inner": 2, "logaddexp": 1, "cosine": 1}
    model = from_torch(Of(whole["inner"], 16, (5, 16)), (torch.randn(ROWS),), mode=Mode.PREFILL)
    assert model.chain(BATCH, 1).model_flops == 2 * BATCH * 8 * 16 * (16 + 5)


def test_an_operator_that_torch_cannot_take_apart_is_named():
    with pytest.raises(InputError, match=r"unsupported operator aten\.cummax"):
        operators(lambda m, y: torch.cummax(y, 1)[0])


def test_a_loss_of_its_own_beside_an_output_stands_for_what_it_sums():
    """A vector quantiser hands out a commitment beside its image: work and weights of both are kept."""

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.beside = nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x):
            y, z = self.inner(x), self.beside(x)
            return y, 0.25 * (z**2).mean() + z.abs().sum() / 8

    workload = from_torch(Quantised(), (torch.randn(ROWS),), name="m")
    graph = workload.operator_graph(BATCH)
    losses = [graph.tensors[op.inputs[0]].shape for op in graph.operators if op.kind is OpKind.LOSS]
    assert losses == [(BATCH, 8, 16), (BATCH, 8, 4), (BATCH, 8, 4)]
    assert workload.parameter_count == 17 * 16 + 17 * 4


def test_a_number_over_all_samples_that_comes_back_is_refused():
    with pytest.raises(InputError, match="does not keep the batch"):
        operators(lambda m, y: y * y.mean())
