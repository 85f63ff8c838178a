"""Kernels of one GPU as `dse measure gpu` measures them: seconds and board watts, and the clock of products that
firmware holds down for power.

No constant is fitted to tables of this kind: they are a check by this project's own hands, or a user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.cost.pass_energy import static_w
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.silicon.dvfs import product_clock_hz
from phaze.parallel.framework import load_framework
from phaze.validation.measured.measured_cases import Cases, Judged
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import attention, attention_gradients, norm, softmax
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE, UNKNOWN_FORMAT, product_of
from phaze.validation.sets.kernels.power_measurements import boards_w
from phaze.validation.sets.kernels.vector_measurements import NOT_MODELLED, compiled
from phaze.workload.work import Work

NO_WATTS = "a board that tells no watts"
FREE = "a product that the board has power enough for"
OTHER_PASS = "the other pass, another metric"
CAPPED = 0.5
"""Share of the samples from which firmware is said to hold a kernel's clock down."""

_Maker = Callable[[Columns, int], Work | Sequence[Work] | str]


@dataclass(frozen=True)
class _Readings:
    """Kernels that are compared, and the rows of the file that they come from."""

    cases: Cases
    rows: tuple[int, ...]


def _readings(
    columns: Columns,
    make: _Maker,
    why_not: Callable[[int], str | None] = lambda _: None,
    stretch: Callable[[Architecture, int], float] = lambda *_: 1.0,
) -> _Readings:
    """Rows as work on chips, but those that `why_not` gives a reason for; `stretch`: of a row's library."""
    cases, kept = Cases(), []
    seconds = columns.numbers("latency_us") * 1e-6
    for row, device in enumerate(columns["device"]):
        chip, works = chip_of(device), make(columns, row)
        reason = works if isinstance(works, str) else why_not(row)
        if chip is None or isinstance(works, str) or reason is not None:
            cases.drop(NO_TEMPLATE if chip is None else str(reason))
        else:
            cases.keep(chip, works, float(seconds[row]), stretch=stretch(chip, row))
            kept.append(row)
    return _Readings(cases, tuple(kept))


def _watts(columns: Columns, make: _Maker) -> Judged:
    """Board power in W: the energy law at the measured time, at most the board's limit."""
    watts, limits = columns.numbers("power_w"), columns.numbers("power_limit_w")
    unread = np.isnan(watts) | np.isnan(limits)
    found = _readings(columns, make, lambda row: NO_WATTS if unread[row] else None)
    kept = list(found.rows)
    rows = found.cases.rows
    _, drawn = boards_w(rows, limits[kept])
    return Judged(watts[kept], {Fidelity.ANALYTIC: drawn}, found.cases.excluded, rows)


def idle_watts(columns: Columns) -> Judged:
    """Board watts while nothing runs, against what flows whatever runs."""
    watts, chips = columns.numbers("power_w"), [chip_of(device) for device in columns["device"]]
    kept = [row for row, chip in enumerate(chips) if chip is not None and not np.isnan(watts[row])]
    said = [float(static_w(to_table([chip]))[0]) for row in kept if (chip := chips[row]) is not None]
    others = {f"{NO_WATTS}, or {NO_TEMPLATE}": columns.rows - len(kept)} if columns.rows > len(kept) else {}
    return Judged(watts[kept], {Fidelity.ANALYTIC: np.array(said)}, others)


def products(columns: Columns) -> Judged:
    """Seconds of products."""
    return _readings(columns, _product).cases.judge()


def product_watts(columns: Columns) -> Judged:
    """Board watts of products."""
    return _watts(columns, _product)


def product_clocks(columns: Columns) -> Judged:
    """Clock in Hz of products that firmware holds down for power, against the one that the template's power allows."""
    clocks, capped = columns.numbers("sm_clock_mhz") * 1e6, columns.numbers("capped")
    unread = np.isnan(clocks) | np.isnan(capped)

    def why_not(row: int) -> str | None:
        if unread[row]:
            return NO_WATTS
        return None if capped[row] >= CAPPED else FREE

    found = _readings(columns, _product, why_not)
    predicted = [
        float(product_clock_hz(to_table([one.chip]), operands_of(one.works))[0]) for one in found.cases.rows
    ]
    said = {Fidelity.ANALYTIC: np.array(predicted)}
    return Judged(clocks[list(found.rows)], said, found.cases.excluded, found.cases.rows)


