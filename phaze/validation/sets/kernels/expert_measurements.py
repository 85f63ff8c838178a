"""Layers of experts of serving engines on one device, under even and skewed routing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.cost.kernels.expert_layers import (
    FUSED,
    SCATTERED,
    UNPACKED,
    busiest_rows,
    expert_layer,
    experts_hit,
)
from phaze.cost.kernels.quantise_kernel import FP4_BYTES
from phaze.validation.measured.measured_cases import Cases, Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import product
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE, UNKNOWN_FORMAT
from phaze.workload.work import Format, Gemm, Work

SLOTS = "a layer with slots of its own among ranks, which the columns do not describe alike"


@dataclass(frozen=True, slots=True)
class _Operands:
    """Format of the arithmetic, and bytes of an element of activations and of weights, scales included."""

    format: Format
    row_bytes: float
    weight_bytes: float


_MX_SCALE = 1 / 32  # a byte for 32 elements
_FORMATS: Mapping[str, _Operands] = MappingProxyType(
    {
        "bfloat16": _Operands(Format.BF16, 2, 2),
        "fp8": _Operands(Format.FP8, 1, 1),
        "fp8_block": _Operands(Format.FP8, 1, 1),
        "nvfp4": _Operands(Format.FP4, FP4_BYTES, FP4_BYTES),
        "w4a8_mxfp4_mxfp8": _Operands(Format.FP8, 1 + _MX_SCALE, 0.5 + _MX_SCALE),
        "w4a16_mxfp4": _Operands(Format.BF16, 2, 0.5 + _MX_SCALE),
        "int4_wo": _Operands(Format.BF16, 2, 0.5 + 2 / 128),
    }
)
_UNPACKED = ("w4a16_mxfp4", "int4_wo")
_SCATTERED = re.compile("triton|^vllm_fused_moe$")
_UNGATED = "nongated"
_POWER = re.compile(r"power_law_([\d.]+)$")
_SIZES = (
    *("num_tokens", "hidden_size", "inter_size", "topk"),
    *("num_experts", "moe_tp_size", "moe_ep_size"),
)


def layers(columns: Columns) -> Judged:
    """Latency of one device's share of a layer; under a power law the busiest device's."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    sizes = {name: np.nan_to_num(columns.numbers(name)).astype(np.int64).tolist() for name in _SIZES}
    names = ("device", "op", "dtype", "distribution", "kernel_source")
    for row, cells in enumerate(zip(*(columns[name] for name in names), strict=True)):
        device, op, dtype, distribution, kernels = cells
        chip, operands = chip_of(device), _FORMATS.get(dtype)
        if chip is None or op != "moe":
            cases.drop(NO_TEMPLATE if chip is None else SLOTS)
        elif operands is None:
            cases.drop(UNKNOWN_FORMAT)
        else:
            kind = _kind(dtype, kernels)
            work = layer(kind, operands, {n: of[row] for n, of in sizes.items()}, distribution, kernels)
            cases.keep(chip, work, float(latency[row]))
    return cases.judge()


def _kind(dtype: str, kernels: str) -> str:
    if dtype in _UNPACKED:
        return UNPACKED
    return SCATTERED if _SCATTERED.search(kernels) else FUSED


def layer(kind: str, operands: _Operands, sizes: Mapping[str, int], distribution: str, kernels: str) -> Work:
    """The layer of a row; experts of a device share its rows evenly, as far as the products can tell."""
    skew = _POWER.match(distribution)
    rows = busiest_rows(
        *(sizes["num_tokens"], sizes["num_experts"], sizes["topk"], sizes["moe_ep_size"]),
        float(skew[1]) if skew else None,
    )
    hit, gated = experts_hit(rows) if skew else _even(rows), _UNGATED not in kernels
    each, model = max(1, math.ceil(rows.sum() / hit)), sizes["hidden_size"]
    inner = max(1, sizes["inter_size"] // sizes["moe_tp_size"])
    up = _grouped(hit, each, model, inner * (2 if gated else 1), operands)
    down = _grouped(hit, each, inner, model, operands)
    routes = sizes["num_tokens"] * sizes["topk"]
    return expert_layer(kind, routes, float(max(1.0, rows.sum())), up, down, gated=gated)


def _even(rows: Floats) -> int:
    """Experts that have rows where a few are dealt out one by one."""
    return max(1, min(len(rows), math.ceil(float(rows.sum()))))


def _grouped(groups: int, m: int, k: int, n: int, operands: _Operands) -> Gemm:
    gemm = product(groups, m, k, n, 2, operands=operands.format).gemms[0]
    a_bytes, b_bytes = gemm.a_bytes * operands.row_bytes / 2, gemm.b_bytes * operands.weight_bytes / 2
    return replace(gemm, a_bytes=a_bytes, b_bytes=b_bytes)
