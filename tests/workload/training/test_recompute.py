"""What is kept for backward and what is run again, against Korthikanti et al. (arXiv 2205.05198)."""

from itertools import product

import pytest

from phaze.workload.fusion_rules import ALL_FUSION, NO_FUSION
from phaze.workload.layers.layer_cutting import whole_context
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.training.activation_recompute import saved_by_operator
from phaze.workload.workload import Attention
from phaze.workload.workload_file import read_spec
from phaze.workload.workload_library import find_workload
from phaze.workload.workload_loader import load_workload

HALVES = ("block.attention", "block.mlp")
GPT = (
    "gpt3-small",
    "gpt3-6.7b",
    "gpt3",
    "megatron-1.7b",
    "megatron-18.4b",
    "megatron-145.6b",
    "megatron-1008b",
)


def sizes(name):
    """b = 1: s h, and a s / h."""
    spec = read_spec(find_workload(name))
    d, s = spec.dimensions, spec.sequence_length
    return s * d.hidden, d.heads * s / d.hidden


def saved(chain):
    return sum(layer.saved_bytes for layer in chain.layers if layer.kind in HALVES)


@pytest.mark.parametrize("name", ["gpt3", "megatron-18.4b"])
def test_saved_bytes_of_a_block(name):
    """Table 2 of the paper; context parallelism divides all of it."""
    workload = load_workload(name, attention=Attention.UNFUSED)
    (vector, scores), b = sizes(name), 4
    for width, context in product((1, 2, 8), (1, 4)):
        unit = b * vector / context
        plain, sequence = (Sharding(width, sequence=on, context=context) for on in (False, True))
        assert saved(workload.chain(b, plain)) == unit * (10 + 24 / width + 5 * scores / width)
        assert saved(workload.chain(b, plain, selective=True)) == unit * (10 + 24 / width)
        assert saved(workload.chain(b, sequence)) == unit * (34 + 5 * scores) / width
        assert saved(workload.chain(b, sequence, selective=True)) == unit * 34 / width


def test_full_recompute_keeps_the_input_of_a_layer():
    """2 s b h, whatever the tensor-parallel width."""
    vector, _ = sizes("gpt3-small")
    workload = load_workload("gpt3-small")
    for sharding in (1, 4, Sharding(4, sequence=True)):
        chain = workload.chain(2, sharding)
        assert {x.input_bytes for x in chain.layers if x.kind in HALVES} == {2 * 2 * vector}


@pytest.mark.parametrize("name", GPT)
def test_flops_of_an_iteration_with_full_recompute(name):
    """96 B s l h^2 (1 + s / 6h + V / 16 l h), Narayanan et al., SC'21, section 3.2: blocks run forward twice."""
    spec = read_spec(find_workload(name))
    d, s = spec.dimensions, spec.sequence_length
    chain = load_workload(name, attention=Attention.UNFUSED).chain(1, 1)
    done = 0.0
    for layer in (chain.layers[i] for i in chain.index):
        forward, backward = (2.0 * sum(w.macs for w in p.works) for p in (layer.forward, layer.backward))
        done += forward + backward + (forward if layer.kind in HALVES else 0.0)
    formula = 1 + s / (6 * d.hidden) + d.vocabulary / (16 * d.layers * d.hidden)
    assert done == pytest.approx(96 * s * d.layers * d.hidden**2 * formula, rel=1e-9)


@pytest.mark.parametrize("fusion", [ALL_FUSION, NO_FUSION])
def test_selective_recompute_runs_attention_again_as_a_whole(fusion):
    """From the scores to their mix, before what needs them, after what they need; all else is the same."""
    workload = load_workload("gpt3", attention=Attention.UNFUSED, fusion=fusion)
    chains = (workload.chain(1, 8, selective=on) for on in (False, True))
    plain, chosen = (next(x for x in c.layers if x.kind == "block.attention") for c in chains)
    again = [w for w in chosen.backward.works if w.name.endswith(".again")]
    stems = [part.removesuffix(".again") for w in again for part in w.name.split("+")]
    assert stems == ["scores", "scale", "softmax", "softmax_dropout", "mix"]
    products = {w.name.split("+")[0]: w.macs for w in plain.forward.works}
    assert sum(w.macs for w in again) == products["scores"] + products["mix"]
    assert sum(w.macs for w in chosen.backward.works) == sum(w.macs for w in (*plain.backward.works, *again))
    names = [w.name for w in chosen.backward.works]
    reached = {i for i, name in enumerate(names) if name.startswith("softmax.again")}
    for before, after in chosen.backward.edges:
        if before in reached:
            reached.add(after)
    assert {names[i].split("+")[0] for i in reached} >= {"softmax.dX", "scores.dA", "scores.dB", "qkv.dX"}
    assert chosen.model_flops == plain.model_flops


def test_flash_attention_leaves_nothing_to_recompute():
    workload = load_workload("gpt3")
    plain, chosen = (workload.chain(1, 2, selective=on).layers for on in (False, True))
    assert plain == chosen


def test_gathered_tensors_are_gathered_again_once_for_all_who_read_them():
    """One gather of a block's parallel halves serves attention and feed-forward."""
    workload = load_workload("palm-540b")
    layer = next(
        x for x in workload.chain(1, Sharding(8, sequence=True)).layers if x.kind.startswith("block")
    )
    again = [w.name for w in layer.backward.works if w.name.endswith(".again")]
    assert len(again) == 1
    names = [w.name for w in layer.backward.works]
    reads = {names[after] for before, after in layer.backward.edges if names[before] == again[0]}
    assert reads == {"in.dW"}


def test_bytes_kept_by_each_operator():
    """They add up to what a block keeps, the unfused one in full."""
    workload = load_workload("gpt3", attention=Attention.UNFUSED)
    graph = workload.operator_graph(1)
    found = saved_by_operator(graph.operators, whole_context(graph, training=True))
    mine = {name: kept for name, kept in found.items() if name.startswith("block3.")}
    vector, scores = sizes("gpt3")
    assert sum(sum(kept.values()) for kept in mine.values()) == vector * (34 + 5 * scores)
    assert mine["block3.attention.softmax_dropout"] == {
        "block3.attention.softmax_dropout:mask": vector * scores
    }
    assert sum(mine["block3.attention.mix"].values()) == vector * (2 * scores + 2)


def test_layers_without_attention_are_built_once_whatever_attention_keeps():
    gnmt = load_workload("gnmt4")
    plain, selective = (gnmt.chain(1, 1, selective=on).layers for on in (False, True))
    same = [one is other for one, other in zip(plain, selective, strict=True)]
    assert same.count(True) >= len(same) - 1
    vgg = load_workload("vgg16")
    plain, selective = (vgg.chain(1, 1, selective=on).layers for on in (False, True))
    assert all(one is other for one, other in zip(plain, selective, strict=True))
