"""Fusion rules one by one: arithmetic stays, traffic falls by what is reported, and never rises with more rules."""

from itertools import combinations

import pytest
from hypothesis import example, given, settings
from onnx_tiny import light
from test_graphs import CHOICES, Drawn

from phaze.errors import InputError
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.encoder_families import Encoder
from phaze.workload.families.model_family import Extent
from phaze.workload.fusion_rules import ALL_FUSION, NO_FUSION, Fusion, parse_fusion
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.operator_fusion import fusion_report
from phaze.workload.onnx import load_onnx
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload


def subsets(rules):
    return [frozenset(some) for n in range(len(rules) + 1) for some in combinations(rules, n)]


def arithmetic(chain):
    """Multiply-accumulates and vector cycles, each product by its sizes."""
    works = [
        w
        for i in chain.index
        for p in (chain.layers[i].forward, chain.layers[i].backward)
        if p is not None
        for w in p.works
    ]
    products = sorted((g.groups, g.m, g.k, g.n) for w in works for g in w.gemms)
    return products, pytest.approx(sum(w.vector_cycles for w in works), rel=1e-12)


def moved(chain):
    layers = [chain.layers[i] for i in chain.index]
    passes = [p for layer in layers for p in (layer.forward, layer.backward) if p is not None]
    return sum(w.moved_bytes for p in passes for w in p.works)


def carried_sums(chain):
    """Bytes of sums of gradients: of a carried tensor one per layer that reads it, so fewer where layers are longer."""
    layers = [chain.layers[i] for i in chain.index]
    sums = [w for layer in layers if layer.backward for w in layer.backward.works if "gradient_sum" in w.name]
    return sum(w.moved_bytes for w in sums)


def check_all_subsets(load, rules_to_switch=tuple(Fusion)):
    plain = load(NO_FUSION)
    expected, traffic = arithmetic(plain), {}
    for rules in subsets(rules_to_switch):
        chain = load(rules)
        assert arithmetic(chain) == expected
        report = fusion_report(chain)
        traffic[rules] = moved(chain)
        saved = sum(applied.saved_bytes for applied in report.values())
        less = moved(plain) - saved - traffic[rules]
        assert less == pytest.approx(0, abs=1e-9 * moved(plain)) or 0 < less <= carried_sums(plain)
        assert all(report[rule].times == 0 for rule in ALL_FUSION - rules)
        assert chain.model_flops == plain.model_flops
    for rules, bytes_ in traffic.items():  # with its bias in the product, layers may be cut where others fuse
        assert all(bytes_ <= traffic[rules - {rule}] * (1 + 1e-12) for rule in rules - {Fusion.BIAS})
    return fusion_report(load(ALL_FUSION))


class Small:
    """A transformer of two blocks."""

    name, heads = "small", 4

    def __init__(self, family, attention, **more):
        self.attention = attention
        self.dimensions = family(layers=2, hidden=32, heads=4, vocabulary=64, max_positions=16, **more)

    def graph(self, batch):
        return self.dimensions.graph(self.name, Extent(batch, 16), self.attention)


GPT = {"dropout": 0.1, "attention_dropout": 0.1}
LLAMA = {
    "gated": True,
    "activation": "silu",
    "norm": "rms",
    "bias": False,
    "positions": "rope",
    "kv_heads": 2,
}


@pytest.mark.parametrize(
    ("model", "unused"),
    [
        (Small(Decoder, Attention.UNFUSED, **GPT), {Fusion.BIAS}),
        (Small(Encoder, Attention.UNFUSED, norm_place="post", **GPT), {Fusion.BIAS}),
        (
            Small(Decoder, Attention.FLASH, **LLAMA),
            {Fusion.BIAS, Fusion.SOFTMAX, Fusion.BIAS_GRADIENT, Fusion.ELEMENTWISE},
        ),
    ],
)
def test_every_subset_on_transformers(model, unused):
    report = check_all_subsets(lambda rules: GraphWorkload(model, Mode.TRAINING, fusion=rules).chain(1, 2))
    assert {rule for rule, applied in report.items() if not applied.times} == unused


def test_every_subset_on_a_network_from_a_file():
    model = load_onnx(str(light("shufflenet")))
    report = check_all_subsets(
        lambda rules: GraphWorkload(model, Mode.TRAINING, fusion=rules).chain(2, 1),
        (Fusion.EPILOGUE, Fusion.NORM_RESIDUAL, Fusion.ELEMENTWISE),
    )
    assert report[Fusion.NORM_RESIDUAL].times > 0


@settings(max_examples=25, deadline=None)
@given(CHOICES)
@example(  # a tensor that is carried past layers, which fusion makes one
    [("linear", 0), ("linear", 0), ("mul", 1), *[("linear", 0)] * 3, ("add", 5), ("linear", 0)]
)
def test_every_subset_on_random_graphs(choices):
    check_all_subsets(lambda rules: GraphWorkload(Drawn(choices), Mode.TRAINING, fusion=rules).chain(2, 1))


def test_what_the_rules_save_on_gpt3():
    """Per block, microbatch 1, tensors of s b h: what rides where in the block of Megatron-LM."""
    chain = load_workload("gpt3", Mode.PREFILL).chain(1, 1)
    report = fusion_report(chain)
    tensor = 2048 * 12288 * 2
    # the bias of four products and GELU on its four-fold tensor, a residual sum on two of them
    assert report[Fusion.EPILOGUE].times == 96 * 7
    assert report[Fusion.EPILOGUE].saved_bytes == 96 * 2 * tensor * (3 + 1 + 4 + 4 + 1 + 1 + 1)
    assert report[Fusion.BIAS_GRADIENT].times == report[Fusion.SOFTMAX].times == 0


def test_softmax_takes_the_scale_of_its_scores_where_epilogues_are_off():
    """As a factor of their product, in which only the tensor between the two is not moved any more."""
    model = Small(Decoder, Attention.UNFUSED, **GPT)
    chain = GraphWorkload(model, Mode.TRAINING, fusion=frozenset({Fusion.SOFTMAX})).chain(1, 1)
    names = [work.name for layer in chain.layers for work in layer.forward.works]
    assert [name for name in names if "scale" in name] == ["scores+scale"]
    assert not any("add_bias" in name and "+" in name for name in names)


def test_rules_by_name():
    assert parse_fusion("all", "--fusion") == ALL_FUSION
    assert parse_fusion("none", "--fusion") == NO_FUSION
    assert parse_fusion("epilogue, softmax", "--fusion") == {Fusion.EPILOGUE, Fusion.SOFTMAX}
    for wrong in ("", "epilog", "all,epilogue"):
        with pytest.raises(InputError, match=r"--fusion .*norm-residual"):
            parse_fusion(wrong, "--fusion")
