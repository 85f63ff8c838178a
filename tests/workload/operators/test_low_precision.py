"""Linear layers in 8 and 4 bits: which products run so, their operands, and what scaling moves."""

import pytest

from phaze.errors import InputError
from phaze.workload.operators.kv_cache import CacheFormat
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.work import Format, Traffic
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

TOKENS, HIDDEN, FFN = 8192, 4096, 14336
WIDE = ("flash", "logits", "router", "scores")


def products(workload):
    """(name, product) of every matrix product of a microbatch of one, both passes."""
    layers = workload.chain(1, 1).layers
    passes = [p for layer in layers for p in (layer.forward, layer.backward)]
    return [(w, g) for p in passes for w in p.works for g in w.gemms]


def named(workload, name):
    return next((w, g) for w, g in products(workload) if w.name == name)


@pytest.mark.parametrize("model", ["llama3-8b", "deepseek-v3", "qwen3-30b-a3b"])
def test_attention_router_and_head_keep_their_bits(model):
    for work, gemm in products(load_workload(model, recipe=Recipe.MXFP8)):
        wide = any(part in work.name for part in WIDE)
        assert (gemm.operands is None) == wide, work.name
        assert wide or gemm.traffic is Traffic.TILED


@pytest.mark.parametrize(
    ("recipe", "operands", "element_bytes", "readings"),
    [
        (Recipe.FP8, Format.FP8, 1, 2),
        (Recipe.MXFP8, Format.FP8, 1 + 1 / 32, 1),
        (Recipe.NVFP4, Format.FP4, 0.5625, 3),
    ],
)
def test_operands_of_the_three_products_of_a_layer(recipe, operands, element_bytes, readings):
    narrow, plain = (load_workload("llama3-8b", recipe=r) for r in (recipe, None))
    cases = (("gate_up.dX", 2 * FFN), ("gate_up.dW", 0), ("down+residual", FFN), ("down.dX", HIDDEN))
    for name, read in cases:
        (work, gemm), (before, wide) = named(narrow, name), named(plain, name)
        assert gemm.operands is operands
        assert gemm.a_bytes == pytest.approx(wide.a_bytes / 2 * element_bytes)
        assert gemm.b_bytes == pytest.approx(wide.b_bytes / 2 * element_bytes)
        assert gemm.c_bytes == wide.c_bytes
        scaled = TOKENS * read * (2 * readings + 2 * element_bytes)
        assert work.stream_bytes - before.stream_bytes == pytest.approx(scaled)


def test_without_a_recipe_nothing_changes():
    plain, same = (load_workload("llama3-8b", **more).chain(1, 1) for more in ({}, {"recipe": None}))
    assert plain.layers == same.layers
    narrow = load_workload("llama3-8b", recipe=Recipe.FP8)
    assert narrow.chain(1, 1).index == plain.index
    assert narrow.parameter_count == load_workload("llama3-8b").parameter_count


def test_inference_keeps_linear_weights_in_few_bits():
    plain = load_workload("llama3-8b", Mode.DECODE, context=100).chain(4, 2)
    for recipe in (one for one in Recipe if not one.experts_alone):
        narrow = load_workload("llama3-8b", Mode.DECODE, context=100, recipe=recipe).chain(4, 2)
        less = 0.0
        for i in narrow.index:
            for work, before in zip(
                narrow.layers[i].forward.works, plain.layers[i].forward.works, strict=True
            ):
                for gemm, wide in zip(work.gemms, before.gemms, strict=True):
                    if gemm.b_bytes != wide.b_bytes:
                        assert gemm.b_bytes == pytest.approx(recipe.weight_bytes * wide.b_bytes / 2)
                        assert gemm.operands is recipe.operands
                        assert (gemm.a_bytes == wide.a_bytes) == (recipe.element_bytes is None)
                        less += wide.b_bytes - gemm.b_bytes
        held = sum(narrow.layers[i].scaled_weight_bytes for i in narrow.index)
        assert held == pytest.approx(-less)
        assert narrow.parameters == plain.parameters
        linear = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) / 2
        assert less == pytest.approx((2 - recipe.weight_bytes) * linear)


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_weights_of_gpt_oss_take_what_its_checkpoints_do(name, gib):
    """arXiv 2508.10925, table 1: experts in 4.25 bits a weight, all else in bf16."""
    chain = load_workload(name, Mode.DECODE, context=100, recipe=Recipe.MXFP4_EXPERTS).chain(1, 1)
    layers = [chain.layers[i] for i in chain.index]
    held = sum(2 * layer.parameters + layer.scaled_weight_bytes for layer in layers)
    assert round(held / 2**30, 1) == gib


@pytest.mark.parametrize("recipe", [one for one in Recipe if one.experts_alone])
def test_recipes_of_experts_leave_all_else_as_it_is(recipe):
    plain, narrow = (
        load_workload("gpt-oss-20b", Mode.DECODE, context=100, recipe=r).chain(4, 1) for r in (recipe, None)
    )
    for one, other in zip(plain.layers, narrow.layers, strict=True):
        changed = [
            work.name
            for work, before in zip(one.forward.works, other.forward.works, strict=True)
            if work != before
        ]
        assert set(changed) <= {"up+add_bias+swiglu", "down+add_bias"}
        assert bool(changed) == (one.kind == "block.experts")
    with pytest.raises(InputError, match="is for experts, and the model has none"):
        load_workload("llama3-8b", Mode.DECODE, recipe=recipe).chain(1, 1)


@pytest.mark.parametrize("recipe", [one for one in Recipe if not one.trains])
def test_recipes_of_inference_do_not_train(recipe):
    with pytest.raises(InputError, match="prefill and decode"):
        load_workload("llama3-8b", recipe=recipe)


@pytest.mark.parametrize("recipe", [one for one in Recipe if one.trains])
def test_both_operands_are_as_wide_in_training(recipe):
    """Products of gradients have a weight on either side."""
    assert recipe.element_bytes == pytest.approx(recipe.weight_bytes, rel=0.05)


def test_a_cache_in_8_bits_is_half_as_large_and_read_in_half_the_bytes():
    wide, narrow = (
        load_workload("llama3-8b", Mode.DECODE, context=4095, kv_cache_format=f).chain(8, 1)
        for f in (None, CacheFormat.FP8)
    )
    wide_cache, cache = (sum(c.layers[i].cache_bytes for i in c.index) for c in (wide, narrow))
    assert cache == wide_cache / 2
    moved, less = (
        sum(w.moved_bytes for i in c.index for w in c.layers[i].forward.works) for c in (wide, narrow)
    )
    written = 32 * 8 * 2 * 1024  # keys and values of one token, as they are put away
    assert moved - less == wide_cache / 2 + written
