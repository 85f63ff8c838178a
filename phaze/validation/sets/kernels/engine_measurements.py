"""Seconds of single kernels of serving engines, products and attention, from the rows that also have their power."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phaze.cost.kernels.quantise_kernel import PER_BLOCK, quantisation
from phaze.validation.measured.measured_cases import Cases, Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import attention
from phaze.validation.sets.kernels.gemm_measurements import (
    NO_TEMPLATE,
    UNKNOWN_FORMAT,
    product_of,
    scaling_of,
)
from phaze.validation.sets.kernels.layer_measurements import aliased_cache, sorts_first
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED
from phaze.workload.work import Work

_SIXTEEN_BITS = "bfloat16"
_ATTENTION = ("context_attention", "generation_attention")
_SIZES = ("m", "k", "n", "batch", "isl", "step", "heads", "kv_heads", "head_dim", "window_size")
_Cells = Mapping[str, str]
_Sizes = Mapping[str, int]


def latencies(columns: Columns) -> Judged:
    """Products with the scaling before them, and causal attention in 16 bits without a window."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    sizes = {name: np.nan_to_num(columns.numbers(name)).astype(np.int64).tolist() for name in _SIZES}
    names = ("device", "op", "framework", "dtype", "kv_cache_dtype")
    for row, cells in enumerate(zip(*(columns[name] for name in names), strict=True)):
        named = dict(zip(names, cells, strict=True))
        chip, works = chip_of(named["device"]), _works(named, {name: of[row] for name, of in sizes.items()})
        if chip is None or isinstance(works, str):
            cases.drop(NO_TEMPLATE if chip is None else str(works))
        else:
            cases.keep(chip, works, float(latency[row]))
    return cases.judge()


def _works(cells: _Cells, sizes: _Sizes) -> tuple[Work, ...] | str:
    """Kernels of a row, or why there are none."""
    if cells["op"] == "gemm":
        return _product(cells, sizes)
    whole = cells["dtype"] == cells["kv_cache_dtype"] == _SIXTEEN_BITS and not sizes["window_size"]
    return _attention(cells, sizes) if cells["op"] in _ATTENTION and whole else NOT_MODELLED


def _product(cells: _Cells, sizes: _Sizes) -> tuple[Work, ...] | str:
    """vLLM finds the scale of each row and applies it by one kernel, as those of blocks."""
    m, k, dtype = sizes["m"], sizes["k"], cells["dtype"]
    work = product_of(dtype, m, k, sizes["n"])
    by_row = dtype == "fp8" and not sorts_first(cells["framework"])
    scaling = (quantisation(m, k, PER_BLOCK),) if by_row else scaling_of(dtype, m, k)
    return UNKNOWN_FORMAT if work is None else (*scaling, work)


def _attention(cells: _Cells, sizes: _Sizes) -> tuple[Work, ...]:
    heads, queries, engine = sizes["heads"], sizes["isl"], cells["framework"]
    kv_heads = sizes["kv_heads"] or heads
    decoding = cells["op"] == _ATTENTION[1]
    work = attention(
        *(sizes["batch"], queries, sizes["step"] + queries, heads, kv_heads, sizes["head_dim"]),
        causal=True,
        staged=sorts_first(engine) and not decoding,
        warm=True,
        aliased=decoding and aliased_cache(cells["device"], engine, heads, kv_heads),
    )
    return (work,)
