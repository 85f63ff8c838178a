"""Recorded transformers have the operators, bytes, saved activations and layers of the family that describes them."""

import pytest

import phaze
from phaze import from_torch
from phaze.errors import InputError
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import block_of
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import LoadOptions, load_workload, workload_of
from phaze.workload.workload_overview import overview

torch = pytest.importorskip("torch")
from transformer_modules import (  # noqa: E402
    GPT2,
    LLAMA,
    TOKENS,
    Gpt2,
    LayerNorm,
    Llama,
    gelu_new,
    rotation,
)

nn, F = torch.nn, torch.nn.functional
IDS = torch.zeros((2, TOKENS), dtype=torch.long)


def family(dimensions, **options):
    content = {"schema_version": 1, "name": "family", "family": "decoder", "source": {"dimensions": "a test"}}
    return workload_of(
        content | {"sequence_length": TOKENS, "dimensions": dimensions}, "test", LoadOptions(**options)
    )


def figures(workload, microbatch=3):
    """All that is known of a workload but names: totals by kind, and every layer's memory and passes."""
    whole, chain = overview(workload, microbatch), workload.chain(microbatch, 1)
    layers = [
        (
            each.parameters,
            each.saved_bytes,
            each.input_bytes,
            each.output_bytes,
            *(
                sorted(
                    (w.kind, w.unit, w.macs, w.vector_cycles, w.moved_bytes, w.rows, w.flash)
                    for w in half.works
                )
                for half in (each.forward, each.backward)
                if half is not None
            ),
        )
        for each in (chain.layers[i] for i in chain.index)
    ]
    return whole.operator_kinds, layers


@pytest.fixture(scope="module")
def llama():
    return figures(family(LLAMA))


@pytest.mark.parametrize("form", ["turned", "neighbours", "halves", "complex"])
def test_a_llama_with_any_form_of_rotation_is_the_family(form, llama):
    assert figures(from_torch(Llama(form), (IDS,))) == llama


def test_rotation_in_part_leaves_one_product_for_queries_keys_and_values():
    graph = from_torch(Llama("in part"), (IDS,)).operator_graph(3)
    assert sum(op.kind is OpKind.MATMUL for op in graph.operators) == 2 * 4 + 1
    turned = [op for op in graph.operators if op.attributes.get("function") == "rope"]
    assert {graph.tensors[op.inputs[0]].shape[-1] for op in turned} == {8}


class Encoder(nn.Module):
    """Attention with a mask of constants that compares positions with each other, or with a number."""

    def __init__(self, causal):
        super().__init__()
        self.qkv, self.causal = nn.Linear(16, 48), causal

    def forward(self, x):
        places = torch.arange(x.shape[1])
        other = places[None] if self.causal else 0
        mask = (places[:, None] >= other).expand(x.shape[1], x.shape[1])
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("causal", [True, False])
def test_a_mask_of_constants_is_causal_where_positions_are_compared(causal):
    operators = from_torch(Encoder(causal), (torch.zeros(2, 6, 16),)).operator_graph(2).operators
    (kernel,) = (op for op in operators if op.kind is OpKind.ATTENTION)
    assert kernel.attributes["causal"] is causal


@pytest.mark.parametrize("attention", ["matmul", "batched"])
def test_attention_written_out_is_the_kernel(attention, llama):
    assert figures(from_torch(Llama(attention=attention), (IDS,))) == llama


@pytest.mark.parametrize("norm", ["divided", "plus one"])
def test_norms_written_out_are_norms(norm, llama):
    assert figures(from_torch(Llama(norm=norm), (IDS,))) == llama


@pytest.mark.parametrize("norm", [nn.LayerNorm, LayerNorm])
def test_a_gpt2_is_the_family(norm):
    assert figures(from_torch(Gpt2(norm), (IDS,))) == figures(family(GPT2))


def test_files_are_recognised_as_well(tmp_path, llama):
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    for program in (
        exported := torch.export.export(Llama(), (IDS,), dynamic_shapes=shapes),
        exported.run_decompositions({}),
    ):
        torch.export.save(program, tmp_path / "llama.pt2")
        assert figures(load_workload(str(tmp_path / "llama.pt2"))) == llama


