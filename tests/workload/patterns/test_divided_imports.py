"""Recorded models are their families also where tensors, tokens or experts are divided over devices."""

import pytest

import phaze
from phaze import from_torch
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.sharding.shard_roles import Shard, shard_of
from phaze.workload.workload_loader import LoadOptions, workload_of

torch = pytest.importorskip("torch")
import transformer_modules as modules  # noqa: E402

IDS = torch.zeros((2, modules.TOKENS), dtype=torch.long)
MODELS = {
    "llama": ("decoder", modules.LLAMA, modules.Llama, (IDS,)),
    "gpt2": ("decoder", modules.GPT2, modules.Gpt2, (IDS,)),
    "bert": ("encoder", modules.BERT, modules.Bert, (IDS, IDS)),
    "vit": ("vit", modules.VIT, modules.Vit, (torch.zeros(2, 3, modules.IMAGE, modules.IMAGE),)),
    "mixtral": ("decoder", modules.MIXTRAL, modules.Mixtral, (IDS,)),
    "t5": ("encoder-decoder", modules.T5, modules.T5Model, (IDS, IDS)),
}


@pytest.fixture(scope="module")
def pairs():
    """Each model as recorded and as a family, made once."""
    made = {}

    def pair(name):
        if name not in made:
            kind, dimensions, module, inputs = MODELS[name]
            content = {"schema_version": 1, "name": name, "family": kind, "source": {"dimensions": "a test"}}
            if kind != "vit":
                content["sequence_length"] = modules.TOKENS
            family = workload_of(content | {"dimensions": dimensions}, "test", LoadOptions())
            made[name] = from_torch(module(), inputs, name=name), family
        return made[name]

    return pair


def layers(workload, sharding, microbatch=4):
    """Every layer's memory, products, attention and collectives."""
    chain = workload.chain(microbatch, sharding)
    return [
        (
            *(each.parameters, each.expert_parameters, each.saved_bytes, each.input_bytes, each.output_bytes),
            *(
                sorted((w.kind, w.unit, w.macs, w.vector_cycles, w.moved_bytes, w.rows) for w in half.works)
                for half in (each.forward, each.backward)
            ),
        )
        for each in (chain.layers[i] for i in chain.index)
    ]


WAYS = {
    "whole": Sharding(1),
    "tensor": Sharding(2),
    "more than heads of keys": Sharding(4),
    "sequence": Sharding(2, sequence=True),
    "context": Sharding(1, context=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "vit"])
def test_every_layer_is_that_of_the_family(name, way, pairs):
    recorded, family = pairs(name)
    assert layers(recorded, WAYS[way]) == layers(family, WAYS[way])


@pytest.mark.parametrize("name", MODELS)
def test_the_same_widths_are_offered(name, pairs):
    recorded, family = pairs(name)
    for offer in ("tensor_parallel_widths", "tensor_parallel_divisors", "expert_parallel_divisors"):
        assert getattr(recorded, offer)(8) == getattr(family, offer)(8)


def total(workload, sharding):
    """Products and attention of both passes, collectives by kind, and memory, of the whole model."""
    chain = workload.chain(4, sharding)
    all_layers = [chain.layers[i] for i in chain.index]
    works = [w for each in all_layers for half in (each.forward, each.backward) for w in half.works]
    kinds = sorted((w.kind, w.macs, w.moved_bytes, w.rows) for w in works if w.macs or "all" in str(w.kind))
    return (
        kinds,
        sum(each.parameters for each in all_layers),
        sum(each.expert_parameters for each in all_layers),
    )


@pytest.mark.parametrize(
    "sharding", [Sharding(1), Sharding(2), Sharding(1, expert=4), Sharding(2, expert=2)], ids=str
)
def test_experts_are_those_of_the_family(sharding, pairs):
    """The router, too: its program weighs in three steps what the family takes for one."""
    recorded, family = pairs("mixtral")
    assert layers(recorded, sharding) == layers(family, sharding)
    kinds = {op.kind for op in recorded.operator_graph(4).operators}
    assert {OpKind.DISPATCH, OpKind.COMBINE} <= kinds


