"""One GPT-3 block worked out by hand, tensor-parallel over 8 devices, against the cost of every operator.

The spreadsheet below counts multiply-accumulates, bytes and all-reduce payloads from the dimensions alone
(Brown et al. 2020, table 2.1; Megatron-LM's split), without the graph, the rules or the fusion under test.
"""

import numpy as np
import pytest

from phaze.cost.collectives.collective_times import wire_bytes
from phaze.cost.cost_model import CostModel
from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.workload.work import Collective, Unit
from phaze.workload.workload_loader import load_workload

S, H, HEADS, D, T = 2048, 12288, 96, 128, 8
LOCAL = H // T  # columns of one device in attention
WIDE = 4 * H // T  # and in the feed-forward half
ROW = 2 * S * H  # bytes of a whole bf16 activation
PIECE, WIDE_PIECE = 2 * S * LOCAL, 2 * S * WIDE
SCORES = HEADS // T * S * S
ROW_SUMS = 4 * HEADS // T * S  # fp32 log-sum-exp
MASK = S * H  # dropout, one byte each
NORM = 2 * 2 * H  # scale and shift
REDUCE = (0, 0, ROW)


def weights(count):
    """Bytes of bf16 weights, and of fp32 gradients that are read and written."""
    return 2 * count, 2 * 4 * count


W_QKV, D_QKV = weights(H * 3 * LOCAL)
W_OUT, D_OUT = weights(LOCAL * H)
W_MLP, D_MLP = weights(H * WIDE)
B_QKV, DB_QKV = weights(3 * LOCAL)
B_ROW, DB_ROW = weights(H)
B_UP, DB_UP = weights(WIDE)
_, D_NORM = weights(2 * H)

# operator: (multiply-accumulates, HBM bytes with every tensor moved once, all-reduce payload)
ATTENTION_FORWARD = {
    "norm": (0, 2 * ROW + NORM, 0),
    "qkv+add_bias": (S * H * 3 * LOCAL, ROW + W_QKV + B_QKV + 3 * PIECE, 0),
    "flash": (2 * SCORES * D, 4 * PIECE + ROW_SUMS, 0),
    "projection": (S * LOCAL * H, PIECE + W_OUT + ROW, 0),
    "projection.reduce": REDUCE,
    "projection.add_bias+dropout+residual": (0, 3 * ROW + MASK + B_ROW, 0),
}
ATTENTION_BACKWARD = {
    "dropout.dX+projection.add_bias.dW": (0, 2 * ROW + MASK + DB_ROW, 0),
    "projection.dX": (S * LOCAL * H, ROW + W_OUT + PIECE, 0),
    "projection.dW": (S * LOCAL * H, PIECE + ROW + D_OUT, 0),
    "flash.dX": (5 * SCORES * D, 8 * PIECE + ROW_SUMS, 0),  # q k v o dO in, dq dk dv out; scores again
    "qkv.add_bias.dW": (0, 3 * PIECE + DB_QKV, 0),
    "qkv.dX": (S * H * 3 * LOCAL, 3 * PIECE + W_QKV + ROW, 0),
    "qkv.dW": (S * H * 3 * LOCAL, ROW + 3 * PIECE + D_QKV, 0),
    "norm.copy.dX": REDUCE,
    "norm.dX+gradient_sum": (0, 4 * ROW + NORM / 2 + D_NORM, 0),  # dY, x, residual gradient, result
}
MLP_FORWARD = {
    "norm": (0, 2 * ROW + NORM, 0),
    "up+add_bias+gelu_tanh": (S * H * WIDE, ROW + W_MLP + B_UP + 2 * WIDE_PIECE, 0),  # GELU keeps its input
    "down": (S * H * WIDE, WIDE_PIECE + W_MLP + ROW, 0),
    "down.reduce": REDUCE,
    "down.add_bias+dropout+residual": (0, 3 * ROW + MASK + B_ROW, 0),
}
MLP_BACKWARD = {
    "dropout.dX+down.add_bias.dW": (0, 2 * ROW + MASK + DB_ROW, 0),
    "down.dW": (S * H * WIDE, WIDE_PIECE + ROW + D_MLP, 0),
    "down.dX+gelu_tanh.dX+up.add_bias.dW": (S * H * WIDE, ROW + W_MLP + 2 * WIDE_PIECE + DB_UP, 0),
    "up.dX": (S * H * WIDE, WIDE_PIECE + W_MLP + ROW, 0),
    "up.dW": (S * H * WIDE, ROW + WIDE_PIECE + D_MLP, 0),
    "norm.copy.dX": REDUCE,
    "norm.dX+gradient_sum": (0, 4 * ROW + NORM / 2 + D_NORM, 0),
}
SHEET = {
    ("block.attention", "forward"): ATTENTION_FORWARD,
    ("block.attention", "backward"): ATTENTION_BACKWARD,
    ("block.mlp", "forward"): MLP_FORWARD,
    ("block.mlp", "backward"): MLP_BACKWARD,
}
# chip: (MAC/s, HBM bytes/s, link bytes/s per direction), from the data sheets and the sustained clock
CHIPS = {
    "tpuv4": (8 * 128 * 128 * 1.05e9, 1200e9, 300e9),
    "a100-80gb": (108 * 4 * 256 * 1.29e9, 2039e9, 300e9),
    "h100": (132 * 4 * 512 * 1.50e9, 3350e9, 450e9),
}


