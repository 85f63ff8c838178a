"""Forms of transformer blocks: products, traffic, sharding and layers against closed forms."""

import pytest
from pydantic import ValidationError

from phaze.errors import InputError
from phaze.workload.families.model_family import Extent
from phaze.workload.fusion_rules import ALL_FUSION, NO_FUSION
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.work import Unit
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import FamilyModel, load_workload


def workload(
    name, attention=Attention.FLASH, *, tokens=None, mode=Mode.TRAINING, fusion=ALL_FUSION, **changes
):
    """A built-in model with as few blocks as show its forms, some dimensions changed."""
    spec = builtin_spec(name)
    fewest = {field: least for field, (least, _) in spec.dimensions.repeats.items()}
    given = spec.dimensions.model_dump(exclude_unset=True) | fewest | changes
    update = {"dimensions": type(spec.dimensions).model_validate(given)}
    if tokens:
        update["sequence_length"] = tokens
    extent = Extent(1, (tokens or spec.sequence_length) or 1)
    model = FamilyModel(name, spec.model_copy(update=update), extent, attention)
    return GraphWorkload(model, mode, fusion=fusion)


def layer(chain, kind):
    return next(x for x in chain.layers if x.kind == kind)


def links(one):
    return [[w.name for w in p.works if w.unit is Unit.LINK] for p in (one.forward, one.backward)]


def works(one):
    return {w.name: w for p in (one.forward, one.backward) for w in p.works}


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize(
    ("name", "products", "scores"),
    [
        # multiply-accumulates per token and block: products with parameters; and per pair of tokens
        ("llama3-8b", 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336, 2 * 4096),
        ("qwen2-7b", 3584 * (2 * 3584 + 2 * 512) + 3 * 3584 * 18944, 2 * 3584),
        ("qwen3-8b", 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 12288, 2 * 4096),
        ("gemma-2b", 2048 * (2 * 2048 + 2 * 256) + 3 * 2048 * 16384, 2 * 2048),
        ("bloom-176b", 12 * 14336**2, 2 * 14336),
        ("palm-540b", 18432 * (2 * 12288 + 2 * 256) + 3 * 18432 * 73728, 2 * 12288),
        (
            "mixtral-8x7b",
            4096 * (2 * 4096 + 2 * 1024) + 4096 * 8 + 2 * 3 * 4096 * 14336,
            2 * 4096,
        ),
    ],
)
def test_model_flops_are_those_of_the_products(name, products, scores, attention):
    tokens = 512
    spec = builtin_spec(name)
    head = spec.dimensions.hidden * spec.dimensions.vocabulary
    expected = 6 * tokens * (products + tokens * scores + head)
    assert workload(name, attention, tokens=tokens).chain(1, 1).model_flops == expected


@pytest.mark.parametrize("attention", Attention)
def test_model_flops_of_latent_attention_and_shared_experts(attention):
    """DeepSeek-V3: three dense blocks and one with experts; keys are 192 wide, values 128."""
    tokens, h, heads = 512, 7168, 128
    latent = h * 1536 + 1536 * heads * 192 + h * (512 + 64) + 512 * heads * 256 + heads * 128 * h
    dense, sparse = 3 * h * 18432, h * 256 + 9 * 3 * h * 2048
    per_token = 4 * (latent + tokens * heads * (192 + 128)) + 3 * dense + sparse + h * 129280
    chain = workload("deepseek-v3", attention, tokens=tokens).chain(1, 1)
    assert chain.model_flops == 6 * tokens * per_token
    assert [x.kind for x in chain.layers[1:4]] == ["block.attention", "block.mlp", "block.experts"]
    assert chain.names[1:9:2] == tuple(f"block{i}.attention" for i in range(4))


