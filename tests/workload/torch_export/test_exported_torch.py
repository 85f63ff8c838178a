"""Modules recorded by torch, against torch's own counts; skipped where torch is not installed."""

import copy
from functools import cache

import pytest

from phaze import from_torch
from phaze.errors import InputError, Remark
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.torch_tracing import record
from phaze.workload.training.backward_pass import differentiable, model_parameters
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
kernels = pytest.importorskip("torch.nn.attention")
FlopCounterMode = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode
ShapeProp = pytest.importorskip("torch.fx.passes.shape_prop").ShapeProp
pytestmark = pytest.mark.filterwarnings("ignore")
BATCH = 3


class Attention(nn.Module):
    def __init__(self, width=16, heads=4, kv_heads=2):
        super().__init__()
        self.sizes = (heads, kv_heads, width // heads)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * kv_heads * width // heads)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        heads, kv_heads, size = self.sizes
        q = self.q(x).unflatten(-1, (heads, size)).transpose(1, 2)
        k, v = (t.unflatten(-1, (kv_heads, size)).transpose(1, 2) for t in self.kv(x).chunk(2, -1))
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(16)

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Contraction(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16, 16))

    def forward(self, x):
        scores = torch.einsum("bsh,bth->bst", x @ self.weight, x)
        return torch.einsum("bsh,oh->bso", scores.softmax(-1) @ x, self.weight)


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))


def convolutions(groups=1):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding="same", groups=groups),
        nn.SiLU(),
        nn.ConvTranspose2d(8, 6, 2, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 10),
    )


SEQUENCE, IMAGE = (BATCH, 8, 16), (BATCH, 3, 16, 16)
MODELS = {
    "mlp": (lambda: Residual(mlp()), SEQUENCE),
    "attention": (lambda: Residual(Attention()), SEQUENCE),
    "stack": (lambda: nn.Sequential(Residual(Attention()), Residual(mlp()), nn.Linear(16, 7)), SEQUENCE),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), SEQUENCE),
    "contraction": (Contraction, SEQUENCE),
    "convolutions": (convolutions, IMAGE),
    "groups": (lambda: convolutions(4), IMAGE),
    "one dimension": (
        lambda: nn.Sequential(nn.Conv1d(8, 4, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)),
        SEQUENCE,
    ),
}


