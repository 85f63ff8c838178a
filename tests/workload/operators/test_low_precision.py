"""Linear layers in 8 and 4 bits: which products run so, their operands, and what scaling moves."""

import pytest

from phaze.workload.operators.low_precision import Recipe
from phaze.workload.work import Format, Traffic
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
