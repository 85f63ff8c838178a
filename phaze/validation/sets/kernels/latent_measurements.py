"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), the kernel alone, of serving engines."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from phaze.cost.kernels.flash_attention import LATENT_TRITON
from phaze.validation.measured.measured_cases import Cases, Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.validation.sets.kernels.layer_measurements import sorts_first
from phaze.workload.work import LATENT, Flash, Gemm, Traffic, Unit, Work

MODULE = "a whole module with its projections"
_RANK, _ROTARY, _NOPE, _VALUE = (
    512,
    64,
    128,
    128,
)  # of DeepSeek-V3: latent, rotated part, and the rest of a head
_GENERATION, _CONTEXT = "generation_mla", "context_mla"
_SIXTEEN_BITS = 2.0
_SCORE_CYCLES = 14.0  # of the softmax, as of other attention
_ABSORBED = re.compile("^flash_attention$|^triton$")
_SIZES = ("heads", "batch", "isl", "step")


def latent_attention(columns: Columns) -> Judged:
    """One query per sequence on a cache of latent rows, and whole sequences after a prefix."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    sizes = {name: np.nan_to_num(columns.numbers(name)).astype(np.int64).tolist() for name in _SIZES}
    names = ("device", "op", "framework", "kv_cache_dtype", "kernel_source")
    for row, cells in enumerate(zip(*(columns[name] for name in names), strict=True)):
        device, op, framework, cache, kernels = cells
        chip, size = chip_of(device), {n: of[row] for n, of in sizes.items()}
        if chip is None or op not in (_GENERATION, _CONTEXT):
            cases.drop(NO_TEMPLATE if chip is None else MODULE)
            continue
        kind = LATENT_TRITON if "triton" in kernels else LATENT
        absorbed = op == _GENERATION or bool(_ABSORBED.search(kernels))
        cache_bytes = 1.0 if cache == "fp8" else _SIXTEEN_BITS
        staged = op == _CONTEXT and sorts_first(framework)
        made = on_latents(kind, size, cache_bytes) if absorbed else on_heads(kind, size, staged=staged)
        cases.keep(chip, made, float(latency[row]))
    return cases.judge()


def on_latents(kind: str, size: Mapping[str, int], cache_bytes: float) -> Work:
    """All heads read one latent row per token, the projections of keys and values absorbed by queries and results."""
    batch, heads, queries, keys, visible = _shape(size)
    width, rows = _RANK + _ROTARY, heads * queries
    cache = float(batch * keys * width) * cache_bytes
    scores = Gemm(batch, rows, width, keys, 0.0, cache, 0.0, Traffic.FUSED)
    sums = Gemm(batch, rows, keys, _RANK, 0.0, 0.0, 0.0, Traffic.FUSED)
    moved = cache + _SIXTEEN_BITS * batch * rows * (width + _RANK)
    return _work(kind, (scores, sums), moved, Flash(queries, heads, visible, warm=True))


def on_heads(kind: str, size: Mapping[str, int], *, staged: bool) -> Work:
    """Every head on keys and values of its own, as projected before."""
    batch, heads, queries, keys, visible = _shape(size)
    width, groups = _NOPE + _ROTARY, batch * heads
    key_bytes, value_bytes = (_SIXTEEN_BITS * groups * keys * w for w in (width, _VALUE))
    scores = Gemm(groups, queries, width, keys, 0.0, key_bytes, 0.0, Traffic.FUSED)
    sums = Gemm(groups, queries, keys, _VALUE, 0.0, value_bytes, 0.0, Traffic.FUSED)
    read = _SIXTEEN_BITS * groups * queries * width + key_bytes + value_bytes
    moved = read + _SIXTEEN_BITS * groups * queries * _VALUE
    return _work(kind, (scores, sums), moved, Flash(queries, 1, visible, 2 * read * staged, warm=True))


def _shape(size: Mapping[str, int]) -> tuple[int, int, int, int, float]:
    """Sequences, heads, queries and keys of each, and the share of scores that the causal mask leaves."""
    queries, keys = size["isl"], size["isl"] + size["step"]
    return size["batch"], size["heads"], queries, keys, (keys - queries + (queries + 1) / 2) / keys


def _work(kind: str, gemms: tuple[Gemm, Gemm], moved: float, flash: Flash) -> Work:
    scores = gemms[0]
    cycles = _SCORE_CYCLES * scores.groups * scores.m * scores.n * flash.visible
    return Work(kind, kind, Unit.TENSOR_VECTOR, gemms, vector_cycles=cycles, stream_bytes=moved, flash=flash)