def built(name):
    """The module with weights, and a tensor to feed it."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    module(x)  # fixes lazy shapes
    return module, x


def counted(run):
    """FLOPs that torch counts; of plain products, for it has no formula for the flash kernel of a CPU."""
    with kernels.sdpa_kernel(kernels.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@cache
def recorded(name):
    """The module and its input, and what was recorded of it."""
    module, x = built(name)
    return module, x, record(module, (x,), {}, name)


@pytest.mark.parametrize("name", [n for n in MODELS if n != "groups"])  # torch counts their dW `groups` times
def test_flops_of_forward_and_backward_are_those_torch_counts(name):
    module, x, model = recorded(name)
    chain = GraphWorkload(model, Mode.TRAINING).chain(BATCH, 1)
    assert chain.model_flops == counted(lambda: module(x).sum().backward())


@pytest.mark.parametrize("name", MODELS)
def test_flops_of_a_forward_pass_are_those_torch_counts(name):
    module, x, model = recorded(name)
    assert GraphWorkload(model, Mode.PREFILL).chain(BATCH, 1).model_flops == counted(lambda: module(x))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_shapes_of_autograd(name):
    module, x, model = recorded(name)
    module(x).sum().backward()
    graph = GraphWorkload(model, Mode.TRAINING).operator_graph(BATCH)
    flows = differentiable(graph)
    ours = {t.name: t.shape for t in model_parameters(graph) if t.name in flows}
    theirs = {called: tuple(p.grad.shape) for called, p in module.named_parameters() if p.grad is not None}
    assert ours == theirs


def test_no_weight_is_needed_and_evaluation_is_recorded_too():
    module, x, model = recorded("convolutions")
    empty = from_torch(copy.deepcopy(module).to("meta").eval(), (x,), name="convolutions")
    assert empty.operator_graph(5) == GraphWorkload(model, Mode.TRAINING).operator_graph(5)


def test_a_decomposed_program_does_the_same_work(tmp_path):
    module, x, model = recorded("attention")
    flops = GraphWorkload(model, Mode.TRAINING).chain(BATCH, 1).model_flops
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
    for program in (exported, exported.run_decompositions()):
        torch.export.save(program, tmp_path / "program.pt2")
        saved = load_workload(str(tmp_path / "program.pt2"))
        assert saved.chain(BATCH, 1).model_flops == flops
        assert saved.parameter_count == sum(p.numel() for p in module.parameters())


def test_operators_are_called_by_their_modules():
    _, _, model = recorded("stack")
    names = {op.name for op in model.graph(2).operators}
    assert {"0.norm", "0.inner.q", "0.inner.q.add_bias", "1.inner.0", "1.inner.1", "1.add", "2"} <= names


def test_tied_weights_are_one_parameter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            return self.head(self.table(tokens))

    tokens = torch.zeros(1, 6, dtype=torch.long)
    assert from_torch(Tied(), (tokens,)).parameter_count == 50 * 8


def test_a_graph_module_brings_its_own_shapes():
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    with pytest.raises(InputError, match="has no shape; give example_inputs or run ShapeProp"):
        from_torch(traced)
    ShapeProp(traced).propagate(torch.zeros(5, 4))
    workload = from_torch(traced, name="traced")
    assert (workload.name, workload.parameter_count) == ("traced", 5 * 8 + 9 * 3)


def test_parts_overwritten_in_place_become_copies():
    class Patched(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            y = self.inner(x)
            y[:, :4] = y[:, 4:] * 2
            return y.tanh()

    operators = from_torch(Patched(), (torch.zeros(2, 8),)).operator_graph(2).operators
    functions = [op.attributes["function"] for op in operators if op.kind is OpKind.ELEMENTWISE]
    assert functions == ["add", "scale", "tanh"]


def test_a_loss_inside_the_module_stands_for_its_logits():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 5)

        def forward(self, x, labels):
            return F.cross_entropy(self.inner(x), labels)

    workload = from_torch(WithLoss(), (torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)))
    kinds = [op.kind for op in workload.operator_graph(3).operators]
    assert kinds == [OpKind.MATMUL, OpKind.ELEMENTWISE, OpKind.LOSS]


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda x: x.sum() * x, "does not keep the batch"),
        (lambda x: x[x > 0], "depend on the content"),
        (lambda x: torch.linalg.det(x @ x.mT), "unsupported operator aten._linalg_det"),
        (lambda x: x.relu() if len(x) < 5 else x.tanh(), "depends on the batch"),
    ],
)
def test_refusals(forward, reason):
    class Module(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(InputError, match=r"Module") as caught:
        from_torch(Module(), (torch.zeros(2, 3, 3),))
    assert reason in str(caught.value)


def test_what_is_no_module_is_refused():
    with pytest.raises(InputError, match=r"expected a torch\.nn\.Module, found function"):
        from_torch(built, (torch.zeros(1),), name="m")


def test_layers_that_are_the_same_are_found():
    module = nn.Sequential(*(Residual(mlp()) for _ in range(6)))
    chain = from_torch(module, (torch.zeros(2, 8, 16),)).chain(2, 1)
    assert len(chain.layers) <= 4
    assert len(chain.index) >= 6


class HalfOnCpu(nn.Module):
    """A module that makes a weight and a table on the CPU, whatever device it is built on."""

    def __init__(self):
        super().__init__()
        self.mask = nn.Parameter(torch.Tensor(16).uniform_())
        self.inner = nn.Linear(16, 16)

    def forward(self, x):
        return self.inner(x + self.mask) * torch.tensor([1.0] * 16, device="cpu")


def test_a_module_that_lies_in_part_on_the_cpu():
    with torch.device("meta"):
        module = HalfOnCpu()
    one, other = (from_torch(m, (torch.zeros(2, 16),), name="m") for m in (module, HalfOnCpu()))
    kinds = [[(op.name, op.kind) for op in w.operator_graph(3).operators] for w in (one, other)]
    assert kinds[0] == kinds[1]
    assert {p.device.type for p in module.parameters()} == {"cpu", "meta"}  # left as it was


class PartlyTurned(nn.Module):
    """A rotation of the first elements of a head, which may be all of them."""

    def __init__(self, turned):
        super().__init__()
        self.inner, self.turned = nn.Linear(16, 16), turned

    def forward(self, x):
        y = self.inner(x)
        first, rest = y[..., : self.turned], y[..., self.turned :]
        return torch.cat((first * 2, rest + 1), -1)


@pytest.mark.parametrize("turned", [8, 16])
def test_tensors_without_elements_are_left_out(turned):
    graph = from_torch(PartlyTurned(turned), (torch.zeros(2, 16),)).operator_graph(3)
    steps = [graph.tensors[op.outputs[0]].shape for op in graph.operators if op.kind is OpKind.ELEMENTWISE]
    assert steps == [(3, 16), (3, turned)] + [(3, 16 - turned)] * (turned < 16)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return torch.cond(x.sum() > 0, self.one.forward, lambda y: self.other(y).relu(), (x,))


def test_the_branch_of_a_condition_is_said(capfd):
    x = (torch.zeros(2, 8),)
    with pytest.raises(InputError, match="say which with branch=True or branch=False"):
        from_torch(Branching(), x)
    for branch, expected in ((True, ["one.weight"]), (False, ["other.weight"])):
        with pytest.warns(Remark, match="1 of 2 parameters"):
            workload = from_torch(Branching(), x, branch=branch)
        assert [t.name for t in workload.operator_graph(2).parameters()] == expected
    assert capfd.readouterr() == ("", "")


class Deciding(nn.Module):
    def forward(self, x):
        return x.relu() if x.sum() > 0 else x


def test_what_depends_on_content_is_one_sentence_and_nothing_before_it(capfd):
    told = r"not a fixed graph \(in forward, line \d+ of test_exported_torch\.py\)$"
    with pytest.raises(InputError, match=f"depends on the content of tensors, so it is {told}"):
        from_torch(Deciding(), (torch.zeros(2, 8),))
    assert capfd.readouterr() == ("", "")


def test_what_an_if_on_content_takes_is_said():
    for branch, expected in ((True, ["relu", "tanh"]), (False, ["tanh"])):
        with pytest.warns(Remark, match=rf"as {branch} \(in forward, line \d+ of test_exported_torch.py\)"):
            module = nn.Sequential(Deciding(), nn.Tanh())
            workload = from_torch(module, (torch.zeros(2, 8),), branch=branch, mode=Mode.PREFILL)
        steps = [op.attributes["function"] for op in workload.operator_graph(2).operators]
        assert steps == expected


class Routed(nn.Module):
    """Rows sorted by the expert that they go to, split by how many go there (as JetMoE has it)."""

    def __init__(self, experts, use=lambda loads: loads):
        super().__init__()
        self.router = nn.Linear(16, experts)
        self.weight, self.use = nn.Parameter(torch.zeros(experts, 24, 16)), use

    def forward(self, x):
        rows = x.flatten(0, 1)
        scores = self.router(rows)
        chosen = scores.argmax(-1)
        loads = self.use(nn.functional.one_hot(chosen, len(self.weight)).sum(0).tolist())
        parts = rows[chosen.argsort()].split(loads)
        found = torch.cat([nn.functional.linear(p, w) for p, w in zip(parts, self.weight, strict=True)])
        return (found * scores.amax(-1, keepdim=True)).view(x.shape[0], -1, 24)


def test_loads_of_experts_are_balanced():
    with pytest.warns(Remark, match=r"loads as balanced \(in forward, line \d+"):
        workload = from_torch(Routed(4), (torch.zeros(2, 8, 16),), mode=Mode.PREFILL)
    graph = workload.operator_graph(3)
    rows = [graph.tensors[op.outputs[0]].shape for op in graph.operators if op.kind is OpKind.MATMUL]
    assert rows == [(3, 8, 4), *[(6, 24)] * 4]
    assert workload.chain(3, 1).model_flops == 2 * 24 * 16 * (4 + 24)


@pytest.mark.parametrize("use", [lambda loads: [n + 1 for n in loads], lambda loads: [max(loads)] * 4])
def test_counts_are_nothing_to_reckon_with(use):
    with pytest.raises(InputError, match=r"depend.* on the content of tensors"):
        from_torch(Routed(4, use), (torch.zeros(2, 8, 16),))


class Choosing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x[x.sum(1) > 0])


def test_sizes_that_depend_on_content_name_what_makes_them(capfd):
    with pytest.raises(InputError, match=r"sizes depend on the content of tensors, .*aten\.index\.Tensor"):
        from_torch(Choosing(), (torch.zeros(2, 8),))
    assert capfd.readouterr() == ("", "")


class Casting(nn.Module):
    """Asks for a mode of arithmetic on the device that its input lies on."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return self.inner(x.float())


