"""Board power of single kernels that run back to back, against the energy law at the measured latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import kernel_j, running_w, static_w
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import peak_clock_hz
from phaze.validation.measured.measured_cases import Cases, Judged, Row
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import attention
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE, UNKNOWN_FORMAT, product_of
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED
from phaze.workload.work import Format, Pass, Work

LONG_S = 0.3
"""Loops that last as long show the kernel's power; of shorter ones NVML's mean holds idle time before the loop."""

SHOWN = 0.75
"""Share of a kernel's power above idle that the mean of a long loop shows: the first of ten samples is taken before the
power has risen, and NVML's own mean trails by up to a second. Fitted to the published long loops: 0.7 gives 30.5 % of
mean error and 23.7 % of median error, 0.8 gives 31.8 and 19.2 %."""

SHOWN_SHORT = 0.5
"""The same of loops with one to three samples, the first of them before the power has risen."""

_SHORT, _LONG = "a loop that is too short to show its power", "a loop long enough for the other comparison"


def watts(columns: Columns) -> Judged:
    """Board power of kernels in W, in loops of `LONG_S` and more."""
    return _judge(columns, lambda loop_s: loop_s >= LONG_S, _SHORT, SHOWN)


def short_watts(columns: Columns) -> Judged:
    """Board power in W that is read over shorter loops."""
    return _judge(columns, lambda loop_s: loop_s < LONG_S, _LONG, SHOWN_SHORT)


_SIZES = (
    *("m", "k", "n", "batch", "isl", "step", "heads", "kv_heads", "head_dim", "window_size"),
    *("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"),
)
Sizes = Mapping[str, int]
"""Sizes of one kernel by the names of their columns, 0 where one does not apply."""


def _judge(columns: Columns, wanted: Callable[[float], bool], otherwise: str, shown: float) -> Judged:
    cases, kept = Cases(), []
    loops, latency = columns.numbers("loop_s_at_least"), columns.numbers("latency_ms") * 1e-3
    sizes = {name: np.nan_to_num(columns.numbers(name)).astype(np.int64).tolist() for name in _SIZES}
    named = zip(*(columns[name] for name in ("device", "op", "dtype", "kv_cache_dtype")), strict=True)
    for row, (device, op, dtype, cache) in enumerate(named):
        chip, make = chip_of(device), _MAKERS.get(op)
        works = make({name: of[row] for name, of in sizes.items()}, dtype, cache) if make else NOT_MODELLED
        if chip is None or isinstance(works, str):
            cases.drop(NO_TEMPLATE if chip is None else str(works))
        elif not wanted(float(loops[row])):
            cases.drop(otherwise)
        else:
            cases.keep(chip, works, float(latency[row]))
            kept.append(row)
    limits, measured = columns.numbers("power_limit_w")[kept], columns.numbers("power_w")[kept]
    return Judged(
        measured, {Fidelity.ANALYTIC: readings_w(cases.rows, limits, shown)}, cases.excluded, cases.rows
    )


def readings_w(rows: tuple[Row, ...], limits_w: Floats, shown: float) -> Floats:
    """What NVML shows of each row's kernels on a board of a limit.

    P = idle + `shown` x (min(limit, running power + energy / measured time) - idle), all at the peak clock: there
    kernels run that leave the board room, and where they ask for more than it may draw, firmware lowers the clock
    until they draw just that, so that the board draws the lesser of both whatever the clock.
    """
    power, network = np.empty(len(rows)), load_network("default")
    chips: dict[str, Architecture] = {row.chip.name: row.chip for row in rows}
    for name, chip in chips.items():
        where = [i for i, row in enumerate(rows) if row.chip.name == name]
        table = to_table([chip])
        table = table.replace(clock_hz=peak_clock_hz(table))
        works = tuple(work for i in where for work in rows[i].works)
        of_row = np.repeat(np.arange(len(where)), [len(rows[i].works) for i in where])
        seconds = np.array([rows[i].measured_s for i in where])
        costs = CostModel(table, network).costs(Pass(works, ()))
        joules = np.bincount(of_row, kernel_j(costs, table, seconds[of_row]), minlength=len(where))
        idle = static_w(table)[0]
        power[where] = idle + shown * (
            np.minimum(running_w(table)[0] + joules / seconds, limits_w[where]) - idle
        )
    return power


def _gemm(sizes: Sizes, dtype: str, cache: str) -> tuple[Work, ...] | str:
    work = product_of(dtype, sizes["m"], sizes["k"], sizes["n"])
    return UNKNOWN_FORMAT if work is None else (work,)


def _attention(sizes: Sizes, dtype: str, cache: str) -> tuple[Work, ...] | str:
    """Causal attention of whole sequences, or of one query each on a cache, in 16 or 8 bits."""
    heads, keys, queries = sizes["heads"], sizes["step"] + sizes["isl"], sizes["isl"]
    if sizes["window_size"]:
        if queries > 1:
            return NOT_MODELLED
        keys = min(keys, sizes["window_size"])
    kv_heads = sizes["kv_heads"] or heads
    work = attention(
        *(sizes["batch"], queries, keys, heads, kv_heads, sizes["head_dim"]), causal=True, warm=True
    )
    if "fp8" in cache:
        halves = 2.0 * sizes["batch"] * keys * kv_heads * sizes["head_dim"]  # of keys and values
        work = replace(work, stream_bytes=work.stream_bytes - halves)
    if dtype == "fp8":
        work = replace(work, gemms=tuple(replace(g, operands=Format.FP8) for g in work.gemms))
    return (work,)


def _encoder(sizes: Sizes, dtype: str, cache: str) -> tuple[Work, ...] | str:
    """Attention of whole sequences to all of themselves, in 16 bits."""
    heads, queries = sizes["heads"], sizes["isl"]
    kv_heads = sizes["kv_heads"] or heads
    return (
        attention(
            *(sizes["batch"], queries, queries, heads, kv_heads, sizes["head_dim"]), causal=False, warm=True
        ),
    )


def _experts(sizes: Sizes, dtype: str, cache: str) -> tuple[Work, ...] | str:
    """Gated experts of one rank, both grouped products, as if tokens were spread evenly over the experts."""
    experts = max(1, sizes["num_experts"] // sizes["moe_ep_size"])
    rows = sizes["num_tokens"] * sizes["topk"] / sizes["moe_ep_size"]
    hit = int(min(experts, np.ceil(rows)))
    each = max(1, int(np.ceil(rows / max(1, hit))))
    model, inner = sizes["hidden_size"], sizes["inter_size"] // sizes["moe_tp_size"]
    up, down = product_of(dtype, each, model, 2 * inner, hit), product_of(dtype, each, inner, model, hit)
    return UNKNOWN_FORMAT if up is None or down is None else (up, down)


_MAKERS: Mapping[str, Callable[[Sizes, str, str], tuple[Work, ...] | str]] = MappingProxyType(
    {
        "gemm": _gemm,
        "context_attention": _attention,
        "encoder_attention": _encoder,
        "generation_attention": _attention,
        "moe": _experts,
    }
)
