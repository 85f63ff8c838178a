"""Memory, sharding and structure of transformer layers against published formulas."""

from collections import Counter

import pytest

from phaze.workload.fusion_rules import NO_FUSION
from phaze.workload.work import Traffic, Unit
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_file import read_spec
from phaze.workload.workload_library import find_workload
from phaze.workload.workload_loader import load_workload

HALVES = ("block.attention", "block.mlp")


def halves(chain):
    found = [layer for layer in chain.layers if layer.kind in HALVES]
    assert [layer.kind for layer in found] == list(HALVES)
    return found


def dims(name):
    spec = read_spec(find_workload(name))
    return spec.dimensions.hidden, spec.dimensions.heads, spec.sequence_length


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("batch", [1, 4])
def test_saved_bytes_are_korthikantis(batch, width):
    """s b h (10 + 24/t + 5 a s / (h t)), arXiv 2205.05198, table 2 (t = 1: 34 + 5 a s / h)."""
    hidden, heads, s = dims("gpt3")
    chain = load_workload("gpt3", attention=Attention.UNFUSED).chain(batch, width)
    saved = sum(layer.saved_bytes for layer in halves(chain))
    assert saved == s * batch * hidden * (10 + 24 / width) + 5 * heads * s * s * batch / width


@pytest.mark.parametrize("width", [1, 8])
def test_flash_saves_no_score_tensor(width):
    """The same without the s^2 terms; fp32 log-sum-exp per query row instead."""
    hidden, heads, s = dims("gpt3")
    chain = load_workload("gpt3").chain(2, width)
    saved = sum(layer.saved_bytes for layer in halves(chain))
    assert saved == s * 2 * hidden * (10 + 24 / width) + 4 * heads * s * 2 / width


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize("name", ["gpt3", "megatron-gpt2-72", "llama2-7b"])
def test_sharded_products_times_width_are_the_whole(name, attention):
    workload = load_workload(name, attention=attention)
    whole = workload.chain(2, 1)
    for width in (2, 4, 8):
        parts = workload.chain(2, width)
        assert parts.index == whole.index
        assert parts.names == whole.names
        for one, part in zip(whole.layers, parts.layers, strict=True):
            if one.kind == "head.logits" and name == "gpt3":
                continue  # 50257 is padded
            for direction in ("forward", "backward"):
                macs = sum(w.macs for w in getattr(one, direction).works)
                assert sum(w.macs for w in getattr(part, direction).works) * width == macs
            assert part.model_flops == one.model_flops
            assert part.input_bytes == one.input_bytes
            assert part.output_bytes == one.output_bytes


def test_padded_vocabulary():
    head = next(x for x in load_workload("gpt3").chain(1, 8).layers if x.kind == "head.logits")
    assert head.parameters == 6283 * 12288  # ceil(50257 / 8)


@pytest.mark.parametrize("width", [2, 8])
def test_two_all_reduces_forward_and_two_backward_per_block(width):
    """Megatron-LM: b s h elements each (arXiv 1909.08053, section 3)."""
    hidden, _, s = dims("gpt3")
    for layer in halves(load_workload("gpt3").chain(2, width)):
        for works in (layer.forward.works, layer.backward.works):
            links = [w for w in works if w.unit is Unit.LINK]
            assert [(w.link.payload_bytes, w.link.group.size) for w in links] == [(2 * 2 * s * hidden, width)]


def test_one_device_needs_no_link():
    for layer in load_workload("gpt3").chain(1, 1).layers:
        assert not [w for p in (layer.forward, layer.backward) for w in p.works if w.unit is Unit.LINK]


def test_isomorphic_layers_are_found_once():
    chain = load_workload("gpt3").chain(1, 4)
    assert len(chain.index) == 2 * 96 + 4
    kinds = [layer.kind for layer in chain.layers]
    assert kinds == ["embedding", *HALVES, "head.norm", "head.logits", "loss"]
    assert Counter(chain.index) == {0: 1, 1: 96, 2: 96, 3: 1, 4: 1, 5: 1}
    assert chain.names[:3] == ("embedding", "block0.attention", "block0.mlp")
    assert chain.names[-4:] == ("block95.mlp", "head.norm", "head.logits", "loss")


