"""Board power of single kernels that run back to back, against the energy law at the measured latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import kernel_power_w
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.validation.measured_cases import Cases, Judged, Row
from phaze.validation.measured_systems import chip_of
from phaze.validation.measurement_columns import Columns
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE, UNKNOWN_FORMAT, product_of
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED
from phaze.validation.single_operators import attention
from phaze.workload.work import Pass, Work

LONG_S = 0.3
"""Loops that last as long show the kernel's power; of shorter ones NVML's mean holds idle time before the loop."""

_SHORT, _LONG = "a loop that is too short to show its power", "a loop long enough for the other comparison"


def watts(columns: Columns) -> Judged:
    """Board power of kernels in W, in loops of `LONG_S` and more."""
    return _judge(columns, lambda loop_s: loop_s >= LONG_S, _SHORT)


def short_watts(columns: Columns) -> Judged:
    """Board power in W that is read over shorter loops."""
    return _judge(columns, lambda loop_s: loop_s < LONG_S, _LONG)


_SIZES = ("m", "k", "n", "batch", "isl", "step", "heads", "kv_heads", "head_dim", "window_size")
Sizes = Mapping[str, int]
"""Sizes of one kernel by the names of their columns, 0 where one does not apply."""


def _judge(columns: Columns, wanted: Callable[[float], bool], otherwise: str) -> Judged:
    cases, kept = Cases(), []
    loops, latency = columns.numbers("loop_s_at_least"), columns.numbers("latency_ms") * 1e-3
    sizes = {name: np.nan_to_num(columns.numbers(name)).astype(np.int64).tolist() for name in _SIZES}
    named = zip(*(columns[name] for name in ("device", "op", "dtype", "kv_cache_dtype")), strict=True)
    for row, (device, op, dtype, cache) in enumerate(named):
        chip, make = chip_of(device), _MAKERS.get(op)
        work = make({name: of[row] for name, of in sizes.items()}, dtype, cache) if make else NOT_MODELLED
        if chip is None or isinstance(work, str):
            cases.drop(NO_TEMPLATE if chip is None else str(work))
        elif not wanted(float(loops[row])):
            cases.drop(otherwise)
        else:
            cases.keep(chip, work, float(latency[row]))
            kept.append(row)
    limits, measured = columns.numbers("power_limit_w")[kept], columns.numbers("power_w")[kept]
    predicted = np.minimum(_predicted_w(cases.rows), limits)
    return Judged(measured, {Fidelity.ANALYTIC: predicted}, cases.excluded, cases.rows)


def _predicted_w(rows: tuple[Row, ...]) -> Floats:
    """Power by the energy law of each kernel on its chip, whatever the board's limit."""
    power, network = np.empty(len(rows)), load_network("default")
    chips: dict[str, Architecture] = {row.chip.name: row.chip for row in rows}
    for name, chip in chips.items():
        where = [i for i, row in enumerate(rows) if row.chip.name == name]
        works = tuple(rows[i].works[0] for i in where)
        costs = CostModel(to_table([chip]), network).costs(Pass(works, ()))
        seconds = np.array([rows[i].measured_s for i in where])
        power[where] = kernel_power_w(costs, to_table([chip]), seconds)
    return power


def _gemm(sizes: Sizes, dtype: str, cache: str) -> Work | str:
    return product_of(dtype, sizes["m"], sizes["k"], sizes["n"]) or UNKNOWN_FORMAT


def _attention(sizes: Sizes, dtype: str, cache: str) -> Work | str:
    """Causal attention of whole sequences, or of one query each on a cache, in bf16."""
    if sizes["window_size"] or "bfloat16" not in dtype or "bfloat16" not in cache:
        return NOT_MODELLED
    heads, keys = sizes["heads"], sizes["step"] + sizes["isl"]
    return attention(
        *(sizes["batch"], sizes["isl"], keys, heads, sizes["kv_heads"] or heads, sizes["head_dim"]),
        causal=True,
        warm=True,
    )


_MAKERS: Mapping[str, Callable[[Sizes, str, str], Work | str]] = MappingProxyType(
    {"gemm": _gemm, "context_attention": _attention, "generation_attention": _attention}
)
