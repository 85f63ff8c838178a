"""Board power of single kernels that run back to back, against the energy law at the measured latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import busy_share, kernel_j, running_beyond_w, static_w
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import boost_clock_hz
from phaze.validation.measured.measured_cases import Cases, Judged, Row
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import attention
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE, UNKNOWN_FORMAT, product_of
from phaze.validation.sets.kernels.power_meter import IDLE_SHARE, LONG_S, SETTLED, filled, shown
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED
from phaze.workload.work import Format, Pass, Work

HELD: Mapping[str, float] = MappingProxyType(
    {"products": 0.2, "kept weights": 0.9, "others": 0.8, "short loops": 0.25}
)
"""Share of the second before a loop in which the chip was loaded alike (`power_meter.shown`), by what its collector
does between two loops: of products whose weights it makes anew, of those on the weights of the one before, of
attention and experts, and of short loops of any. Fitted to readings of H200 and GB200; `benchmarks/silicon.py` fits the
first three without each chip."""

UNWRITTEN = "operands that nothing wrote, a comparison of their own"
IDLE = "no more power than an idle GPU's while kernels run"
_SHORT, _LONG = "a loop that is too short to show its power", "a loop long enough for another comparison"
_WRITTEN = "operands of random numbers, another comparison"
_UNSETTLED = "a loop that fills little of the meter's second"


def watts(columns: Columns) -> Judged:
    """Board power in W of kernels on random numbers, in loops of `LONG_S` and more."""
    return long_loops(columns).judged()


def settled_watts(columns: Columns) -> Judged:
    """The same of loops that fill `SETTLED` of what the meter sees: kernels of tens of milliseconds."""
    return _compared(columns, lambda row: _unreadable(row) or _unsettled(row) or _random(row)).judged()


def short_watts(columns: Columns) -> Judged:
    """Board power in W that is read over shorter loops."""
    return _compared(columns, lambda row: _LONG if row.loop_s >= LONG_S else _random(row)).judged()


def unwritten_watts(columns: Columns) -> Judged:
    """Board power in W of kernels whose operands are memory as it was found, judged as if it held random numbers.

    Arithmetic on zeros switches little (arXiv 2409.18324): such products run at higher rates and draw less.
    """
    return _compared(
        columns, lambda row: _unreadable(row) or (None if _is_unwritten(row) else _WRITTEN)
    ).judged()


def long_loops(columns: Columns) -> Kernels:
    """What `watts` judges."""
    return _compared(columns, lambda row: _unreadable(row) or _random(row))


def _unreadable(row: _Reading) -> str | None:
    """Why a reading shows nothing of its kernel; short loops may well read what an idle board draws."""
    if row.loop_s < LONG_S:
        return _SHORT
    return IDLE if row.power_w < IDLE_SHARE * row.limit_w else None


def _unsettled(row: _Reading) -> str | None:
    filling = filled(np.array([row.loop_s]), np.array([row.latency_s]))[0]
    return _UNSETTLED if filling < SETTLED else None


def _random(row: _Reading) -> str | None:
    return UNWRITTEN if _is_unwritten(row) else None


_SIZES = (
    *("m", "k", "n", "batch", "isl", "step", "heads", "kv_heads", "head_dim", "window_size"),
    *("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"),
)
Sizes = Mapping[str, int]
"""Sizes of one kernel by the names of their columns, 0 where one does not apply."""


@dataclass(frozen=True)
class _Reading:
    """One row: what ran, for how long, and what was read."""

    device: str
    engine: str
    op: str
    dtype: str
    cache: str
    sizes: Sizes
    latency_s: float
    loop_s: float
    power_w: float
    limit_w: float


def _readings(columns: Columns) -> Iterator[_Reading]:
    sizes = {name: np.nan_to_num(columns.numbers(name)).astype(np.int64).tolist() for name in _SIZES}
    names = ("device", "framework", "op", "dtype", "kv_cache_dtype")
    texts = zip(*(columns[name] for name in names), strict=True)
    figures = zip(
        *(columns.numbers(n).tolist() for n in ("latency_ms", "loop_s_at_least", "power_w", "power_limit_w")),
        strict=True,
    )
    for row, (text, (latency_ms, loop_s, power_w, limit_w)) in enumerate(zip(texts, figures, strict=True)):
        own = {name: of[row] for name, of in sizes.items()}
        device, engine, op, dtype, cache = text
        yield _Reading(device, engine, op, dtype, cache, own, latency_ms * 1e-3, loop_s, power_w, limit_w)


@dataclass(frozen=True)
class Kernels:
    """Readings that are compared: what boards draw by the law, (R,), and how their meter shows it."""

    measured_w: Floats
    idle_w: Floats
    drawn_w: Floats
    filled: Floats
    before: tuple[str, ...]
    """What the collector does before each loop: keys of `HELD`."""
    rows: tuple[Row, ...]
    excluded: Mapping[str, int]

    def shown_w(self, held: Mapping[str, float] = HELD) -> Floats:
        """What the meter shows, (R,): idle + share x (drawn - idle)."""
        share = shown(self.filled, np.array([held[kind] for kind in self.before]))
        return np.asarray(self.idle_w + share * (self.drawn_w - self.idle_w))

    def judged(self) -> Judged:
        """The comparison."""
        return Judged(self.measured_w, {Fidelity.ANALYTIC: self.shown_w()}, dict(self.excluded), self.rows)


def _compared(columns: Columns, why_not: Callable[[_Reading], str | None]) -> Kernels:
    """Readings of kernels that the model has, but those that `why_not` gives a reason for."""
    cases, kept, before = Cases(), [], []
    for row in _readings(columns):
        chip, make = chip_of(row.device), _MAKERS.get(row.op)
        works = make(row.sizes, row.dtype, row.cache) if make else NOT_MODELLED
        if chip is None or isinstance(works, str):
            cases.drop(NO_TEMPLATE if chip is None else str(works))
        elif (reason := why_not(row)) is not None:
            cases.drop(reason)
        else:
            cases.keep(chip, works, row.latency_s)
            kept.append((row.power_w, row.limit_w, row.loop_s, row.latency_s))
            before.append(_before(row, chip))
    measured, limits, loops, latencies = np.array(kept).reshape(-1, 4).T
    idle, drawn = boards_w(cases.rows, limits)
    return Kernels(measured, idle, drawn, filled(loops, latencies), tuple(before), cases.rows, cases.excluded)


def _is_unwritten(row: _Reading) -> bool:
    """Whether vLLM's collector leaves an operand as memory is found.

    Weights of its products in 16 bits and in fp8 with a scale per tensor are `torch.empty` (aiconfigurator,
    collector/vllm/collect_gemm.py), and since keys and values are written by a call of its own, prefill reads a cache
    that nothing wrote (collector/vllm/collect_attn.py).
    """
    products = row.op == "gemm" and row.dtype in {"bfloat16", "fp8"}
    return row.engine == "vllm" and (products or row.op == "context_attention")


def _before(row: _Reading, chip: Architecture) -> str:
    """What the collector does before a loop: a key of `HELD`."""
    if row.loop_s < LONG_S:
        return "short loops"
    if row.op != "gemm":
        return "others"
    return "kept weights" if _keeps_weights(row, chip) else "products"


_LARGEST_FIRST = (32768, 16384, 8192, 4353, 4352, 4097)
_WORKERS = 4
"""Products that run first on new weights, one on each GPU of a GB200 tray."""


def _keeps_weights(row: _Reading, chip: Architecture) -> bool:
    """Whether a product runs on the weights of the one before.

    Those too large for the second-level cache, from the second product of each GPU on, most rows first
    (collector/trtllm/collect_gemm.py).
    """
    m, n, k = (row.sizes[name] for name in ("m", "n", "k"))
    first = [rows for rows in _LARGEST_FIRST if rows * max(n, k) < 2**31][:_WORKERS]
    cached = n * k * _WEIGHT_BYTES.get(row.dtype, 2.0) < to_table([chip])["global_buffer_bytes"][0]
    return row.engine == "trtllm" and not cached and m < min(first)


_WEIGHT_BYTES: Mapping[str, float] = MappingProxyType({"fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5})


def boards_w(rows: tuple[Row, ...], limits_w: Floats) -> tuple[Floats, Floats]:
    """What each row's board draws idle and while its kernels run, (R,) each.

    min(limit, running power + energy / measured time), all at the boost clock: there kernels run that leave the board
    room, and where they ask for more than it may draw, firmware lowers the clock until they draw just that, so that
    the board draws the lesser of both whatever the clock.
    """
    idle, drawn, network = np.empty(len(rows)), np.empty(len(rows)), load_network("default")
    chips: dict[str, Architecture] = {row.chip.name: row.chip for row in rows}
    for name, chip in chips.items():
        where = [i for i, row in enumerate(rows) if row.chip.name == name]
        table = to_table([chip])
        table = table.replace(clock_hz=boost_clock_hz(table))
        works = tuple(work for i in where for work in rows[i].works)
        of_row = np.repeat(np.arange(len(where)), [len(rows[i].works) for i in where])
        seconds = np.array([rows[i].measured_s for i in where])
        costs = CostModel(table, network).costs(Pass(works, ()))
        joules = np.bincount(of_row, kernel_j(costs, table), minlength=len(where))
        share = np.zeros(len(where))
        np.maximum.at(share, of_row, busy_share(works, table)[0])
        idle[where] = static_w(table)[0]  # between two loops the clock stays up
        running = idle[where] + share * running_beyond_w(table)[0]
        drawn[where] = np.minimum(running + joules / seconds, limits_w[where])
    return idle, drawn


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
