"""Board power of kernels: rows that are judged, the law by hand, and the limit of the board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.quantise_kernel import PER_BLOCK, PER_TENSOR
from phaze.cost.pass_energy import running_w, static_w
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.package_power import energy_constants
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.kernels import power_meter
from phaze.validation.sets.kernels.engine_measurements import latencies
from phaze.validation.sets.kernels.power_measurements import (
    HELD,
    settled_watts,
    short_watts,
    unwritten_watts,
    watts,
)
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED

HEAD = (
    "device,framework,op,dtype,kv_cache_dtype,m,n,k,batch,isl,step,heads,kv_heads,head_dim,window_size,"
    "num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "latency_ms,power_w,power_limit_w,loop_s_at_least"
)
GEMM = "NVIDIA H200,{engine},gemm,{dtype},,{m},8192,8192,,,,,,,,,,,,,,,{ms},{watts},700,{loop}"
PREFILL = "NVIDIA H200,trtllm,context_attention,bfloat16,{cache},,,,8,4096,0,32,8,128,{window},,,,,,,,{ms},500,700,0.5"


def gemm(
    ms: float,
    loop: float = 1.0,
    dtype: str = "bfloat16",
    chip: str = "H200",
    engine: str = "trtllm",
    m: int = 8192,
    watts: float = 600,
) -> str:
    row = GEMM.format(ms=ms, loop=loop, dtype=dtype, engine=engine, m=m, watts=watts)
    return row.replace("H200", chip)


@pytest.fixture
def read(tmp_path: Path):
    def columns(*rows: str):
        path = tmp_path / "kernel_power_aiconfigurator.csv"
        path.write_text("\n".join([HEAD, *rows]) + "\n")
        return read_columns(path, TABLES[path.stem])

    return columns


def boosted(name: str):
    """A chip at the clock of kernels that leave power."""
    table = to_table([load_architecture(name)])
    return table.replace(clock_hz=table["boost_clock_hz"])


def share_shown(ms: float, loop_s: float = 1.0, kind: str = "products") -> float:
    """Share of a kernel's watts above idle that a reading shows, sample by sample."""
    samples = [0.1 * i for i in range(int(loop_s / 0.1 + 1e-9) + 1)]
    filled = sum(min(1.0, t + 6 * ms * 1e-3) for t in samples) / len(samples)
    return filled + HELD[kind] * (1 - filled)


def shown(watts: float, share: float, name: str = "h200") -> float:
    """What a reading shows of so many watts."""
    idle = float(static_w(boosted(name))[0])
    return idle + share * (watts - idle)


def test_a_meter_shows_half_of_a_second_after_nothing():
    """Samples at 0, 0.1, ..., 1 s of means over a second; ten seconds of warm-up leave nothing to wait for."""
    seconds = np.array([1e-9, 2.0, 0.05])
    filled = power_meter.filled(np.array([1.0, 1.0, 0.3]), seconds)
    assert filled == pytest.approx([0.5, 1.0, 0.3 + (0.0 + 0.1 + 0.2 + 0.3) / 4])
    assert power_meter.shown(filled, np.array([0.0, 0.3, 1.0])) == pytest.approx([0.5, 1.0, 1.0])


def test_a_product_draws_what_the_law_says(read):
    judged = watts(read(gemm(ms=4.0)))
    table = boosted("h200")
    e = energy_constants(table)
    standing = e.background_w * e.idle_background + e.leakage_w + e.hbm_background_w + e.kernel_w
    products = 8192.0**3 * (e.mac_j + e.operand_j_per_mac) / 4e-3
    memory = 3 * 2 * 8192.0**2 * e.hbm_j_per_byte / 4e-3
    at_least = shown((standing + products + memory)[0], share_shown(4.0))
    found = judged.predicted[Fidelity.ANALYTIC][0]
    assert at_least < found < 1.2 * at_least  # and reads of the second-level cache
    assert judged.measured.tolist() == [600]


def test_a_board_draws_no_more_than_its_limit(read):
    judged = watts(read(gemm(ms=0.5)))
    assert judged.predicted[Fidelity.ANALYTIC] == pytest.approx([shown(700, share_shown(0.5))])
    short = short_watts(read(gemm(ms=0.5, loop=0.1)))
    share = share_shown(0.5, 0.1, "short loops")
    assert short.predicted[Fidelity.ANALYTIC] == pytest.approx([shown(700, share)])


def test_weights_of_the_product_before_leave_the_chip_loaded(read):
    """Products of most rows run first on new weights, one on each GPU of a tray; weights of 128 MiB fill no cache."""
    first, later = watts(read(gemm(ms=0.1, m=8192), gemm(ms=0.1, m=4096))).predicted[Fidelity.ANALYTIC]
    assert first == pytest.approx(shown(700, share_shown(0.1)))
    assert later == pytest.approx(shown(700, share_shown(0.1, kind="kept weights")))