def passes():
    """(sheet, pass) of both halves of a block and both directions."""
    layers = {layer.kind: layer for layer in load_workload("gpt3").chain(1, T).layers}
    return [(sheet, getattr(layers[kind], direction)) for (kind, direction), sheet in SHEET.items()]


def least_bytes(work):
    tiled = (g for g in work.gemms if g.traffic.value == "tiled")
    return work.stream_bytes + sum(g.a_bytes + g.b_bytes + g.c_bytes for g in tiled)


def test_every_operator_does_the_work_and_moves_the_bytes_of_the_sheet():
    for sheet, pass_ in passes():
        assert [w.name for w in pass_.works] == list(sheet)
        for work, (macs, moved, payload) in zip(pass_.works, sheet.values(), strict=True):
            assert work.macs == macs, work.name
            assert (work.link.payload_bytes if work.link else 0) == payload, work.name
            if work.unit is not Unit.LINK:
                # per-row statistics and parameters of norms are below a thousandth
                assert least_bytes(work) == pytest.approx(moved, rel=1e-3), work.name


@pytest.mark.parametrize("name", CHIPS)
def test_latencies_are_above_and_close_to_the_ideal(name):
    mac_rate, hbm_rate, link_rate = CHIPS[name]
    table = to_table([load_architecture(name)])
    model = CostModel(table, load_network())
    for sheet, pass_ in passes():
        times = model.costs(pass_).latencies(np.array([0]))
        fastest = np.minimum(times.single_s, times.parallel_s)[0]
        for work, took_s, (macs, moved, payload) in zip(pass_.works, fastest, sheet.values(), strict=True):
            sent = wire_bytes(Collective.ALL_REDUCE, payload, T)
            assert sent == 2 * 7 / 8 * payload
            ideal_s = max(macs / mac_rate, moved * 0.999 / hbm_rate, sent / link_rate)
            assert ideal_s <= took_s
            if macs and "flash" not in work.name:
                # large products run near the peak; on a GPU those of a millisecond and less lose in waves
                assert took_s < (1.6 if table["simt"][0] else 1.25) * ideal_s, work.name
            if work.unit is Unit.LINK:
                assert took_s < 1.1 * ideal_s  # latency is small beside 50 MB
        assert times.hbm_s[0] >= sum(moved for _, moved, _ in sheet.values()) * 0.999 / hbm_rate


@pytest.mark.parametrize("name", CHIPS)
def test_flash_attention_is_bound_by_the_exponentials_or_the_products(name):
    """No s^2 tensor: HBM never binds; softmax on the vector cores may."""
    table = to_table([load_architecture(name)])
    model = CostModel(table, load_network())
    for _, pass_ in passes():
        costs = model.costs(pass_)
        seen = costs.attribution(np.array([0]))
        for o, work in enumerate(pass_.works):
            if "flash" in work.name:
                assert seen.hbm_s[0, o] < 0.5 * seen.compute_s[0, o]


def test_the_optimizer_streams_thirty_bytes_per_parameter():
    """Gradient, master copy and two moments in, master, moments and weight out: 16 + 14 (fp32, bf16)."""
    numerics = load_workload("gpt3").numerics
    assert numerics.optimizer_traffic_bytes == 4 * 4 + 3 * 4 + 2
    for name, (_, hbm_rate, _) in CHIPS.items():
        table = to_table([load_architecture(name)])
        assert optimizer_s_per_parameter(table, numerics)[0] == pytest.approx(30 / hbm_rate, rel=1e-12)


def test_whole_model_flops_are_megatrons():
    """Narayanan et al., SC'21, equation 2 without recompute: 72 B s l h^2 (1 + s / 6h + V / 12 l h)."""
    flops = load_workload("gpt3").chain(1, T).model_flops
    layers, vocabulary = 96, 50257
    published = 72 * S * layers * H**2 * (1 + S / (6 * H) + vocabulary / (12 * layers * H))
    assert flops == pytest.approx(published, rel=1e-3)