def test_attention_stays_written_out_on_demand(tmp_path):
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    program = torch.export.export(Llama(attention="matmul"), (IDS,), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "llama.pt2")
    for attention, kind in ((Attention.FLASH, OpKind.ATTENTION), (Attention.UNFUSED, OpKind.SOFTMAX)):
        workload = load_workload(str(tmp_path / "llama.pt2"), attention=attention)
        kinds = {op.kind for op in workload.operator_graph(2).operators}
        assert kinds & {OpKind.ATTENTION, OpKind.SOFTMAX} == {kind}


def test_an_iteration_takes_as_long_as_that_of_the_family(tmp_path):
    """From a file of weights that were never allocated."""
    with torch.device("meta"):
        ids, shapes = torch.zeros((2, TOKENS), dtype=torch.long), ({0: torch.export.Dim("batch", min=2)},)
        program = torch.export.export(Llama(), (ids,), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "llama.pt2")
    options = {"arch": "h100", "devices": 4, "global_batch": 64, "tensor_parallel": 1, "pipeline_parallel": 2}
    times = [
        phaze.evaluate(workload=w, **options).result.iteration_time_s
        for w in (load_workload(str(tmp_path / "llama.pt2")), family(LLAMA))
    ]
    assert times[0] == pytest.approx(times[1], rel=0.01)


def test_layers_belong_to_blocks_by_their_names():
    chain = from_torch(Llama(), (IDS,)).chain(2, 1)
    assert list(dict.fromkeys(map(block_of, chain.names))) == [
        *("embed_tokens", "layers.0", "layers.1", "norm", "lm_head", "loss")
    ]
    assert [
        block_of(name) for name in ("block7.mlp", "/model/layers.3/mlp/Mul_output_0", "0.inner", "7")
    ] == [*("block7", "/model/layers.3", "0", "7")]


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("encoder.block7.mlp", "encoder.block7"),
        ("decoder.layer3", "decoder.layer3"),
        ("image.embedding.patches", "image"),
        ("features.dense2.layer4.conv1", "features.dense2"),
        ("conv1.bn2", "conv1"),
        ("layer1.0.conv2", "layer1.0"),
    ],
)
def test_blocks_inside_towers(name, block):
    assert block_of(name) == block


@pytest.mark.parametrize(("model", "inside"), [("t5-11b", 48), ("clip-vit-b32", 24), ("gnmt8", 16)])
def test_towers_have_their_blocks(model, inside):
    chain = load_workload(model).chain(1, 1)
    blocks = {block_of(name) for name in chain.names}
    assert sum("." in block for block in blocks) == inside


@pytest.mark.parametrize("cache", KvCache)
@pytest.mark.parametrize("tokens", [TOKENS, 64])  # as many as the model is wide
def test_one_token_more_is_that_of_the_family(cache, tokens, tmp_path):
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    ids = torch.zeros((2, tokens), dtype=torch.long)
    torch.export.save(torch.export.export(Llama(), (ids,), dynamic_shapes=shapes), tmp_path / "m.pt2")
    options = {"mode": Mode.DECODE, "context": 24, "kv_cache": cache}
    if cache is KvCache.PAGED:
        options["kv_cache_format"] = CacheFormat.FP8
    one, other = load_workload(str(tmp_path / "m.pt2"), **options), family(LLAMA, **options)
    assert figures(one) == figures(other)
    caches = [sum(c.layers[i].cache_bytes for i in c.index) for c in (one.chain(3, 1), other.chain(3, 1))]
    assert caches[0] == caches[1] > 0
    assert (one.context, one.sequence_length, one.global_batch(8)) == (24, 1, other.global_batch(8))


class Pooled(nn.Module):
    def __init__(self, causal=True):
        super().__init__()
        self.table, self.inner, self.causal = nn.Embedding(50, 16), Encoder(causal), causal

    def forward(self, tokens):
        y = self.inner(self.table(tokens))
        return y.mean(1) if self.causal else y


@pytest.mark.parametrize(
    ("causal", "reason"),
    [(True, "mean does not work on each token by itself"), (False, "its attention is not causal")],
)
def test_what_mixes_tokens_cannot_decode(causal, reason):
    with pytest.raises(InputError, match=f"m: no key-value cache can be derived, for {reason}"):
        from_torch(Pooled(causal), (IDS,), name="m", mode=Mode.DECODE)


ACTIVATIONS = {
    "gelu_tanh": [gelu_new, lambda x: x * 0.5 * (1 + torch.tanh(0.79 * x * (1 + 0.0447 * x * x)))],
    "gelu": [
        lambda x: x * 0.5 * (1 + torch.erf(x / 1.414)),
        lambda x: (x * (1 + torch.erf(x / 1.414))) * 0.5,
    ],
    "silu": [lambda x: x * torch.sigmoid(x), lambda x: x * torch.sigmoid(1.702 * x)],
}