def test_readings_that_show_nothing_of_their_kernel_are_named(read):
    """Of a board that idles, of operands that nothing wrote, of a loop that is a small part of what the meter sees."""
    columns = read(gemm(ms=4.0, watts=140), gemm(ms=4.0, engine="vllm"), gemm(ms=4.0), gemm(ms=40.0))
    assert len(watts(columns).measured) == 2
    assert len(unwritten_watts(columns).measured) == 1
    settled = settled_watts(columns)
    assert [row.measured_s for row in settled.rows] == [0.04]
    assert sorted(settled.excluded.values()) == [1, 2]


def test_fewer_bits_take_less_and_less(read):
    """In the same time; a product in 8 bits takes about what one in 16 does, for twice the rate."""
    wide, eight, four = watts(
        read(*(gemm(ms=4.0, dtype=d, chip="GB200") for d in ("bfloat16", "fp8", "nvfp4")))
    ).predicted[Fidelity.ANALYTIC]
    assert four < eight == pytest.approx(wide, rel=0.05)


def test_experts_of_a_rank_are_two_grouped_products(read):
    """2,048 tokens, each to 4 of 16 experts on 2 ranks: 512 rows of each of the 8 experts here, half of each."""
    row = "NVIDIA H200,vllm,moe,bfloat16,,,,,,,,,,,,2048,4096,2048,4,16,2,2,2.0,500,700,1.0"
    works = watts(read(row)).rows[0].works
    assert [(g.groups, g.m, g.k, g.n) for w in works for g in w.gemms] == [
        (8, 512, 4096, 2048),
        (8, 512, 1024, 4096),
    ]


def test_a_cache_in_8_bits_moves_half_the_bytes(read):
    row = "NVIDIA H200,vllm,generation_attention,bfloat16,{cache},,,,64,1,4095,8,8,128,{window},,,,,,,,2.0,500,700,1.0"
    caches = 2 * 64 * 4096 * 8 * 128  # elements of keys and values
    wide, narrow, window = (
        watts(read(row.format(cache=cache, window=window))).rows[0].works[0].stream_bytes
        for cache, window in (("bfloat16", 0), ("fp8", 0), ("bfloat16", 1024))
    )
    assert wide - narrow == caches
    assert wide - window == 2 * caches * 3 / 4


def test_short_loops_are_a_comparison_of_their_own(read):
    columns = read(gemm(ms=4.0), gemm(ms=4.0, loop=0.1))
    assert (len(watts(columns).measured), len(short_watts(columns).measured)) == (1, 1)


def test_kernels_that_the_model_lacks_are_left_out(read):
    judged = watts(
        read(
            PREFILL.format(cache="bfloat16", window=0, ms=2.0),
            PREFILL.format(cache="bfloat16", window=64, ms=2.0),
            PREFILL.format(cache="bfloat16", window=128, ms=2.0),
            gemm(ms=4.0).replace("gemm", "mamba2"),
            gemm(ms=4.0).replace("H200", "Wonder 1"),
        )
    )
    assert (len(judged.measured), sum(judged.excluded.values())) == (1, 4)


def test_what_a_mask_hides_takes_no_power(read):
    """Twice the time for the same kernel is half the power beside what flows as long as a kernel runs."""
    fast, slow = (
        watts(read(PREFILL.format(cache="bfloat16", window=0, ms=ms))).predicted[Fidelity.ANALYTIC][0]
        for ms in (8.0, 16.0)
    )
    e, idle = energy_constants(boosted("h200")), float(static_w(boosted("h200"))[0])
    fast, slow = (
        idle + (found - idle) / share_shown(ms, 0.5, "others") for found, ms in ((fast, 8.0), (slow, 16.0))
    )
    running = float(running_w(boosted("h200"))[0])
    macs = 2 * 8 * 32 * 4096.0**2 * 128 / 2  # two products, half of the scores
    least = float((macs * (e.mac_j + e.operand_j_per_mac))[0])
    assert slow - running == pytest.approx((fast - running) / 2, rel=0.35)
    assert (slow - running) * 16e-3 > least
    assert (slow - running) * 16e-3 < 2 * least + 8.0
    assert np.isfinite([fast, slow]).all()


def test_latencies_are_of_scaling_and_product_and_of_attention_in_16_bits(read):
    decode = "NVIDIA GB200,{},generation_attention,bfloat16,{},,,,512,1,4095,8,8,128,0,,,,,,,,1,500,700,1"
    judged = latencies(
        read(
            gemm(1.0, dtype="fp8", chip="GB200"),
            gemm(1.0, dtype="fp8", chip="GB200", engine="vllm"),
            decode.format("trtllm", "bfloat16"),
            decode.format("vllm", "bfloat16"),
            decode.format("vllm", "fp8"),
        )
    )
    assert judged.excluded == {NOT_MODELLED: 1}
    tensor, row, aliased, kept = judged.rows
    assert [work.kind for work in tensor.works] == [PER_TENSOR, "matmul"]
    assert [work.kind for work in row.works] == [PER_BLOCK, "matmul"]
    # the values of TensorRT-LLM's cache come with its keys
    assert kept.works[0].stream_bytes - aliased.works[0].stream_bytes == 2 * 512 * 4096 * 8 * 128
