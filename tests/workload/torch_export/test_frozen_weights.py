"""Weights that are not trained, and gradients that are stopped: against what autograd makes of the same modules."""

import pytest

from phaze import from_torch
from phaze.errors import InputError, Remark
from phaze.workload.training.backward_pass import differentiable
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

torch = pytest.importorskip("torch")
nn = torch.nn
FlopCounterMode = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode
BATCH, WIDTH, RANK = 3, 16, 2


class Adapted(nn.Module):
    """A frozen product and a trained one of low rank beside it (LoRA, arXiv 2106.09685)."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class WithoutGradient(nn.Module):
    def __init__(self, stop):
        super().__init__()
        self.first, self.second, self.head = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.stop = stop

    def forward(self, x):
        if self.stop == "detach":
            return self.head(self.second(self.first(x)).detach())
        with torch.no_grad():
            y = self.second(self.first(x).clone())
        return self.head(y + self.first(x) if self.stop == "beside" else y)


class PartWithoutGradient(nn.Module):
    """Half of a tensor is overwritten, under `no_grad`, then half of another one with a gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        with torch.no_grad():
            y = self.first(x).clone()
            y[:, :8] = self.second(x)[:, :8]
        z = self.head(y).clone()
        z[:, 4:8] = torch.tanh(z[:, :4])
        return z


class Tied(nn.Module):
    """One table at both ends."""

    def __init__(self, *, trained):
        super().__init__()
        self.table = nn.Embedding(100, WIDTH).requires_grad_(trained)
        self.middle, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 100, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.middle(self.table(x)))


def frozen_below():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4)))
    model[:2].requires_grad_(False)
    return model


def adapted():
    return nn.Sequential(Adapted(), nn.GELU(), Adapted())


MODELS = {
    "adapted": adapted,
    "frozen below": frozen_below,
    "detach": lambda: WithoutGradient("detach"),
    "no_grad": lambda: WithoutGradient("no_grad"),
    "beside": lambda: WithoutGradient("beside"),
    "part": PartWithoutGradient,
    "slopes": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU(), nn.Linear(WIDTH, WIDTH)),
}


@pytest.fixture(params=MODELS)
def module(request):
    return MODELS[request.param]()


def test_gradients_flow_where_autograd_makes_some(module):
    x = torch.randn(BATCH, WIDTH)
    with FlopCounterMode(display=False) as counter:
        module(x).sum().backward()
    workload = from_torch(module, (x,), name="m")
    graph = workload.operator_graph(BATCH)
    flows = differentiable(graph)
    theirs = {name for name, p in module.named_parameters() if p.grad is not None}
    assert {t.name for t in graph.parameters() if t.name in flows} == theirs
    chain = workload.chain(BATCH, 1)
    assert chain.model_flops == counter.get_total_flops()
    trained = sum(p.numel() for p in module.parameters() if p.grad is not None)
    every = sum(p.numel() for p in module.parameters())
    assert (chain.parameters, workload.parameter_count) == (trained, every)
    assert sum(chain.layers[i].frozen_weight_bytes for i in chain.index) == 2 * (every - trained)


def test_a_file_says_the_same_as_the_module(module, tmp_path):
    x = torch.randn(BATCH, WIDTH)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    torch.export.save(program, tmp_path / "m.pt2")
    saved, recorded = load_workload(str(tmp_path / "m.pt2")), from_torch(module, (x,), name="m")
    assert saved.chain(BATCH, 1) == recorded.chain(BATCH, 1)


@pytest.mark.parametrize("trained", [True, False])
def test_a_tied_table_is_kept_once_trained_or_not(trained):
    ids = torch.zeros((1, 4), dtype=torch.long)
    chain = from_torch(Tied(trained=trained), (ids,), name="m").chain(BATCH, 1)
    apart, once = ([c.layers[i] for i in c.index] for c in (chain, chain.joined))
    own, table = WIDTH * WIDTH + WIDTH, 100 * WIDTH
    assert sum(layer.parameters for layer in apart) == own + trained * 2 * table
    assert sum(layer.parameters for layer in once) == own + trained * table
    assert sum(layer.frozen_weight_bytes for layer in apart) == (not trained) * 2 * 2 * table
    assert sum(layer.frozen_weight_bytes for layer in once) == (not trained) * 2 * table


def test_nothing_is_kept_and_nothing_runs_back_below_the_first_trained_operator():
    chain = from_torch(frozen_below(), (torch.randn(BATCH, WIDTH),), name="m").chain(BATCH, 1)
    works = {n: chain.layers[i].backward.works for n, i in zip(chain.names, chain.index, strict=True)}
    kept = {n: chain.layers[i].saved_bytes for n, i in zip(chain.names, chain.index, strict=True)}
    assert [bool(works[name]) for name in ("0", "1", "2", "3")] == [False, False, True, True]
    assert [bool(kept[name]) for name in ("0", "1", "2")] == [False, False, True]


def test_adapters_keep_what_their_own_gradients_need():
    frozen, whole = adapted(), adapted().requires_grad_()
    kept = [
        sum(chain.layers[i].saved_bytes for i in chain.index)
        for chain in (
            from_torch(m, (torch.randn(BATCH, WIDTH),), name="m").chain(BATCH, 1) for m in (frozen, whole)
        )
    ]
    assert kept[0] == kept[1]  # the adapters read what the frozen products read


