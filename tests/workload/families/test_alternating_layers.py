"""Blocks that differ in turn: windows beside whole contexts, experts beside dense halves, their caches and sums."""

import pytest
from pydantic import ValidationError

from phaze.workload.families.decoder_family import Decoder, Feed, Mixer
from phaze.workload.work import Unit
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import load_workload

ROW = 2 * 8 * 64 * 2  # bytes of a token's keys and values in a block of gpt-oss
TINY = {
    "layers": 5,
    "hidden": 64,
    "heads": 4,
    "vocabulary": 100,
    "max_positions": 512,
    "positions": "rope",
    "norm": "rms",
    "bias": False,
}


def flashes(chain):
    found = (chain.layers[i].forward.works for i in chain.index)
    return [work for works in found for work in works if work.flash is not None]


@pytest.mark.parametrize("context", [1, 100, 127, 128, 5000])
def test_a_window_keeps_and_reads_only_what_it_sees(context):
    chain = load_workload("gpt-oss-20b", Mode.DECODE, context=context).chain(3, 1)
    kept = [chain.layers[i].cache_bytes for i in chain.index if chain.layers[i].cache_bytes]
    seen = (min(context, 127) + 1, context + 1)
    assert kept == [3 * ROW * tokens for tokens in seen] * 12
    queries = 2 * 3 * 64 * 64 * 2
    sinks = 2 * 64
    moved = [work.stream_bytes for work in flashes(chain)]
    assert moved == [3 * ROW * tokens + queries + sinks for tokens in seen] * 12
    macs = [work.macs for work in flashes(chain)]
    assert macs == [3 * 64 * tokens * 2 * 64 for tokens in seen] * 12


@pytest.mark.parametrize(("tokens", "context"), [(40, 0), (40, 30), (200, 10), (128, 300)])
def test_scores_that_a_mask_leaves_are_those_of_its_definition(tokens, context):
    """Of each query the last 128 keys, itself among them, counted one by one."""
    chain = load_workload("gpt-oss-20b", Mode.PREFILL, sequence_length=tokens, context=context or None).chain(
        1, 1
    )
    windowed, whole = flashes(chain)[:2]
    for work, window in ((windowed, 128), (whole, 10**9)):
        seen = sum(min(context + q + 1, window) for q in range(tokens))
        counted = work.flash.visible * tokens * work.gemms[0].n
        assert counted == pytest.approx(seen, abs=1e-6)


def test_prefill_hands_over_the_tokens_of_a_window_and_its_own():
    chain = load_workload("gpt-oss-20b", Mode.PREFILL, sequence_length=200, context=1000).chain(1, 1)
    kept = [chain.layers[i].cache_bytes for i in chain.index if chain.layers[i].cache_bytes]
    assert kept == [ROW * (127 + 200), ROW * 1200] * 12


@pytest.mark.parametrize("attention", Attention)
def test_training_flops_of_blocks_in_turn(attention):
    """Gemma 3 12 B, one turn: six blocks, of which five have windows; unfused, all scores are made."""
    tokens, hidden, heads, size, ffn = 2048, 3840, 16, 256, 15360
    spec = builtin_spec("gemma-3-12b")
    products = hidden * size * (2 * heads + 2 * 8) + 3 * hidden * ffn
    seen = 5 * (1024 if attention is Attention.FLASH else tokens) + tokens
    block = 48 * products + 8 * seen * 2 * heads * size
    expected = 6 * tokens * (block + hidden * spec.dimensions.vocabulary)
    chain = load_workload("gemma-3-12b", Mode.TRAINING, attention, sequence_length=tokens).chain(1, 1)
    assert chain.model_flops == expected
    if attention is Attention.FLASH:
        assert {chain.layers[i].kind for i in chain.index} >= {"block.window", "block.attention"}


def test_heads_of_windows_are_divided_as_others():
    model = load_workload("gpt-oss-20b", Mode.DECODE, context=1000)
    whole, part = model.chain(2, 1), model.chain(2, 4)
    kept = [[c.layers[i].cache_bytes for i in c.index] for c in (whole, part)]
    assert [4 * b for b in kept[1]] == kept[0]
    sums = [w for layer in part.layers for w in layer.forward.works if w.unit is Unit.LINK]
    assert sums


def test_only_biases_of_experts_that_tokens_reach_are_read():
    """One token of gpt-oss-20b reaches 4 of 32 experts: twice 2880 and 2880 numbers each."""

    def added(batch):
        chain = load_workload("gpt-oss-20b", Mode.DECODE, context=10, fusion=frozenset()).chain(batch, 1)
        layer = next(x for x in chain.layers if x.kind == "block.experts")
        work = next(w for w in layer.forward.works if w.name.endswith("down.add_bias"))
        return work.stream_bytes - sum(2 * 2 * rows * 2880 for rows in (4,) if batch == 1)

    assert added(1) == 4 * 2880 * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixers": ["window", "attention"]}, "a half of a block is window, but window is missing"),
        ({"feeds": ["experts"]}, "a half of a block is experts, but experts is missing"),
        ({"mixers": ["none"], "feeds": ["mlp", "none"]}, "neither a mixer nor a feed-forward half"),
        ({"qk_norm": True, "qk_norm_whole": True}, "give one of them"),
        ({"parallel": True, "mixers": ["attention"]}, "parallel goes with none of mixers"),
    ],
)
def test_halves_that_do_not_fit(changes, message):
    with pytest.raises(ValidationError, match=message):
        Decoder.model_validate(TINY | changes)


def test_halves_come_again_and_models_are_cut_in_step():
    d = Decoder.model_validate(
        TINY
        | {"layers": 11, "window": 16, "mixers": ["window", "window", "attention"]}
        | {
            "experts": {"number": 4, "per_token": 1, "hidden": 8, "dense_layers": 2},
            "feeds": ["mlp", "experts"],
        }
    )
    assert [d.mixer(n) for n in range(4)] == [Mixer.WINDOW, Mixer.WINDOW, Mixer.ATTENTION, Mixer.WINDOW]
    assert [d.feed(n) for n in range(4)] == [Feed.MLP, Feed.MLP, Feed.MLP, Feed.EXPERTS]
    assert d.period == 6
    ((fewest, layers),) = d.repeats.values()
    assert fewest >= 2 + 1
    assert (layers - fewest) % 6 == 0
