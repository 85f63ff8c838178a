"""Whole experts on tensor- and context-parallel ranks, and modules that predict tokens further ahead."""

from dataclasses import replace

import pytest

from phaze.errors import InputError
from phaze.workload.expert_load import ExpertLoad
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.routed_copies import Copies
from phaze.workload.work import Collective
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import LoadOptions, load_workload, workload_of

PLAIN = Sharding(expert=16)
FOLDED = Sharding(2, sequence=True, expert=16, folded=True)


@pytest.fixture(scope="module")
def model():
    return load_workload("qwen3-30b-a3b")


def experts(workload, sharding):
    return next(x for x in workload.chain(2, sharding).layers if x.kind == "block.experts")


def grouped(layer):
    return [g for w in layer.forward.works for g in w.gemms if g.groups > 1]


def exchanges(layer):
    passes = (layer.forward, layer.backward)
    return [w.link for p in passes for w in p.works if w.link and w.link.collective is Collective.ALL_TO_ALL]


@pytest.mark.parametrize("folded", [FOLDED, Sharding(2, True, 2, 16, folded=True)])
def test_ranks_of_a_group_bring_their_own_tokens(model, folded):
    plain, own = experts(model, PLAIN), experts(model, folded)
    share = folded.tensor * folded.context
    assert own.expert_parameters == plain.expert_parameters
    for narrow, wide in zip(grouped(own), grouped(plain), strict=True):
        assert (narrow.groups, share * narrow.m, narrow.k, narrow.n) == (wide.groups, wide.m, wide.k, wide.n)
    for narrow, wide in zip(exchanges(own), exchanges(plain), strict=True):
        assert share * narrow.payload_bytes == wide.payload_bytes
        assert (narrow.group.size, narrow.group.stride) == (16, 1)
        assert narrow.copies == wide.copies == Copies(8)


def test_experts_divided_by_tensor_ranks_are_halves(model):
    divided = experts(model, Sharding(2, sequence=True, expert=16))
    assert 2 * divided.expert_parameters == experts(model, FOLDED).expert_parameters
    assert exchanges(divided)[0].group.stride == 2


def test_ranks_with_the_same_tokens_cannot_be_folded():
    with pytest.raises(ValueError, match="sequence parallelism"):
        Sharding(2, expert=4, folded=True)


def ahead(count, **more):
    spec = builtin_spec("deepseek-v3").model_dump(mode="json", exclude_unset=True)
    spec["dimensions"] |= {"layers": 5, "ahead": count, **more}
    return workload_of(spec, "spec", LoadOptions())


def test_a_module_ahead_is_a_block_a_join_and_two_norms():
    none, one, two = (ahead(n) for n in range(3))
    block = sum(
        x.parameters for x in none.chain(1, 1).layers if x.kind in ("block.attention", "block.experts")
    )
    more = block + 2 * 7168 * 7168 + 3 * 7168  # the join, norms of both parts, and the one of the scores
    assert one.parameter_count - none.parameter_count == more
    assert two.parameter_count - one.parameter_count == more
    flops = [w.chain(1, 1).model_flops for w in (none, one, two)]
    assert flops[1] - flops[0] == pytest.approx(flops[2] - flops[1])
    assert one.chain(1, 1).names[:10] == none.chain(1, 1).names[:10]


def test_modules_ahead_need_embeddings_of_the_width_of_blocks():
    with pytest.raises(InputError, match="ahead needs"):
        ahead(1, embedding_size=512)


@pytest.mark.parametrize(("load", "copies"), [(None, Copies(8, 8, 4)), (ExpertLoad(0.5, 32), Copies(8))])
def test_a_token_goes_to_half_of_the_groups_unless_experts_are_dealt_by_load(load, copies):
    model = load_workload("deepseek-v3")
    of_layer = experts(model, replace(PLAIN, load=load))
    assert {link.copies for link in exchanges(of_layer)} == {copies}


@pytest.mark.parametrize(
    ("wrong", "what"),
    [({"groups": 3}, "divide"), ({"groups_per_token": 9}, "fewer"), ({"per_token": 129}, "fewer experts")],
)
def test_groups_that_make_no_sense_are_refused(wrong, what):
    spec = builtin_spec("deepseek-v3").model_dump(mode="json", exclude_unset=True)
    spec["dimensions"]["experts"] |= wrong
    with pytest.raises(InputError, match=what):
        workload_of(spec, "spec", LoadOptions())