def test_layer_parameters_add_up():
    """The chain counts the tied table at both ends; otherwise the layers' parameters are the model's."""
    workload = load_workload("gpt3")
    assert workload.chain(1, 1).parameters - 50257 * 12288 == workload.parameter_count
    untied = load_workload("llama2-7b")
    assert untied.chain(1, 1).parameters == untied.parameter_count


@pytest.mark.parametrize("name", ["gpt3", "bert-large", "llama2-7b", "opt-350m"])
@pytest.mark.parametrize("attention", Attention)
def test_every_product_has_one_gradient_per_operand(name, attention):
    for layer in load_workload(name, attention=attention, fusion=NO_FUSION).chain(1, 1).layers:
        forward = [w.name for w in layer.forward.works if w.kind == "matmul"]
        backward = [w.name for w in layer.backward.works if w.kind == "matmul"]
        expected = []
        for product in forward:
            ends = ("dA", "dB") if product.split(".")[-1] in ("scores", "mix") else ("dX", "dW")
            expected += [f"{product}.{end}" for end in ends]
        assert sorted(backward) == sorted(expected)


def test_weight_gradients_are_sinks_and_input_gradients_are_not():
    for layer in halves(load_workload("gpt3").chain(1, 8)):
        names = [w.name for w in layer.backward.works]
        before = {i for i, _ in layer.backward.edges}
        for i, name in enumerate(names):
            if name.endswith("dW") and "+" not in name:
                assert i not in before
            elif name in ("qkv.dX", "projection.dX", "up.dX", "flash.dX"):
                assert i in before


def test_flash_recomputes_scores_but_model_flops_do_not_count_it():
    layer = halves(load_workload("gpt3").chain(1, 1))[0]
    forward = next(w for w in layer.forward.works if w.name == "flash")
    backward = next(w for w in layer.backward.works if w.name == "flash.dX")
    assert [g.traffic for g in (*forward.gemms, *backward.gemms)] == [Traffic.FUSED] * 7
    assert backward.macs * 2 == forward.macs * 5
    hidden, _, s = dims("gpt3")
    projections = 4 * s * hidden * hidden
    assert layer.model_flops == 3 * 2 * (projections + forward.macs)
    assert forward.stream_bytes == 4 * 2 * s * hidden + 4 * s * 96


def test_grouped_queries_repeat_key_heads_beyond_their_number(tmp_path):
    text = find_workload("llama2-7b").read_text(encoding="utf-8").replace("kv_heads: 32", "kv_heads: 2")
    path = tmp_path / "gqa.yaml"
    path.write_text(text, encoding="utf-8")
    workload = load_workload(str(path))
    layer = {t: halves(workload.chain(1, t))[0] for t in (1, 2, 8)}
    weights = {t: 4096 * 128 * (2 * 32 // t + 2 * max(1, 2 // t)) + 4096 for t in layer}
    assert {t: x.parameters for t, x in layer.items()} == weights
    unfused = load_workload(str(path), attention=Attention.UNFUSED)
    assert unfused.chain(1, 8).model_flops == workload.chain(1, 8).model_flops


def test_working_bytes_of_a_feed_forward_in_prefill():
    """Alive at the second product: the residual, the wide activation, the result."""
    hidden, _, s = dims("gpt3")
    layer = halves(load_workload("gpt3", Mode.PREFILL).chain(1, 1))[1]
    assert layer.working_bytes == 2 * s * hidden * (1 + 4 + 1)


@pytest.mark.parametrize("attention", Attention)
def test_dropout_vanishes_in_prefill(attention):
    chain = load_workload("gpt3", Mode.PREFILL, attention).chain(1, 2)
    names = [w.name for layer in chain.layers for w in layer.forward.works]
    assert not [name for name in names if "dropout" in name]
    assert "loss" not in chain.names
