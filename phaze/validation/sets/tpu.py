"""Matrix products and a copy on TPU v6e and v7."""

from __future__ import annotations

from dataclasses import replace

from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.operators import elementwise, product
from phaze.validation.sets.products import NO_TEMPLATE, UNKNOWN_FORMAT
from phaze.validation.timer import EXACT, Timer
from phaze.workload.work import Format, Work

_HOST = Timer(lag_s=115e-6)
"""From the host's call to the kernel: what rows timed on the host take whatever the product (their intercept)."""

_ELEMENT_BYTES = {"bfloat16": 2, "bf16": 2, "float32": 4, "int8": 1}


def gemms(columns: Columns) -> Judged:
    """Products of bf16, int8 and fp32 tensors; the unit reads fp32 as bf16 (JAX's default precision)."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, dtype, timing) in enumerate(
        zip(columns["device"], columns["dtype"], columns["timing"], strict=True)
    ):
        chip = chip_of(device)
        if chip is None or dtype not in _ELEMENT_BYTES:
            cases.drop(NO_TEMPLATE if chip is None else UNKNOWN_FORMAT)
            continue
        work = product(1, int(m[row]), int(k[row]), int(n[row]), _ELEMENT_BYTES[dtype])
        timer = _HOST if "host" in timing else EXACT
        cases.keep(chip, _in_int8(work) if dtype == "int8" else work, float(latency[row]), timer)
    return cases.judge()


def microbenchmarks(columns: Columns) -> Judged:
    """Square bf16 products, and a copy of a bf16 tensor in memory."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    m, k, n, moved = (columns.numbers(name) for name in ("m", "k", "n", "bytes"))
    for row, (device, op) in enumerate(zip(columns["device"], columns["op"], strict=True)):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
            continue
        copy = op == "hbm_copy"
        work = (
            elementwise("scale", 1, int(moved[row] / 2))
            if copy
            else product(1, int(m[row]), int(k[row]), int(n[row]))
        )
        cases.keep(chip, work, float(latency[row]), _HOST if "host" in op else EXACT)
    return cases.judge()


def _in_int8(work: Work) -> Work:
    return replace(work, gemms=tuple(replace(g, operands=Format.INT8) for g in work.gemms))