@pytest.mark.parametrize(
    ("function", "formula"), [(name, form) for name, forms in ACTIVATIONS.items() for form in forms]
)
def test_activations_written_out_are_one_function(function, formula):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x):
            return self.down(formula(self.up(x)))

    operators = from_torch(Half(), (torch.zeros(2, 8),)).operator_graph(2).operators
    found = [op.attributes["function"] for op in operators if op.kind is OpKind.ELEMENTWISE]
    assert found == ["add", function, "add"]


def kinds(module, *inputs):
    graph = from_torch(module, inputs).operator_graph(3)
    return [(op.kind, op.attributes.get("function")) for op in graph.operators if op.kind is not OpKind.VIEW]


class Mixed(nn.Module):
    """Things that look like a pattern and are none."""

    def __init__(self, form):
        super().__init__()
        self.form, self.a, self.b = form, nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)

    def forward(self, x):
        y, z = self.a(x), self.b(x)
        if self.form == "other gate":
            return y * torch.sigmoid(z)
        if self.form == "other rotation":
            first, second = z.chunk(2, -1)
            return y * 0.3 + torch.cat((-second, first), -1) * 0.7
        if self.form == "read twice":
            return F.silu(y) * z + y
        return y * torch.rsqrt(z.pow(2).mean(-1, keepdim=True))


@pytest.mark.parametrize("form", ["other gate", "other rotation", "read twice", "other norm"])
def test_what_only_looks_like_a_pattern_is_left_as_it_is(form):
    found = kinds(Mixed(form), torch.zeros(2, 4, 16))
    functions = {function for _, function in found}
    assert not functions & {"silu" if form == "other gate" else "", "rope", "rms"}
    assert ("swiglu" in functions) is (form == "read twice")  # of two products, which stay two
    assert sum(kind is OpKind.MATMUL for kind, _ in found) == 2


class ChannelsFirst(nn.Module):
    """Attention of places in an image, its values as (batch, channels, places): they come first in the product."""

    def __init__(self, channels, values):
        super().__init__()
        self.parts = (channels, channels, values)
        self.qkv = nn.Conv2d(24, sum(self.parts), 1)

    def forward(self, x):
        q, k, v = (part.flatten(2) for part in self.qkv(x).split(self.parts, 1))
        weights = (q.transpose(-2, -1) @ k * 0.25).softmax(-1)
        return v @ weights.transpose(-2, -1)


@pytest.mark.parametrize(
    ("size", "channels", "values"), [(4, 16, 16), (4, 16, 68), (5, 16, 16), (5, 16, 25), (5, 25, 16)]
)
def test_attention_with_channels_first_has_the_products_that_it_has(size, channels, values):
    """As many places as channels are no reason to take one for the other."""
    places = size * size
    workload = from_torch(
        ChannelsFirst(channels, values), (torch.zeros(2, 24, size, size),), mode=Mode.PREFILL
    )
    qkv, scores, mixed = 24 * (2 * channels + values), places * channels, places * values
    assert workload.chain(3, 1).model_flops == 2 * 3 * places * (qkv + scores + mixed)
    found = {op.kind for op in workload.operator_graph(3).operators}
    assert (OpKind.ATTENTION in found) is (values == channels)


def test_adapters_keep_their_products_apart():
    """Frozen and trained parameters do not become one."""
    module = Llama()
    module.layers[0]["self_attn"].q_proj.requires_grad_(False)
    graph = from_torch(module, (IDS,)).operator_graph(2)
    joined = [t.name for t in graph.parameters() if "+" in t.name]
    assert [name.split(".")[1] for name in joined if "k_proj" in name] == ["1"]


def test_rotation_is_what_it_says():
    """The forms turn by the same angles, the order of a head's elements aside."""
    x = torch.randn(1, 2, TOKENS, 16)
    pairs = torch.stack(x.chunk(2, -1), -1).flatten(-2)  # halves as neighbours
    apart = [rotation(form, TOKENS, x) for form in ("turned", "halves")]
    torch.testing.assert_close(*apart)
    back = torch.cat(
        (rotation("complex", TOKENS, pairs)[..., ::2], rotation("complex", TOKENS, pairs)[..., 1::2]), -1
    )
    torch.testing.assert_close(back, apart[0], atol=1e-5, rtol=1e-5)
