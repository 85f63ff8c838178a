"""Divided layers: the work adds up to the whole, the bytes exchanged are the published ones."""

from itertools import product

import pytest

from phaze.errors import InputError
from phaze.workload.fusion_rules import NO_FUSION
from phaze.workload.parallel_degrees import Group, Parallel, Sharding
from phaze.workload.work import Collective
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_file import read_spec
from phaze.workload.workload_library import find_workload
from phaze.workload.workload_loader import load_workload

FAMILIES = ("bloom-176b", "bert-base", "llama3-8b", "opt-350m", "t5-11b", "mixtral-8x7b", "deepseek-v2")
WITH_EXPERTS = ("mixtral-8x7b", "deepseek-v2")
# The same on every device of a tensor-parallel group, as long as tokens are not divided there.
REPLICATED = {"transform", "project", "router", "q_down", "kv_down"}
FOR_ALL = {"tokens", "loss", "dispatch", "combine"}


def shardings(name):
    degrees = product((1, 2), (False, True), (1, 2), (1, 2) if name in WITH_EXPERTS else (1,))
    return [Sharding(*d) for d in degrees if d[0] > 1 or not d[1]]


def passes(layer):
    return [p for p in (layer.forward, layer.backward) if p is not None]


def links(pass_, parallel=Parallel.TENSOR):
    """(collective, payload) of a group's collectives; those repeated in backward apart."""
    mine = [w for w in pass_.works if w.link is not None and w.link.group.parallel is parallel]
    return tuple(
        [(w.link.collective, w.link.payload_bytes) for w in mine if w.name.endswith(".again") is again]
        for again in (False, True)
    )


def layers(chain):
    return {layer.kind: layer for layer in chain.layers}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("attention", Attention)
def test_products_of_all_devices_add_up_to_the_whole(name, attention):
    """On t c devices a t c-th of each product; expert groups work on as many microbatches as they have devices."""
    workload = load_workload(name, attention=attention, fusion=NO_FUSION)
    whole = workload.chain(2, 1)
    for sharding in shardings(name):
        parts = workload.chain(2, sharding)
        assert parts.model_flops == whole.model_flops
        for one, part in zip(whole.layers, parts.layers, strict=True):
            for all_, mine in zip(passes(one), passes(part), strict=True):
                local = {w.name: w.macs for w in mine.works if w.macs}
                assert local.keys() == {w.name for w in all_.works if w.macs}
                for work in (w for w in all_.works if w.macs):
                    stem = work.name.removesuffix(".dX").removesuffix(".dW")
                    alone = stem.split(".")[-1] in REPLICATED and not sharding.sequence
                    divided = sharding.context * (1 if alone else sharding.tensor)
                    assert local[work.name] * divided == work.macs, (sharding, one.kind, work.name)


@pytest.mark.parametrize("name", FAMILIES)
def test_with_sequence_parallelism_all_vector_work_is_divided(name):
    """But for what each device does for all tokens: look up its vocabulary, finish the loss, sort by expert."""
    workload = load_workload(name, fusion=NO_FUSION)
    whole = workload.chain(2, 1)
    contexts = (1,) if name == "t5-11b" else (1, 2)  # its 114 target tokens are no multiple of four
    for sharding in (Sharding(2, sequence=True, context=c) for c in contexts):
        devices = sharding.tensor * sharding.context
        for one, part in zip(whole.layers, workload.chain(2, sharding).layers, strict=True):
            for all_, mine in zip(passes(one), passes(part), strict=True):
                local = {w.name: w.vector_cycles * devices for w in mine.works}
                total = {w.name: w.vector_cycles for w in all_.works if w.name.split(".")[0] not in FOR_ALL}
                assert {n: local[n] for n in total} == pytest.approx(total, rel=1e-12), one.kind


def test_tokens_that_do_not_come_out_even_are_rounded_up():
    """197 tokens of an image: 99 on the device with the most."""
    workload = load_workload("vit-b16")
    one, part = (layers(workload.chain(1, s))["block.attention"] for s in (Sharding(), Sharding(context=2)))
    name = "qkv+add_bias"
    whole, local = (next(w for w in p.forward.works if w.name == name).macs for p in (one, part))
    assert local * 197 == whole * 99


@pytest.mark.parametrize("name", ["gpt3", "llama3-8b"])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_causal_mask_leaves_every_context_rank_as_many_scores(name, devices):
    """Chunks from both ends: those of all devices together are the scores of the whole, forward and backward."""
    workload = load_workload(name)
    whole, part = (layers(workload.chain(1, s)) for s in (Sharding(), Sharding(context=devices)))
    for one, all_ in ((part[kind], layer) for kind, layer in whole.items() if "attention" in kind):
        for mine, every in zip(passes(one), passes(all_), strict=True):
            pairs = [(w, v) for w, v in zip(flashes(mine), flashes(every), strict=True)]
            assert pairs
            for own, total in pairs:
                assert scores(own) * devices == pytest.approx(scores(total), rel=1e-12)
                assert 0.5 <= own.flash.visible < 0.51


def flashes(pass_):
    return [w for w in pass_.works if w.flash is not None]


def scores(work):
    """Those that the mask leaves."""
    return work.flash.visible * work.gemms[0].groups * work.gemms[0].m * work.gemms[0].n


def sizes(name):
    spec = read_spec(find_workload(name))
    return spec.dimensions, spec.sequence_length


