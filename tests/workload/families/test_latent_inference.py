"""Latent attention with its cache, and experts that few tokens reach: bytes, products and memory worked out by hand."""

import numpy as np
import pytest

from phaze.workload.operators.kv_cache import PAGE_ENTRY_BYTES, PAGE_TOKENS, CacheFormat, KvCache
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.sharding.shard_roles import experts_reached
from phaze.workload.work import LATENT
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload

LAYERS, HIDDEN, HEADS, RANK, NOPE, ROPE, VALUE = 3, 128, 8, 32, 16, 8, 16
ROW = RANK + ROPE
EXPERTS, CHOSEN, INNER = 16, 2, 64
FILE = f"""
schema_version: 1
name: tiny-latent
family: decoder
source: {{all: "made up"}}
dimensions:
  {{layers: {LAYERS}, hidden: {HIDDEN}, heads: {HEADS}, vocabulary: 64, max_positions: 8192, positions: rope,
   bias: false, norm: rms, gated: true, activation: silu, ffn_hidden: 256, ahead: 1,
   latent: {{kv_lora_rank: {RANK}, qk_nope_head_dim: {NOPE}, qk_rope_head_dim: {ROPE}, v_head_dim: {VALUE}}},
   experts: {{number: {EXPERTS}, per_token: {CHOSEN}, hidden: {INNER}}}}}
sequence_length: 64
global_batch: 40
"""


@pytest.fixture(scope="module")
def latent(tmp_path_factory):
    path = tmp_path_factory.mktemp("latent") / "tiny-latent.yaml"
    path.write_text(FILE)
    return lambda mode, **options: load_workload(str(path), mode, **options)


def works(chain):
    return [work for i in chain.index for work in chain.layers[i].forward.works]


def named(chain, name):
    return [work for work in works(chain) if work.name.split("+")[0] == name]


def cache_bytes(chain):
    return sum(chain.layers[i].cache_bytes for i in chain.index)


