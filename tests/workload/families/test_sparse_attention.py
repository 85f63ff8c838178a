"""Latent attention of keys that an indexer chooses (DeepSeek-V3.2, GLM-5): work, traffic and memory by hand."""

import pytest
from pydantic import ValidationError

from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_library import builtin_spec, count_parameters
from phaze.workload.workload_loader import load_workload

ROW, KEY = 2 * (512 + 64), 128 + 4  # bytes of a latent vector, and of a key of the indexer with its scale
HEADS, TOP = 128, 2048


def works(mode, **sizes):
    chain = load_workload("deepseek-v3.2", mode, **sizes).chain(sizes.pop("batch", 1), 1)
    layer = next(chain.layers[i] for i in chain.index if chain.layers[i].kind == "block.attention")
    return {work.name.split(".")[-1]: work for work in layer.forward.works}


def test_the_indexer_is_all_there_is_beside_deepseek_v3():
    both = [
        count_parameters(builtin_spec(name).dimensions).total for name in ("deepseek-v3.2", "deepseek-v3")
    ]
    indexer = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64
    assert both[0] - both[1] == 61 * indexer


def test_of_glm_5_a_token_uses_40_billion():
    d = builtin_spec("glm-5").dimensions
    active = count_parameters(d).active - 2 * d.vocabulary * d.hidden
    assert round(active / 1e9) == 40


@pytest.mark.parametrize("context", [100, 2047, 2048, 50_000])
def test_a_token_reads_the_keys_it_chooses_and_scores_all(context):
    found = works(Mode.DECODE, context=context)
    flash, index = found["flash"], found["index"]
    seen = min(context + 1, TOP)
    assert flash.macs == HEADS * seen * (576 + 512)
    queries = 2 * HEADS * (576 + 512)
    assert flash.stream_bytes == pytest.approx(seen * ROW + queries + 4 * seen)
    assert index.macs == 64 * 128 * (context + 1)
    assert index.of_cache
    assert index.stream_bytes == (context + 1) * KEY + 2 * 64 * 128 + 2 * 64 + 4 * seen


def test_many_queries_choose_from_all_there_is():
    found = works(Mode.PREFILL, sequence_length=4096, context=4096)
    flash = found["flash"]
    assert flash.macs == 4096 * HEADS * TOP * (576 + 512)
    assert flash.stream_bytes == 8192 * ROW + 4096 * (2 * HEADS * (576 + 512) + 4 * TOP)
    assert flash.flash.visible == 1.0
    assert found["index"].macs == 4096 * 64 * 128 * 8192
    first = works(Mode.PREFILL, sequence_length=4096)["flash"]
    assert first.flash.visible * 4096 * TOP == sum(min(q + 1, TOP) for q in range(4096))


@pytest.mark.parametrize("layout", KvCache)
def test_memory_of_a_token_is_a_latent_vector_and_a_key(layout):
    """132 bytes, as vLLM and SGLang keep it: 128 elements in fp8 and a scale."""
    chain = load_workload("deepseek-v3.2", Mode.DECODE, context=16 * 300 - 1, kv_cache=layout).chain(3, 1)
    assert sum(chain.layers[i].cache_bytes for i in chain.index) == 3 * 61 * 4800 * (ROW + KEY)


@pytest.mark.parametrize("attention", Attention)
def test_training_flops(attention):
    """Keys beyond those chosen are spared by flash attention, on folded queries; the indexer scores all."""
    tokens = 4096
    sparse, dense = (
        load_workload(name, Mode.TRAINING, attention, sequence_length=tokens).chain(1, 1).model_flops
        for name in ("deepseek-v3.2", "deepseek-v3")
    )
    indexer = 1536 * 64 * 128 + 7168 * (128 + 64) + 64 * 128 * tokens
    folding = TOP * (576 + 512) - tokens * (192 + 128) if attention is Attention.FLASH else 0
    given = 6 if attention is Attention.FLASH else 2
    assert sparse - dense == pytest.approx(61 * tokens * (given * indexer + 6 * HEADS * folding), rel=1e-12)


def test_devices_share_heads_and_repeat_the_indexer():
    model = load_workload("glm-5", Mode.DECODE, context=10_000)
    whole, part = (model.chain(4, width) for width in (1, 8))
    for one, other in zip(whole.layers, part.layers, strict=True):
        both = [{w.name: w for w in layer.forward.works} for layer in (one, other)]
        for name, work in both[0].items():
            if name.endswith("index"):
                assert both[1][name].macs == work.macs
            elif name.endswith("flash"):
                assert 8 * both[1][name].macs == work.macs


def test_an_indexer_needs_latent_queries():
    given = builtin_spec("llama3-8b").dimensions.model_dump(exclude_unset=True)
    sizes = {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 4}
    with pytest.raises(ValidationError, match="indexer goes with latent attention"):
        type(builtin_spec("llama3-8b").dimensions).model_validate(given | {"indexer": sizes})