def test_a_mode_of_arithmetic_that_nothing_without_memory_has():
    with torch.device("meta"):
        module = Casting()
    one, other = (from_torch(m, (torch.zeros(2, 8),), name="m") for m in (module, Casting()))
    kinds = [[(op.name, op.kind) for op in w.operator_graph(3).operators] for w in (one, other)]
    assert kinds[0] == kinds[1]


def test_a_batch_that_is_not_the_first_axis_is_said():
    """A recurrent layer of (tokens, batch, width), as torch has it unless told otherwise."""
    module, other = nn.LSTM(8, 8), nn.LSTM(8, 8, batch_first=True)
    one = from_torch(module, (torch.zeros(5, 2, 8),), batch_axes={0: 1})
    two = from_torch(other, (torch.zeros(2, 5, 8),))
    assert one.operator_graph(7).tensors[one.operator_graph(7).inputs[0]].shape == (5, 7, 8)
    assert one.chain(7, 1).model_flops == two.chain(7, 1).model_flops
    named = from_torch(module, example_keywords={"input": torch.zeros(5, 2, 8)}, batch_axes={"input": 1})
    assert named.chain(7, 1).model_flops == two.chain(7, 1).model_flops


class Turned(nn.Module):
    """Rotated by angles of positions that all samples share."""

    def __init__(self, stored):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        if stored:
            self.register_buffer("at", torch.arange(5.0))

    def forward(self, x, at=None):
        angles = torch.outer(self.at if at is None else at, torch.arange(8.0))
        return self.inner(x) * angles.cos() + x * angles.sin()


def test_an_input_that_all_samples_share_is_like_a_stored_table():
    x = torch.zeros(2, 5, 8)
    shared = from_torch(Turned(False), (x,), {"at": torch.zeros(5)}, batch_axes={"at": None})
    stored = from_torch(Turned(True), (x,))
    for batch in (1, 3):
        one, two = shared.chain(batch, 1), stored.chain(batch, 1)
        assert [layer.forward for layer in one.layers] == [layer.forward for layer in two.layers]
        assert (one.index, one.model_flops) == (two.index, two.model_flops)
    with pytest.raises(InputError, match="cannot record it at batch"):
        from_torch(Turned(False), (x,), {"at": torch.zeros(5)})


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, pair, beside):
        return self.inner(pair[0] + pair[1] + beside["more"])


def test_inputs_may_be_lists_and_dicts():
    x = torch.zeros(2, 8)
    graph = from_torch(Nested(), ([x, x], {"more": x})).operator_graph(5)
    assert [graph.tensors[t].shape for t in graph.inputs[:3]] == [(5, 8)] * 3
