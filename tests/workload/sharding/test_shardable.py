"""Sorts of layers, and chains in which some stay whole."""

from __future__ import annotations

from itertools import combinations

import pytest

from phaze.errors import InputError
from phaze.workload.parallel_degrees import Shardable, Sharding
from phaze.workload.workload_loader import load_workload

EMBEDDING, ATTENTION, MLP, HEAD = Shardable
SORTS = {
    "gpt3-small": [EMBEDDING, ATTENTION, MLP, None, HEAD, HEAD],
    "bert-base": [EMBEDDING, None, ATTENTION, None, MLP, None, HEAD, HEAD],
    "t5-11b": [EMBEDDING, ATTENTION, MLP, None, ATTENTION, ATTENTION, MLP, None, HEAD, HEAD],
    "palm-540b": [EMBEDDING, ATTENTION, None, HEAD, HEAD],  # attention and MLP side by side
    "deepseek-v2": [EMBEDDING, ATTENTION, MLP, None, None, HEAD, HEAD],  # experts, norm
}


@pytest.mark.parametrize("name", SORTS)
def test_sorts_of_layers(name):
    assert [layer.shardable for layer in load_workload(name).chain(1, 1).layers] == SORTS[name]


def test_logits_and_loss_are_of_one_sort_whatever_their_roles():
    """A classifier's logits are a column-parallel product, and no tensor of the vocabulary is cut between sorts."""
    sorts = [layer.shardable for layer in load_workload("vit-b16").chain(1, 1).layers]
    assert sorts[-2:] == [HEAD, HEAD]


@pytest.mark.parametrize("context", [1, 2])
def test_a_mix_has_layers_of_both_chains_and_one_set_of_boundaries(context):
    model = load_workload("gpt3-small", sequence_length=250)  # 32 tokens on each of eight, at most
    plain = Sharding(4, sequence=True, context=context)
    divided, undivided = (model.chain(2, one) for one in (plain, Sharding(context=4 * context)))
    for size in range(5):
        for some in combinations(Shardable, size):
            mix = model.chain(2, Sharding(4, sequence=True, context=context, replicated=frozenset(some)))
            for mine, part, whole in zip(mix.layers, divided.layers, undivided.layers, strict=True):
                own = whole if mine.shardable in some else part
                assert (mine.forward, mine.backward) == (own.forward, own.backward)
                assert (mine.parameters, mine.saved_bytes) == (own.parameters, own.saved_bytes)
                assert (mine.input_bytes, mine.output_bytes) == (part.input_bytes, part.output_bytes)
            assert mix.replicated_parameters == sum(
                undivided.layers[i].parameters for i in mix.index if undivided.layers[i].shardable in some
            )


def test_whole_layers_have_all_parameters_and_their_share_of_the_work():
    model = load_workload("gpt3-small")
    alone = model.chain(1, 1)
    mix = model.chain(1, Sharding(4, sequence=True, replicated=frozenset({MLP})))
    for mine, all_ in zip(mix.layers, alone.layers, strict=True):
        if mine.shardable is MLP:
            assert mine.parameters == all_.parameters
            assert 4 * sum(w.macs for w in mine.forward.works) == sum(w.macs for w in all_.forward.works)


def test_layers_without_tokens_are_refused():
    with pytest.raises(InputError, match="tokens"):
        load_workload("resnet50").chain(1, Sharding(2, sequence=True, replicated=frozenset({MLP})))