@pytest.mark.parametrize("width", [2, 8])
def test_sequence_parallelism_exchanges_as_much_as_tensor_parallelism(width):
    """A gather and a scatter for each all-reduce (arXiv 2205.05198, section 4.2.2); one gather more in backward."""
    d, s = sizes("gpt3")
    workload, vector = load_workload("gpt3"), 2.0 * 2 * s * d.hidden
    gather, scatter = (Collective.ALL_GATHER, vector), (Collective.REDUCE_SCATTER, vector)
    chain = layers(workload.chain(2, Sharding(width, sequence=True)))
    for kind in ("block.attention", "block.mlp"):
        assert links(chain[kind].forward) == ([gather, scatter], [])
        assert links(chain[kind].backward) == ([gather, scatter], [gather])
    plain = layers(workload.chain(2, width))
    for kind in ("block.attention", "block.mlp"):
        assert (
            links(plain[kind].forward)
            == links(plain[kind].backward)
            == ([(Collective.ALL_REDUCE, vector)], [])
        )


def test_vocabulary_parallel_ends():
    """Megatron-LM: a sum after the table, of the logits' input gradient, and of the statistics of the loss."""
    d, s = sizes("llama3-8b")
    vector, statistics = 2.0 * s * d.hidden, 12.0 * s
    reduce, of_loss = [(Collective.ALL_REDUCE, vector)], [(Collective.ALL_REDUCE, statistics)]
    gather, scatter = [(Collective.ALL_GATHER, vector)], [(Collective.REDUCE_SCATTER, vector)]
    for sharding, expected in (
        (Sharding(8), [reduce, [], [], reduce, of_loss, []]),
        (Sharding(8, sequence=True), [scatter, gather, gather, scatter, of_loss, []]),
    ):
        table, *_, logits, loss = load_workload("llama3-8b").chain(1, sharding).layers
        assert [links(p)[0] for layer in (table, logits, loss) for p in passes(layer)] == expected


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize("name", ["gpt3", "llama2-7b"])
def test_context_parallelism_exchanges_keys_and_values(name, attention):
    """Gathered in forward and again in backward; their gradients scattered."""
    d, s = sizes(name)
    layer = layers(load_workload(name, attention=attention).chain(2, Sharding(4, context=2)))[
        "block.attention"
    ]
    keys = 2.0 * 2 * s * d.kv * d.head / 4
    gather, scatter = [(Collective.ALL_GATHER, keys)] * 2, [(Collective.REDUCE_SCATTER, keys)] * 2
    assert links(layer.forward, Parallel.CONTEXT) == (gather, [])
    assert links(layer.backward, Parallel.CONTEXT) == (scatter, gather)
    groups = {w.link.group for p in passes(layer) for w in p.works if w.link}
    assert groups == {Group(Parallel.TENSOR, 4), Group(Parallel.CONTEXT, 2, stride=4)}


@pytest.mark.parametrize(
    "sharding", [Sharding(expert=4), Sharding(2, expert=4), Sharding(2, context=2, expert=8)]
)
def test_expert_parallelism_exchanges_every_chosen_copy_of_a_token(sharding):
    """Out and back, forward and backward: b s k h elements each (GShard, arXiv 2006.16668)."""
    d, s = sizes("mixtral-8x7b")
    chain = load_workload("mixtral-8x7b").chain(2, sharding)
    layer = layers(chain)["block.experts"]
    copies = 2.0 * 2 * s * d.experts.per_token * d.hidden / sharding.context
    exchange = ([(Collective.ALL_TO_ALL, copies)] * 2, [])
    assert [links(p, Parallel.EXPERT) for p in passes(layer)] == [exchange, exchange]
    group = sharding.group(Parallel.EXPERT)
    assert group == Group(Parallel.EXPERT, sharding.expert, stride=sharding.tensor * sharding.context)
    assert group.span == sharding.tensor * sharding.context * sharding.expert


def test_experts_are_divided_and_nothing_else():
    """A device has an e-th of the experts' parameters and all others."""
    workload = load_workload("mixtral-8x7b")
    d, _ = sizes("mixtral-8x7b")
    inside = d.layers * d.experts.number * 3 * d.hidden * d.experts.hidden
    assert workload.chain(1, Sharding(expert=4)).parameters == workload.parameter_count - inside * 3 // 4
    assert workload.chain(1, Sharding(context=4)).parameters == workload.parameter_count


def test_tensors_between_layers_are_whole_in_a_tensor_parallel_group():
    workload = load_workload("gpt3")
    one = workload.chain(1, 1).layers[1]
    for sharding in (Sharding(8), Sharding(8, sequence=True), Sharding(8, context=2), Sharding(context=4)):
        part = workload.chain(1, sharding).layers[1]
        assert part.output_bytes * sharding.context == one.output_bytes
        assert part.input_bytes * sharding.context == one.input_bytes


def test_a_chain_says_its_sharding_and_is_cached_by_it():
    workload = load_workload("gpt3", Mode.PREFILL)
    first = workload.chain(1, 8)
    assert workload.chain(1, Sharding(8)) is first
    assert first.sharding == Sharding(8)
    assert first.tensor_parallel == 8
    other = workload.chain(1, Sharding(8, context=2))
    assert other is not first
    assert other is workload.chain(1, Sharding(8, context=2))


def test_nothing_to_divide():
    with pytest.raises(InputError, match="gpt3 has no experts, which expert parallelism divides"):
        load_workload("gpt3").chain(1, Sharding(expert=2))
    with pytest.raises(ValueError, match="context-parallel degree 0 must be at least 1"):
        Sharding(context=0)