REPLICATED = ("q_down", "kv_down", "router", "patches")
"""Products that every device of a tensor-parallel group does in full."""


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize(
    "name", ["bloom-176b", "deepseek-v3", "llama3-8b", "mixtral-8x7b", "qwen3-8b", "t5-v1.1-xxl", "vit-l16"]
)
def test_divided_products_times_the_width_are_the_whole(name, attention):
    model = workload(name, attention, fusion=NO_FUSION)
    for width in (2, 8):
        for one, part in zip(model.chain(1, 1).layers, model.chain(1, width).layers, strict=True):
            whole = works(one)
            for work in works(part).values():
                share = 1 if work.name.startswith(REPLICATED) else width
                assert work.macs * share == (whole[work.name].macs if work.name in whole else 0), work.name
            assert part.model_flops == one.model_flops
            assert (part.input_bytes, part.output_bytes) == (one.input_bytes, one.output_bytes)


def test_halves_side_by_side_need_one_sum_each_way():
    chain = workload("palm-540b").chain(1, 8)
    assert links(layer(chain, "block")) == [["out.reduce"], ["norm.copy.dX"]]
    # 6 query heads and the one key-value head, repeated, of 256; both products of the gated half
    width = 18432 * 256 * (6 + 2) + 6 * 256 * 18432 + 3 * 18432 * 73728 / 8
    assert layer(chain, "block").parameters == width + 18432


def test_latent_vectors_are_whole_and_heads_divided():
    one = layer(workload("deepseek-v3").chain(1, 8), "block.attention")
    forward, backward = links(one)
    assert forward == ["projection.reduce"]
    assert set(backward) == {"q_norm.copy.dX", "kv_norm.copy.dX", "rotate_k.copy.dX"}
    found = works(one)
    size = 2 * 4096
    assert found["rotate_k.copy.dX"].link.payload_bytes == size * 64
    assert found["kv_norm.copy.dX"].link.payload_bytes == size * 512
    scores, mix = found["flash"].gemms
    assert (scores.groups, scores.m, scores.k, scores.n) == (16, 4096, 192, 4096)
    assert (mix.groups, mix.m, mix.k, mix.n) == (16, 4096, 4096, 128)
    assert found["flash"].stream_bytes == size * 16 * (2 * 192 + 2 * 128) + 4 * 16 * 4096


def test_a_window_limits_the_keys():
    """Model FLOPs count what is done: time bounds rest on them."""
    wide, narrow = (
        works(layer(workload("mistral-7b", tokens=8192, window=w).chain(1, 1), "block.attention"))
        for w in (None, 4096)
    )
    assert wide["flash"].macs == 2 * narrow["flash"].macs == 2 * 8192 * 8192 * 4096
    assert wide["flash.dX"].macs == 2 * narrow["flash.dX"].macs
    assert wide["flash"].stream_bytes == narrow["flash"].stream_bytes
    assert wide["flash"].reread_bytes == 2 * narrow["flash"].reread_bytes
    chains = [workload("mistral-7b", tokens=8192, window=w).chain(1, 1) for w in (None, 4096)]
    assert chains[0].model_flops - chains[1].model_flops == 6 * 8192 * 4096 * 2 * 4096
    unfused = workload("mistral-7b", Attention.UNFUSED, tokens=8192).chain(1, 1)
    assert unfused.model_flops == chains[0].model_flops


@pytest.mark.parametrize("attention", Attention)
def test_alibi_costs_one_addition_per_score_and_no_parameter(attention):
    plain, biased = (
        workload("bloom-176b", attention, mode=Mode.PREFILL, positions=p).chain(1, 1)
        for p in ("none", "alibi")
    )
    cycles = [
        sum(w.vector_cycles for w in layer(c, "block.attention").forward.works) for c in (plain, biased)
    ]
    assert cycles[1] - cycles[0] == 112 * 2048 * 2048
    assert plain.parameters == biased.parameters


@pytest.mark.parametrize("attention", Attention)
def test_a_table_of_distances_is_shared_by_the_blocks_of_a_stack(attention):
    chain = workload("t5-11b", attention, layers=3, decoder_layers=2).chain(1, 1)
    kinds = [layer(chain, f"{side}.block.{half}").parameters for side, half in HALVES]
    attend, table, hidden = 4 * 1024 * 16384 + 1024, 32 * 128, 2 * 1024 * 65536 + 1024
    assert kinds == [attend + table, hidden, attend + table, attend, hidden]
    tables = chain.parameters - workload("t5-11b", layers=3, decoder_layers=2).parameter_count
    assert tables == 3 * table + 32128 * 1024  # two blocks more of one stack, one of the other; tied logits


