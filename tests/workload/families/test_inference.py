"""Prefill and decode with a key-value cache: bytes, FLOPs and memory worked out by hand."""

import pytest

from phaze.errors import InputError
from phaze.workload.families.decoder_family import Decoder
from phaze.workload.families.model_family import Extent
from phaze.workload.operators.kv_cache import PAGE_ENTRY_BYTES, PAGE_TOKENS, KvCache
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload

HEADS, HEAD, HIDDEN = 8, 16, 128
FILE = """
schema_version: 1
name: tiny
family: decoder
source: {{all: "made up"}}
dimensions:
  {{layers: 3, hidden: 128, heads: 8, kv_heads: {kv}, vocabulary: 64, max_positions: 512,
   positions: {positions}, bias: false}}
sequence_length: 96
global_batch: 40
"""


@pytest.fixture
def tiny(tmp_path):
    def load(mode, *, kv=8, positions="rope", **options):
        path = tmp_path / f"tiny-{kv}-{positions}.yaml"
        path.write_text(FILE.format(kv=kv, positions=positions))
        return load_workload(str(path), mode, **options)

    return load


def works(chain):
    return [work for i in chain.index for work in chain.layers[i].forward.works]


def attention_of(chain):
    return next(work for work in works(chain) if work.kind == "attention")


@pytest.mark.parametrize("kv", [8, 2, 1])
@pytest.mark.parametrize("context", [1, 100, 511])
@pytest.mark.parametrize("batch", [1, 5])
def test_decode_reads_the_cache_once(tiny, kv, context, batch):
    work = attention_of(tiny(Mode.DECODE, kv=kv, context=context).chain(batch, 1))
    cache = 2 * batch * (context + 1) * kv * HEAD * 2
    assert work.stream_bytes == cache + 2 * batch * HIDDEN * 2  # query and result
    assert work.macs == 2 * batch * (context + 1) * HIDDEN
    assert {(g.groups, g.m) for g in work.gemms} == {(batch * kv, HEADS // kv)}


@pytest.mark.parametrize("kv", [8, 2, 1])
def test_cache_in_memory_by_mode(tiny, kv):
    each = 3 * 2 * kv * HEAD * 2  # of one token: three blocks, keys and values
    decode, prefill, chunk = (
        tiny(Mode.DECODE, kv=kv, context=200).chain(4, 1),
        tiny(Mode.PREFILL, kv=kv).chain(4, 1),
        tiny(Mode.PREFILL, kv=kv, context=30).chain(4, 1),
    )
    for chain, tokens in ((decode, 201), (prefill, 96), (chunk, 126)):
        assert sum(chain.layers[i].cache_bytes for i in chain.index) == 4 * tokens * each
    assert decode.keeps_cache
    assert not prefill.keeps_cache
    training = tiny(Mode.TRAINING, kv=kv).chain(4, 1)
    assert all(layer.cache_bytes == 0 for layer in training.layers)


@pytest.mark.parametrize(("width", "heads"), [(2, 1), (4, 1)])
def test_a_device_keeps_at_least_one_key_head(tiny, width, heads):
    chain = tiny(Mode.DECODE, kv=2, context=50).chain(1, width)
    assert sum(chain.layers[i].cache_bytes for i in chain.index) == 3 * 2 * 51 * heads * HEAD * 2


def test_rotation_writes_keys_into_the_cache_and_values_are_copied(tiny):
    chain = tiny(Mode.DECODE, context=10).chain(2, 1)
    names = [work.name for work in works(chain)][: len(chain.layers[1].forward.works) + 2]
    assert "rotate_k+cache_k" in names
    copy = next(work for work in works(chain) if work.name == "cache_v")
    assert copy.stream_bytes == 2 * (2 * HIDDEN * 2)


def test_a_chunk_attends_to_what_came_before(tiny):
    chunk = attention_of(tiny(Mode.PREFILL, context=32, sequence_length=16).chain(1, 1))
    assert chunk.macs == 2 * 16 * 48 * HIDDEN
    assert chunk.stream_bytes == 2 * 48 * HIDDEN * 2 + 2 * 16 * HIDDEN * 2


def test_prefill_and_decode_multiply_what_one_pass_over_all_would(tiny):
    """Products with weights are linear in tokens, and each token attends to all before it."""
    whole = tiny(Mode.PREFILL, sequence_length=8).chain(1, 1).model_flops
    parts = [tiny(Mode.DECODE, context=n).chain(1, 1).model_flops for n in range(1, 8)]
    first = tiny(Mode.PREFILL, sequence_length=1).chain(1, 1).model_flops
    unmasked = 3 * 2 * 2 * HIDDEN * sum(8 - n for n in range(1, 8))  # the upper triangle, full s^2 counted
    assert sum(parts) + first == whole - unmasked


@pytest.mark.parametrize("context", [15, 16, 100])
def test_pages_round_up_and_are_looked_up(tiny, context):
    plain, paged = (tiny(Mode.DECODE, kv=2, context=context, kv_cache=kind).chain(3, 1) for kind in KvCache)
    pages = -(-(context + 1) // PAGE_TOKENS)
    tails = 2 * 3 * (pages * PAGE_TOKENS - context - 1) * 2 * HEAD * 2
    table = 2 * 3 * pages * PAGE_ENTRY_BYTES
    assert attention_of(paged).stream_bytes == attention_of(plain).stream_bytes + tails + table
    assert attention_of(paged).macs == attention_of(plain).macs
    assert sum(paged.layers[i].cache_bytes - plain.layers[i].cache_bytes for i in plain.index) == 3 * tails


def test_unfused_decode_has_one_row_of_scores(tiny):
    chain = tiny(Mode.DECODE, context=99, attention=Attention.UNFUSED).chain(2, 1)
    flash = tiny(Mode.DECODE, context=99).chain(2, 1)
    assert chain.model_flops == flash.model_flops
    scores = next(work for work in works(chain) if work.name.startswith("scores"))
    assert (scores.gemms[0].m, scores.gemms[0].n) == (1, 100)


def test_decode_defaults(tiny):
    workload = tiny(Mode.DECODE)
    assert (workload.context, workload.sequence_length) == (96, 1)
    assert workload.global_batch(4) == 4 * 8
    assert tiny(Mode.DECODE, global_batch=7).global_batch(4) == 7
    assert tiny(Mode.PREFILL).context == 0
    assert tiny(Mode.PREFILL).global_batch(4) == 40


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        (Mode.TRAINING, {"context": 5}, "training keeps no"),
        (Mode.DECODE, {"context": 0}, "at least 1"),
        (Mode.DECODE, {"context": 513}, "512 positions"),
        (Mode.PREFILL, {"context": 450}, "450|546"),
        (Mode.DECODE, {"kv_cache": KvCache.PAGED, "attention": Attention.UNFUSED}, "flash"),
    ],
)
def test_what_cannot_be_asked(tiny, mode, options, message):
    with pytest.raises(InputError, match=message):
        tiny(mode, **options)


def test_training_graphs_hold_no_cache():
    model = Decoder(layers=1, hidden=32, heads=2, vocabulary=16, max_positions=64)
    kinds = {op.kind for op in model.graph("x", Extent(2, 8), Attention.FLASH).operators}
    assert OpKind.CACHE not in kinds
