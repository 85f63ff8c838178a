"""Flash attention alone on a chip: physical limits, masks by counting, and hand-worked cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import fitted_constants
from phaze.cost.kernels.flash_attention import (
    DecodeLaw,
    PrefillLaw,
    attention_chip,
    attention_sizes,
    decode_s,
    decodes,
    prefill_s,
)
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.kernels.streaming_kernels import StreamLaw
from phaze.cost.roofline_model import least_s, roofline_s, vector_cycles
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import peak_clock_hz
from phaze.hardware.hardware_fields import field_table
from phaze.validation.measured.single_operators import attention, product
from phaze.workload.operators.elementwise_cycles import EXP
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.operator_steps import OperatorContext
from phaze.workload.operators.rule_table import RULES
from phaze.workload.work import Format, Pass

CHIPS = {name: to_table([load_architecture(name)]) for name in ("a100-80gb", "h200", "b200", "l40s", "mi210")}
NETWORK = load_network("default")
# nothing lost: what is left are tiles, waves and bytes
SEQUENCES = PrefillLaw(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
DECODING = DecodeLaw(0.0, 0.0, 0.0, 1.0, 1e30, 1.0, 1e30, 0.0, 0.0, 0.0)
PEAK, BANDWIDTH, SMS = 311.86944e12, 2039e9, 108  # of the A100


def seconds(work, rung=Fidelity.ANALYTIC, chip="a100-80gb"):
    return float(kernels_s([work], CHIPS[chip], rung)[0, 0])


def ideal_s(*sizes, decoding=DECODING, **how):
    work, table = attention(*sizes, **how), CHIPS["a100-80gb"]
    kind, law = (decode_s, decoding) if decodes(work) else (prefill_s, SEQUENCES)
    return float(kind(attention_sizes([work], table), attention_chip(table), law)[0])


def operator(queries, keys, window=0, *, causal=True):
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, (2, tokens, 256)) for name, tokens in (("q", queries), ("k", keys), ("v", keys)))
    seen = {"window": window} if window else {}
    sizes = {"heads": 4, "kv_heads": 4, "head_size": 64}
    g.add("y", OpKind.ATTENTION, (q, k, v), (2, queries, 256), causal=causal, **sizes, **seen)
    graph = g.build(("y",))
    return graph.operators[0], OperatorContext(graph.tensors, set(), {"q", "k", "v", "y"}, training=True)


def forward(*sizes, **mask):
    op, ctx = operator(*sizes, **mask)
    return RULES[op.kind].forward(op, ctx).work


def backward(*sizes, **mask):
    op, ctx = operator(*sizes, **mask)
    (step,) = RULES[op.kind].backward(op, ctx, {"y": "d.y"})
    return step.work


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 90))
def test_visible_scores_are_those_that_a_mask_leaves(queries, before, window):
    keys = queries + before
    at = np.arange(before, keys)[:, None]  # place of each query among the keys
    seen = np.arange(keys) <= at
    if window:
        seen &= np.arange(keys) > at - window
    work = forward(queries, keys, window)
    assert work.flash.visible * queries * work.gemms[0].n == pytest.approx(seen.sum())
    assert backward(queries, keys, window).flash == work.flash


def test_without_a_mask_all_scores_are_visible():
    assert forward(96, 96, causal=False).flash.visible == 1


@given(
    batch=st.integers(1, 300),
    queries=st.sampled_from((1, 1, 17, 128, 1000, 4096)),
    keys=st.integers(1, 9000),
    kv_heads=st.sampled_from((1, 2, 8)),
    share=st.sampled_from((1, 4, 12, 40)),
    head=st.sampled_from((64, 128)),
    chip=st.sampled_from(sorted(CHIPS)),
    warm=st.booleans(),
)
def test_never_below_the_roofline(batch, queries, keys, kv_heads, share, head, chip, warm):
    work = attention(
        batch, queries, max(queries, keys), kv_heads * share, kv_heads, head, causal=True, warm=warm
    )
    assert seconds(work, chip=chip) >= roofline_s(Pass((work,), ()), CHIPS[chip], NETWORK)[0, 0] * (1 - 1e-12)


@given(st.integers(1, 200), st.integers(1, 4096), st.sampled_from(sorted(CHIPS)))
def test_more_sequences_never_take_less(batch, queries, chip):
    work = [attention(b, queries, queries, 8, 8, 64, causal=True, staged=True) for b in (batch, batch + 3)]
    assert seconds(work[1], Fidelity.CALIBRATED, chip) >= seconds(work[0], Fidelity.CALIBRATED, chip)


def test_masked_tiles_are_skipped():
    # 108 heads of four tiles of queries: four waves; 1 + 2 + 3 + 4 of 16 tiles of scores
    tile = 4 * 128 * 128 * 128 / (PEAK / SMS)
    assert ideal_s(1, 512, 512, SMS, SMS, 128, causal=True) == pytest.approx(10 * tile)
    assert ideal_s(1, 512, 512, SMS, SMS, 128, causal=False) == pytest.approx(16 * tile)


def test_one_tile_more_than_multiprocessors_costs_a_second_wave():
    one = ideal_s(1, 128, 8192, SMS, 1, 128, causal=False)
    assert ideal_s(1, 128, 8192, SMS + 1, 1, 128, causal=False) == pytest.approx(2 * one)


def test_rearranging_before_reads_and_writes_queries_keys_and_values():
    sizes = (8, 4096, 4096, 16, 4, 128)
    staged = ideal_s(*sizes, causal=True, staged=True) - ideal_s(*sizes, causal=True)
    assert staged == pytest.approx(2 * 2 * 8 * 4096 * (16 + 2 * 4) * 128 / BANDWIDTH)


def test_decoding_reads_a_shared_cache_once():
    cache = 2 * 2 * 64 * 8192 * 8 * 128
    own = 2 * 2 * 64 * 128  # queries and outputs of one head
    for heads in (8, 64):
        moved = cache + own * heads
        assert ideal_s(64, 1, 8192, heads, 8, 128, causal=True) == pytest.approx(moved / BANDWIDTH)


def test_many_heads_of_a_group_read_it_through_the_chips_cache():
    slow = replace(DECODING, cache_bytes_per_cycle=20.0)
    found = ideal_s(64, 1, 8192, 48, 1, 128, causal=True, decoding=slow)
    assert found == pytest.approx(2 * 2 * 64 * 8192 * 48 * 128 / (SMS * 1.41e9 * 20.0), rel=1e-3)


def test_what_stays_in_the_cache_needs_no_memory():
    sizes = (16, 1, 2048, 8, 8, 128)  # 134 MB, more than the L2 of the A100, and 84 MB
    assert ideal_s(*sizes, causal=True, warm=True) == ideal_s(*sizes, causal=True)
    fits = (4, 1, 2048, 8, 8, 128)
    assert ideal_s(*fits, causal=True, warm=True) < ideal_s(*fits, causal=True) / 5


@pytest.mark.parametrize("chip", sorted(CHIPS))
def test_backward_takes_its_five_products_for_forwards_two(chip):
    before, after = (seconds(p(8192, 8192), Fidelity.CALIBRATED, chip) for p in (forward, backward))
    assert 1.5 < after / before < 3.3  # the softmax is about the same, with two kernels around


@pytest.mark.parametrize("rung", [Fidelity.ANALYTIC, Fidelity.CALIBRATED])
def test_gradients_of_queries_are_added_up_in_fp32(rung):
    """Before: output and its gradient are read, sums of rows and zeros written; after: fp32 read, 16 bits written."""
    work, chip = backward(32768, 32768), CHIPS["a100-80gb"]
    family = "ampere" if rung is Fidelity.CALIBRATED else "generic"
    law = fitted_constants(PrefillLaw, "attention_prefill.yaml")[family].law
    streams = fitted_constants(StreamLaw, "streams.yaml")[family].law
    products = prefill_s(attention_sizes([work], chip), attention_chip(chip), law)[0]
    rows, clock = 2 * 4 * 32768, float(peak_clock_hz(chip)[0])
    moved = rows * (2 * 2 * 64 + 4 + 4 * 64) + rows * (4 * 64 + 2 * 64)
    around = moved / (streams.memory_efficiency * BANDWIDTH) + 2 * streams.launch_cycles / clock
    assert seconds(work, rung) - products == pytest.approx(around, rel=1e-3)
    assert seconds(forward(8192, 8192), rung) == pytest.approx(
        float(prefill_s(attention_sizes([forward(8192, 8192)], chip), attention_chip(chip), law)[0])
    )


def test_a_window_costs_what_it_leaves():
    full, window = (seconds(forward(16384, 16384, keys)) for keys in (0, 1024))
    assert 6 < full / window < 8  # of 8192 keys on average, 1024 and a tile's edge


def test_attention_on_other_chips_and_other_operators_have_no_law():
    tpu = to_table([load_architecture("tpuv4")])
    works = [attention(2, 512, 512, 8, 8, 64, causal=True)]
    assert np.isnan(kernels_s(works, tpu, Fidelity.ANALYTIC)).all()
    with pytest.raises(ValueError, match="no flash attention"):
        decodes(product(1, 8, 8, 8))


@pytest.mark.parametrize(
    ("kind", "file"), [(PrefillLaw, "attention_prefill.yaml"), (DecodeLaw, "attention_decode.yaml")]
)
def test_families_with_constants_are_choices_of_the_field(kind, file):
    assert set(fitted_constants(kind, file)) <= set(field_table()["family"].choices)


def test_fp32_runs_at_the_rate_of_fp32():
    """A long sequence, bound by its products: 16 times slower on the A100, in tf32 twice."""
    work = attention(1, 8192, 8192, 16, 16, 128, causal=False)

    def of(operands):
        return replace(work, gemms=tuple(replace(gemm, operands=operands) for gemm in work.gemms))

    half, tf32, fp32 = (seconds(of(operands)) for operands in (None, Format.TF32, Format.FP32))
    assert 10 * half < fp32 < 18 * half
    assert 1.5 * half < tf32 < 2.1 * half
    both = kernels_s([of(Format.FP32), work], CHIPS["a100-80gb"], Fidelity.ANALYTIC)[0]
    assert both == pytest.approx([fp32, half])


def test_faster_exponentials_take_their_part_of_a_score_alone():
    """Of 14 cycles of a score ten are its exponential; on a GPU nothing hides special function units or the rest."""
    chip = load_architecture("gb200")
    table = to_table([chip, chip.replace("twice", exponential_rate=2.0)])
    work, other = attention(1, 4096, 4096, 8, 8, 128, causal=True), product(1, 64, 64, 64)
    first, second = vector_cycles(work, table) / (8 * 4096 * 4096)
    assert first - second == pytest.approx(EXP / 2)
    wide = [chip.replace("x", exponential_rate=rate, tensor_core_rows=1024) for rate in (0.5, 1, 2, 4)]
    least = least_s(work, to_table(wide)) / least_s(work, to_table([wide[0]]))
    others = work.vector_cycles / (8 * 4096 * 4096) - EXP
    assert least == pytest.approx([1, 1 / 2, max(4, others) / 16, others / 16])
    systolic = to_table(
        [chip.replace("x", simt=False, exponential_rate=rate, tensor_core_rows=1024) for rate in (1, 2)]
    )
    assert np.divide(*least_s(work, systolic)) == pytest.approx(first / second)
    for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED):
        seconds = kernels_s([work, other], table, rung)
        assert seconds[1, 0] < seconds[0, 0]
        assert seconds[1, 1] == seconds[0, 1]