HALVES = (
    ("encoder", "attention"),
    ("encoder", "mlp"),
    ("decoder", "attention"),
    ("decoder", "cross"),
    ("decoder", "mlp"),
)


def test_one_tensor_passes_between_the_layers_of_two_stacks():
    chain = workload("t5-11b", layers=3, decoder_layers=2).chain(2, 1)
    both = 2 * 2 * 1024 * (512 + 114)
    for side, half in HALVES:
        one = layer(chain, f"{side}.block.{half}")
        assert (one.input_bytes, one.output_bytes) == (both, both)
    assert len(chain.layers) == 5 + 5  # embedding, norms of both stacks, logits, loss


def test_what_only_passes_by_is_not_kept():
    """s b h (2 + 2 + mask) beside the wide activation, for the target alone."""
    model = workload("t5-11b", layers=3, decoder_layers=2)
    mlp = layer(model.chain(2, 1), "decoder.block.mlp")
    assert mlp.saved_bytes == 2 * 114 * (1024 * (2 + 2 + 1) + 2 * 65536)
    cross = works(layer(model.chain(2, 1), "decoder.block.cross"))
    assert [(g.groups, g.m, g.n) for g in cross["flash"].gemms] == [(256, 114, 512), (256, 114, 128)]
    assert cross["kv"].gemms[0].m == 2 * 512


def test_norms_of_heads_are_divided_with_them():
    for width in (1, 8):
        one = works(layer(workload("qwen3-8b", fusion=NO_FUSION).chain(1, width), "block.attention"))
        assert one["norm_q"].stream_bytes == 2 * (2 * 4096 * 4096 / width + 128)
        assert one["norm_k"].stream_bytes == 2 * (2 * 4096 * 1024 / width + 128)


@pytest.mark.parametrize(
    ("activation", "gate"), [("gelu", "geglu"), ("gelu_tanh", "geglu_tanh"), ("relu", "reglu")]
)
def test_gates(activation, gate):
    names = works(layer(workload("gemma-2b", activation=activation).chain(1, 1), "block.mlp"))
    assert f"gate_up+{gate}" in names


def test_images_become_patches_and_a_class_token():
    model = workload("vit-l16")
    assert model.sequence_length is None
    assert model.tensor_parallel_widths(8) == (1, 2, 4, 8)
    found = works(layer(model.chain(2, 1), "block.attention"))
    assert found["flash"].macs == 2 * 2 * 197 * 197 * 1024
    patches = works(model.chain(2, 1).layers[0])
    assert patches["patches+add_bias"].macs == 2 * 196 * 3 * 256 * 1024
    assert "patches.dX" not in patches
    pooled = workload("vit-l16", class_token=False)
    assert works(layer(pooled.chain(2, 1), "block.attention"))["flash"].macs == 2 * 2 * 196 * 196 * 1024
    assert model.parameter_count - pooled.parameter_count == 2 * 1024


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit-l16", {"patch": 15}, r"image \(224\) is not a multiple of patch \(15\)"),
        ("vit-l16", {"norm_place": "post"}, "norm_place: post is not known"),
        ("t5-11b", {"positions": "learned"}, "knows neither"),
        ("deepseek-v3", {"kv_heads": 8}, "leave out kv_heads, head_size and qk_norm"),
        ("palm-540b", {"qkv_bias": True}, "parallel goes with none of"),
    ],
)
def test_dimensions_that_contradict_each_other(name, changes, message):
    with pytest.raises(ValidationError, match=message):
        workload(name, **changes)


def test_images_have_no_sequence_length():
    with pytest.raises(InputError, match="samples of family vit have no free length"):
        load_workload("vit-l16", sequence_length=100)