def test_a_model_with_nothing_to_train_is_one_forward_pass():
    model = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
    with pytest.warns(Remark, match="nothing in it can be trained, so this is one forward pass"):
        workload = from_torch(model, (torch.zeros(2, WIDTH),), name="m")
    assert workload.mode is Mode.PREFILL
    assert workload.chain(2, 1).layers[0].backward is None


def test_no_program_is_priced_as_one_token():
    with pytest.raises(
        InputError, match="m: no key-value cache can be derived, for its attention is not causal"
    ):
        from_torch(nn.Linear(4, 4), (torch.zeros(2, 4),), name="m", mode=Mode.DECODE)


class TwoTowers(nn.Module):
    def __init__(self, text, image):
        super().__init__()
        self.text = nn.Sequential(nn.Linear(WIDTH, text), nn.ReLU(), nn.Linear(text, WIDTH))
        self.image = nn.Sequential(nn.Linear(WIDTH, image), nn.ReLU(), nn.Linear(image, WIDTH))

    def forward(self, text, image=None):
        return self.text(text) if image is None else self.text(text) + self.image(image)


def test_parameters_that_inputs_do_not_reach_are_named():
    x = torch.zeros(2, WIDTH)
    left = 2 * WIDTH * 4 + 4 + WIDTH
    with pytest.warns(Remark, match=rf"m: 4 of 8 parameters \({left} of [\d,]+ numbers\) .*: image \(4\);"):
        from_torch(TwoTowers(8, 4), (x,), name="m")
    with pytest.raises(InputError, match=r"4 of 8 parameters .*: image \(4\); give all inputs of the model"):
        from_torch(TwoTowers(4, 8), (x,), name="m")
    from_torch(TwoTowers(4, 8), (x, x), name="m")


def test_tied_weights_of_a_file_are_one_parameter_that_is_reached(tmp_path, recwarn):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            return self.head(self.table(tokens))

    shapes = ({0: torch.export.Dim("batch", min=2)},)
    program = torch.export.export(Tied(), (torch.zeros(2, 6, dtype=torch.long),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "tied.pt2")
    assert load_workload(str(tmp_path / "tied.pt2")).parameter_count == 50 * 8
    assert not [w for w in recwarn if issubclass(w.category, Remark)]


class WithAuxiliaryHead(nn.Module):
    def __init__(self, random=False):
        super().__init__()
        self.body, self.head, self.auxiliary = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.random = random

    def forward(self, x):
        if self.training and self.random and torch.rand(()).item() < 0.5:
            return self.head(x)
        y = self.body(x)
        return (self.head(y), self.auxiliary(y)) if self.training else self.head(y)


@pytest.mark.filterwarnings("ignore::phaze.errors.Remark")
@pytest.mark.parametrize("was", [True, False])
def test_training_has_the_heads_of_training_and_inference_has_not(was):
    module, x = WithAuxiliaryHead().train(was), torch.zeros(2, WIDTH)
    losses = {
        mode: from_torch(module, (x,), name="m", mode=mode).operator_graph(2).outputs
        for mode in (Mode.TRAINING, Mode.PREFILL)
    }
    assert losses == {Mode.TRAINING: ("loss", "loss2"), Mode.PREFILL: ("head.add_bias",)}
    assert module.training is module.head.training is was


def test_a_module_that_cannot_be_recorded_in_training_is_taken_as_it_is():
    module = WithAuxiliaryHead(random=True).eval()
    with pytest.warns(
        Remark, match="recorded as in evaluation, for as in training: m: what it computes depends"
    ):
        from_torch(module, (torch.zeros(2, WIDTH),), name="m")


class Named(nn.Module):
    """Hands out states and a cache beside its logits, as models of transformers do."""

    def __init__(self, names):
        super().__init__()
        self.body, self.head, self.names = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5), names

    def forward(self, x):
        y = self.body(x)
        return dict(zip(self.names, (self.head(y), (y, y + 1)), strict=True))


@pytest.mark.parametrize(
    ("names", "losses"),
    [
        (("logits", "hidden_states"), 1),
        (("logits", "past_key_values"), 1),
        (("logits", "boxes"), 3),
        (("last_hidden_state", "attentions"), 3),
    ],
)
def test_what_is_handed_out_beside_logits_has_no_loss(names, losses, tmp_path):
    module, x = Named(names), torch.zeros(2, WIDTH)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    torch.export.save(program, tmp_path / "m.pt2")
    for workload in (from_torch(module, (x,), name="m"), load_workload(str(tmp_path / "m.pt2"))):
        assert len([t for t in workload.operator_graph(2).outputs if t.startswith("loss")]) == losses


def test_images_that_are_taken_apart_and_put_together_again_are_a_view():
    class OneByOne(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return torch.stack(self.body(x).unbind(0)).relu()

    operators = from_torch(OneByOne(), (torch.zeros(2, 3, WIDTH),), name="m").operator_graph(5).operators
    assert [op.kind.value for op in operators] == ["matmul", "elementwise", "view", "elementwise", "loss"]