@pytest.mark.parametrize(
    ("options", "each"),
    [({}, 2), ({"kv_cache_format": CacheFormat.FP8}, 1), ({"kv_cache": KvCache.PAGED}, 2)],
)
def test_decoding_reads_one_row_per_token_for_all_heads(latent, options, each):
    batch, context = 3, 100
    chain = latent(Mode.DECODE, context=context, **options).chain(batch, 1)
    attention = [work for work in works(chain) if work.flash]
    assert [work.kind for work in attention] == [LATENT] * LAYERS
    rows = context + 1
    paged = -(-rows // PAGE_TOKENS) * PAGE_TOKENS if "kv_cache" in options else rows
    table = PAGE_ENTRY_BYTES * paged // PAGE_TOKENS if "kv_cache" in options else 0
    queries = 2 * HEADS * (ROW + RANK)
    for work in attention:
        assert work.stream_bytes == batch * (paged * ROW * each + table + queries)
        assert work.macs == batch * HEADS * rows * (ROW + RANK)
        assert {(g.groups, g.m) for g in work.gemms} == {(batch, HEADS)}
    assert cache_bytes(chain) == LAYERS * batch * paged * ROW * each


def test_no_form_of_attention_changes_the_parameters(latent):
    """Decoding folds the matrix that unfolds keys and values into two; modules ahead belong to training."""
    decode, prefill, chunk = (
        latent(Mode.DECODE, context=50),
        latent(Mode.PREFILL),
        latent(Mode.PREFILL, context=32, sequence_length=64),
    )
    assert decode.parameter_count == prefill.parameter_count == chunk.parameter_count
    assert latent(Mode.TRAINING).parameter_count > decode.parameter_count
    for width in (2, 8):
        assert decode.chain(1, width).parameters == chunk.chain(1, width).parameters
        assert cache_bytes(decode.chain(1, width)) == LAYERS * 51 * ROW * 2  # every device has all of it


def test_the_model_of_deepseek_v3_has_its_published_size():
    """671 G parameters without the module ahead (arXiv 2412.19437); 70 KB of cache per token in 16 bits."""
    workload = load_workload("deepseek-v3", Mode.DECODE, context=1023)
    assert workload.parameter_count == pytest.approx(671e9, rel=1e-3)
    assert cache_bytes(workload.chain(1, 1)) == 1024 * 61 * (512 + 64) * 2


def test_whichever_form_multiplies_less_is_taken(latent):
    """Few tokens after a long context leave keys and values folded; many unfold those of the context once."""
    context = 256
    for tokens in (1, 4, 16, 64, 128):
        chain = latent(Mode.PREFILL, context=context, sequence_length=tokens).chain(1, 1)
        keys = tokens + context
        folded = HEADS * tokens * keys * (ROW + RANK)
        plain = HEADS * (context * RANK * (NOPE + VALUE) + tokens * keys * (NOPE + ROPE + VALUE))
        products = sum(w.macs for name in ("flash", "kv_up_before") for w in named(chain, name))
        assert products == LAYERS * min(folded, plain), tokens
        projected = sum(w.macs for name in ("kv_up", "k_up", "v_up") for w in named(chain, name))
        assert projected == LAYERS * HEADS * tokens * RANK * (NOPE + VALUE)
        assert cache_bytes(chain) == LAYERS * keys * ROW * 2


def test_written_out_attention_unfolds_all(latent):
    chain = latent(Mode.DECODE, context=100, attention=Attention.UNFUSED).chain(1, 1)
    (before, *_) = named(chain, "kv_up_before")
    assert before.of_cache
    assert before.gemms[0].m == 100


def test_folded_matrices_are_divided_by_heads(latent):
    whole, half = (latent(Mode.DECODE, context=100).chain(2, width) for width in (1, 2))
    for name, size in (("k_up", NOPE), ("v_up", VALUE)):
        for chain, heads in ((whole, HEADS), (half, HEADS // 2)):
            (gemm,) = named(chain, name)[0].gemms
            assert (gemm.groups, gemm.m) == (heads, 2)
            assert gemm.b_bytes == 2 * heads * RANK * size


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(16, 2, 1), (16, 2, 5), (64, 8, 20), (8, 8, 1)])
def test_experts_reached_against_drawn_ones(experts, chosen, tokens):
    rng = np.random.default_rng(0)
    drawn = [
        len(np.unique([rng.choice(experts, chosen, replace=False) for _ in range(tokens)]))
        for _ in range(2000)
    ]
    assert experts_reached(experts, chosen, tokens) == pytest.approx(np.mean(drawn), abs=1.1)
    assert experts_reached(experts, chosen, 1) == chosen
    assert experts_reached(experts, chosen, 10**6) == experts


def test_decoding_reads_the_experts_that_its_tokens_reach(latent):
    for batch in (1, 4, 64):
        reached = experts_reached(EXPERTS, CHOSEN, batch)
        for name, width in (("up", 2 * INNER * HIDDEN), ("down", INNER * HIDDEN)):
            found = [
                w.gemms[0] for w in named(latent(Mode.DECODE).chain(batch, 1), name) if w.gemms[0].groups > 1
            ]
            assert found
            for gemm in found:
                assert gemm.groups == reached
                assert gemm.b_bytes == 2 * reached * width
                assert CHOSEN * batch <= gemm.groups * gemm.m < CHOSEN * batch + reached


def test_training_works_on_all_experts(latent):
    (gemm, *_) = (w.gemms[0] for w in named(latent(Mode.TRAINING).chain(1, 1), "up"))
    assert gemm.groups == EXPERTS


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_experts_dealt_among_devices_get_the_tokens_of_all(latent, batch, ranks):
    (gemm, *_) = (
        w.gemms[0]
        for w in named(latent(Mode.DECODE).chain(batch, Sharding(expert=ranks)), "up")
        if w.gemms[0].groups > 1 or ranks == EXPERTS
    )
    reached = experts_reached(EXPERTS, CHOSEN, batch * ranks)
    assert gemm.groups == -(-reached // ranks)
    assert gemm.groups * gemm.m * ranks >= CHOSEN * batch * ranks
    assert gemm.b_bytes == 2 * gemm.groups * 2 * INNER * HIDDEN


def test_a_chain_is_the_same_whatever_was_asked_before(latent):
    """How many experts are reached is on no line between two batches."""
    asked = latent(Mode.DECODE)
    for batch in (1, 3, 5, 2, 4):
        chain = asked.chain(batch, 1)
        assert chain == latent(Mode.DECODE).chain(batch, 1)
