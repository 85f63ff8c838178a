"""Per-operator recompute, products apart, and gathers of narrow operands."""

import pytest

from phaze.validation.measured.published_models import decoder
from phaze.workload.fusion_rules import NO_FUSION
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Attention

DIMENSIONS = {
    "layers": 2,
    "hidden": 512,
    "heads": 8,
    "kv_heads": 2,
    "ffn_hidden": 1536,
    "vocabulary": 1000,
    "max_positions": 256,
    "activation": "silu",
    "gated": True,
    "norm": "rms",
    "bias": False,
    "positions": "rope",
    "tied_embeddings": False,
}
TOKENS = 256


def llama(joint=False, recipe=None):
    dimensions = {**DIMENSIONS, "joint_products": joint}
    return decoder(dimensions, TOKENS, Attention.FLASH, NO_FUSION, recipe=recipe)


def half(chain, name):
    return next(layer for layer in chain.layers if layer.kind == f"block.{name}")


def names(pass_):
    return [work.name for work in pass_.works]


def test_products_apart_are_the_same_products():
    joint, apart = llama(joint=True), llama()
    assert joint.parameter_count == apart.parameter_count
    assert joint.chain(1, 1).model_flops == apart.chain(1, 1).model_flops


def test_every_second_product_and_all_between_run_again():
    chain = llama().chain(1, 1, selective=True, keeps_products=True)
    again = {
        h: {n for n in names(half(chain, h).backward) if n.endswith(".again")} for h in ("attention", "mlp")
    }
    assert {n for n in again["attention"] if "norm" not in n} == {
        "k.again",
        "rotate_q.again",
        "rotate_k.again",
    }
    assert {n for n in again["mlp"] if "norm" not in n} == {"up.again", "swiglu.again"}


def test_what_is_kept_is_counted_by_hand():
    chain = llama().chain(1, 1, selective=True, keeps_products=True)
    rows, statistics = TOKENS * 2, TOKENS * 8 * 4
    inputs, query, value = rows * 512, rows * 512, rows * 128
    attention = half(chain, "attention").saved_bytes
    assert attention == pytest.approx(inputs + query + value + rows * 512 + statistics, rel=0.01)
    assert half(chain, "mlp").saved_bytes == pytest.approx(rows * 512 + rows * 1536, rel=0.01)


def test_nothing_is_kept_twice_where_nothing_is_recomputed():
    plain, by_operator = (
        llama().chain(1, 1, selective=True, keeps_products=keeps) for keeps in (False, True)
    )
    for name in ("attention", "mlp"):
        assert half(by_operator, name).saved_bytes < half(plain, name).saved_bytes
        assert half(by_operator, name).parameters == half(plain, name).parameters
    assert by_operator.model_flops == plain.model_flops


def links(chain):
    passes = [(layer.kind, p) for layer in chain.layers for p in (layer.forward, layer.backward)]
    return {
        (kind, w.name, w.link.collective): w.link.payload_bytes
        for kind, p in passes
        for w in p.works
        if w.link
    }


def test_gathers_of_scaled_operands_move_half_the_bytes():
    sharding = Sharding(2, sequence=True)
    plain, narrow = (links(llama(recipe=r).chain(1, sharding)) for r in (Recipe.FP8_ROWS, Recipe.FP8_EARLY))
    assert plain.keys() == narrow.keys()
    halved = {name for name in plain if narrow[name] == plain[name] / 2}
    assert {name for name in plain if name not in halved} == {n for n in plain if narrow[n] == plain[n]}
    assert {"norm.gather_tensor", "down.scatter.dX"} <= {
        name for layer, name, _ in halved if layer == "block.mlp"
    }
    assert not any(what == "reduce_scatter" or layer == "head.logits" for layer, _, what in halved)


def test_an_input_is_scaled_once_for_all_its_readers():
    forward = half(llama(recipe=Recipe.FP8).chain(1, 1), "attention").forward
    scaling = {work.name: work.stream_bytes for work in forward.works if work.gemms and work.flash is None}
    assert scaling["q"] > 0
    assert scaling["k"] == scaling["v"] == 0
    assert scaling["projection"] > 0


def test_scaling_before_a_gather_is_a_share_of_the_work():
    sharding = Sharding(2, sequence=True)
    after, before = (
        half(llama(recipe=r).chain(1, sharding), "mlp").forward for r in (Recipe.FP8, Recipe.FP8_EARLY)
    )
    whole, share = (next(w.stream_bytes for w in p.works if w.name == "gate") for p in (after, before))
    assert share == pytest.approx(whole / 2)
