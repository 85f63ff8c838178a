"""Matrix products: tensor-core kernels of GPUs and TPUs."""

from __future__ import annotations

from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.operators import product

NO_TEMPLATE = "no template of this chip"
NOT_16_BIT = "products of other than 16-bit operands are not modelled"
SIXTEEN_BITS = ("bfloat16", "bf16", "fp16", "float16")


def gemms(columns: Columns, time: str, unit_s: float, *, element_bytes: int | None = None) -> Judged:
    """Rows of device, m, n, k and a latency in column `time`, in units of `unit_s` seconds.

    Without `element_bytes`, rows of 16-bit operands are kept and others left out; with it, all rows are
    kept and operands have that size (fp32 tensors that the unit reads as bf16).
    """
    cases, latency = Cases(), columns.numbers(time) * unit_s
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, dtype) in enumerate(zip(columns["device"], columns["dtype"], strict=True)):
        chip = chip_of(device)
        if chip is None:
            cases.drop(NO_TEMPLATE)
        elif element_bytes is None and dtype not in SIXTEEN_BITS:
            cases.drop(NOT_16_BIT)
        else:
            work = product(1, int(m[row]), int(k[row]), int(n[row]), element_bytes or 2)
            cases.keep(chip, work, float(latency[row]))
    return cases.judge()


def aiconfigurator(columns: Columns) -> Judged:
    """Products inside TensorRT-LLM and vLLM."""
    return gemms(columns, "latency_ms", 1e-3)


def tpu_v4(columns: Columns) -> Judged:
    """TPU v4 kernels on fp32 tensors, one bf16 pass each."""
    return gemms(columns, "kernel_us", 1e-6, element_bytes=4)