def operands_of(works: Sequence[Work]) -> str | None:
    """Format of the operands of a product; None: the tensor cores' own."""
    operands = works[-1].gemms[0].operands
    return None if operands is None else operands.value


def vectors(columns: Columns) -> Judged:
    """Seconds of copies, element-wise functions, norms and softmax."""
    return _readings(columns, _vector).cases.judge()


def vector_watts(columns: Columns) -> Judged:
    """Board watts of the same."""
    return _watts(columns, _vector)


def attention_forward(columns: Columns) -> Judged:
    """Seconds of flash attention: whole sequences, and one query each on a cache."""
    return _attentions(columns, lambda row: OTHER_PASS if _is_backward(columns, row) else None)


def attention_backward(columns: Columns) -> Judged:
    """Seconds of its gradients."""
    return _attentions(columns, lambda row: None if _is_backward(columns, row) else OTHER_PASS)


def _attentions(columns: Columns, why_not: Callable[[int], str | None]) -> Judged:
    """Attention by each library.

    PyTorch's own over sequences is FlashAttention-2, which does not use the asynchronous instructions of Hopper and
    later that the laws of these families know: longer by what PyTorch's framework has.
    """

    def stretch(chip: Architecture, row: int) -> float:
        older = columns["backend"][row] == "flash" and columns["op"][row] != "decode"
        newer = chip.value("family") in ("hopper", "blackwell")
        return load_framework("pytorch-2026").attention_stretch if older and newer else 1.0

    return _readings(columns, _attention, why_not, stretch).cases.judge()


def attention_watts(columns: Columns) -> Judged:
    """Board watts of both passes."""
    return _watts(columns, _attention)


def _product(columns: Columns, row: int) -> Work | str:
    batch, m, n, k = (columns.numbers(name)[row] for name in ("batch", "m", "n", "k"))
    work = product_of(columns["dtype"][row], m, k, n, batch)
    return UNKNOWN_FORMAT if work is None else work


# PyTorch's kernel of layer and RMS norms: 128 threads walk a row, four elements at a time (layer_norm_kernel.cu).
_NORM_THREADS, _NORM_ELEMENTS = 128, 4

_BYTES: Mapping[str, int] = MappingProxyType({"bf16": 2, "fp16": 2, "fp32": 4})
_FUNCTIONS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"copy": ("scale", 1), "add": ("add", 2), "relu": ("relu", 1), "gelu": ("gelu", 1)}
)
"""The model's name of each element-wise operator, and its operands."""


def _vector(columns: Columns, row: int) -> Work | str:
    op, size = columns["op"][row], _BYTES.get(columns["dtype"][row])
    rows, width = (int(columns.numbers(name)[row]) for name in ("rows", "cols"))
    if size is None:
        return UNKNOWN_FORMAT
    if op == "softmax":
        return softmax(rows, width, size)
    if op.startswith("norm_"):
        made = norm(op.removeprefix("norm_"), rows, width, size)
        return replace(made, access_bytes=_NORM_ELEMENTS * size, row_threads=_NORM_THREADS)
    if op not in _FUNCTIONS:
        return NOT_MODELLED
    function, operands = _FUNCTIONS[op]
    work = compiled(function, rows, width, operands, size)
    return replace(work, vector_cycles=0.0) if op == "copy" else work


def _is_backward(columns: Columns, row: int) -> bool:
    return columns["op"][row] == "backward"


def _attention(columns: Columns, row: int) -> Work | Sequence[Work] | str:
    if columns["op"][row] not in ("forward", "backward", "decode"):
        return NOT_MODELLED
    names = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")
    sizes = [int(columns.numbers(name)[row]) for name in names]
    causal = bool(columns.numbers("causal")[row])
    make = attention_gradients if _is_backward(columns, row) else attention
    return make(*sizes, causal=causal)