@pytest.mark.parametrize("sharding", [Sharding(1), Sharding(2)], ids=str)
def test_an_encoder_decoder_has_the_products_of_the_family(sharding, pairs):
    """A family sends source and target side by side; a program looks them up one after the other."""
    recorded, family = pairs("t5")
    (one, *_), (other, *_) = (total(workload, sharding) for workload in (recorded, family))
    products = [sorted((kind, macs, rows) for kind, macs, _, rows in some if macs) for some in (one, other)]
    assert products[0] == products[1]
    moved = [sum(w[2] for w in some) for some in (one, other)]
    assert moved[0] == pytest.approx(moved[1], rel=0.01)
    assert recorded.parameter_count == family.parameter_count
    assert len(recorded.chain(4, 1).index) > 2 * modules.LAYERS


@pytest.mark.parametrize("name", MODELS)
def test_shards_of_all_devices_make_up_the_whole(name, pairs):
    """Each product with a role is half as large on one of two devices, the others are whole."""
    recorded, _ = pairs(name)
    roles = {op.name: shard_of(op) for op in recorded.operator_graph(2).operators}
    whole, half = recorded.chain(2, 1), recorded.chain(2, 2)
    divided = 0
    for one, part in zip(whole.layers, half.layers, strict=True):
        macs = [
            {w.name.split("+")[0]: w.macs for w in layer.forward.works if w.macs} for layer in (one, part)
        ]
        assert macs[0].keys() == macs[1].keys()
        for product, count in macs[0].items():
            assert macs[1][product] in {count, count / 2}
            divided += macs[1][product] < count
    some = {Shard.COLUMN, Shard.ROW, Shard.HEADS, Shard.VOCAB}
    assert divided and some & set(roles.values())


@pytest.mark.parametrize(
    ("name", "degrees"),
    [("llama", {}), ("llama", {"tensor_parallel": 2}), ("mixtral", {"expert_parallel": 2})],
    ids=str,
)
def test_the_same_plan_is_best(name, degrees, pairs):
    """Checked, as all plans are."""
    one, other = (
        phaze.plan("h100", workload, devices=4, global_batch=64, **degrees).best for workload in pairs(name)
    )
    plans = [each.strategy.model_dump(exclude={"stages"}) for each in (one, other)]
    assert plans[0] == plans[1]
    assert one.iteration_time_s == pytest.approx(other.iteration_time_s, rel=0.01)


class SharedGate(torch.nn.Module):
    """A half beside experts that one number for each token weighs, as in Qwen2-MoE."""

    def __init__(self):
        super().__init__()
        self.inner, self.gate = modules.GatedHalf(), torch.nn.Linear(modules.WIDTH, 1, bias=False)

    def forward(self, x):
        return torch.sigmoid(self.gate(x)) * self.inner(x) + x


def test_a_weight_for_each_token_is_not_divided():
    graph = from_torch(SharedGate(), (torch.zeros(2, 8, modules.WIDTH),)).operator_graph(2)
    roles = {op.name: shard_of(op) for op in graph.operators if op.kind is OpKind.MATMUL}
    assert set(roles.values()) == {Shard.NONE, Shard.COLUMN, Shard.ROW}
    assert roles["gate"] is Shard.NONE


class WithConstants(torch.nn.Module):
    """A product with a stored matrix, beside a half that is divided."""

    def __init__(self):
        super().__init__()
        self.half_, self.table = modules.GatedHalf(), torch.nn.Embedding(500, modules.WIDTH)
        self.register_buffer("mixing", torch.zeros(modules.WIDTH, modules.WIDTH))

    def forward(self, tokens):
        x = self.table(tokens)
        return self.half_(x @ self.mixing) + x


def test_products_with_constants_stand_beside_what_is_divided():
    workload = from_torch(WithConstants(), (IDS,))
    for sharding in (Sharding(2), Sharding(2, sequence=True)):
        assert workload.chain(2, sharding).model_flops == workload.chain(2, 1).model_flops
