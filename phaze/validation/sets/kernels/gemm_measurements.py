"""Matrix products: kernels of GPUs and TPUs in every format that a chip has; of TPU v6e and v7 a copy, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from phaze.cost.kernels.quantise_kernel import FP4_BYTES, PER_BLOCK, PER_TENSOR, TO_FP4, quantisation
from phaze.validation.measured.measured_cases import EXACT, Cases, Judged, Timer
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import elementwise, product
from phaze.workload.work import Format, Gemm, Work

NO_TEMPLATE = "no template of this chip"
UNKNOWN_FORMAT = "a format of operands that the model does not know"

# Operand format and bytes of an operand in memory, by the start of what a set calls its numbers; first found.
_FORMATS: tuple[tuple[str, Format, int], ...] = (
    ("bf", Format.BF16, 2),
    ("fp16 storage, fp32 math", Format.FP32, 2),
    ("fp16", Format.FP16, 2),
    ("float16", Format.FP16, 2),
    ("fp32", Format.FP32, 4),
    ("float32", Format.FP32, 4),
    ("fp8", Format.FP8, 1),
)
_RESULT_BYTES: Mapping[Format, int] = MappingProxyType({Format.FP8: 2})
_SCALING_FRAMEWORK = "TRTLLM"  # scales activations to 8 bits while it runs; vLLM's rows are of scaled ones

# Seconds that NeuSight's timing (CUDA events around one PyTorch operator) adds to a kernel, by a word of the
# device's name: least mean |log error| of the public rows of that machine together with the law's constants.
_EVENT_S: Mapping[str, float] = MappingProxyType(
    {"P4": 27e-6, "P100": 38e-6, "V100": 40e-6, "T4": 25e-6, "A100": 25e-6, "MI100": 27e-6}
)
_OTHER_EVENT_S = 25e-6  # machines without public rows: as that of the newest one that has some


_FP4 = "nvfp4"


def product_of(dtype: str, m: float, k: float, n: float, groups: float = 1) -> Work | None:
    """A product of operands that a set calls `dtype`; None for a format that the model does not know."""
    if dtype.startswith(_FP4):
        return _in_fp4(product(int(groups), int(m), int(k), int(n), 2))
    found = next(((f, size) for start, f, size in _FORMATS if dtype.startswith(start)), None)
    if found is None:
        return None
    operands, size = found
    return product(
        int(groups), int(m), int(k), int(n), size, operands=operands, result_bytes=_RESULT_BYTES.get(operands)
    )


def _in_fp4(wide: Work) -> Work:
    """A product of 16-bit operands in 4 bits and their scales; its result keeps 16."""
    share = FP4_BYTES / 2

    def narrow(gemm: Gemm) -> Gemm:
        return replace(gemm, operands=Format.FP4, a_bytes=gemm.a_bytes * share, b_bytes=gemm.b_bytes * share)

    return replace(wide, gemms=tuple(narrow(gemm) for gemm in wide.gemms))


def scaling_of(dtype: str, m: float, k: float) -> tuple[Work, ...]:
    """Scaling of the left operand to what a set calls `dtype`; nothing for 16 bits and more."""
    kinds = {"fp8": PER_TENSOR, "fp8_block": PER_BLOCK, _FP4: TO_FP4}
    kind = next((kind for name, kind in reversed(kinds.items()) if dtype.startswith(name)), None)
    return () if kind is None else (quantisation(int(m), int(k), kind),)


def gemms(columns: Columns, time: str, unit_s: float, *, element_bytes: int | None = None) -> Judged:
    """Rows of device, dtype, m, n, k and a latency in column `time`, in units of `unit_s` seconds.

    With `element_bytes`, operands have that size whatever their format (fp32 tensors that the unit reads as
    bf16), and the tensor cores take them as they are.
    """
    cases, latency = Cases(), columns.numbers(time) * unit_s
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, dtype) in enumerate(zip(columns["device"], columns["dtype"], strict=True)):
        if element_bytes is None:
            work = product_of(dtype, m[row], k[row], n[row])
        else:
            work = product(1, int(m[row]), int(k[row]), int(n[row]), element_bytes)
        keep(cases, device, work, float(latency[row]))
    return cases.judge()


def keep(
    cases: Cases,
    device: str,
    work: Work | None,
    measured_s: float,
    before: tuple[Work, ...] = (),
    timer: Timer = EXACT,
) -> None:
    """Take a row in, its operator after those of `before`, or count why it cannot be."""
    chip = chip_of(device)
    if chip is None or work is None:
        cases.drop(NO_TEMPLATE if chip is None else UNKNOWN_FORMAT)
    else:
        cases.keep(chip, (*before, work), measured_s, timer)


def aiconfigurator(columns: Columns) -> Judged:
    """Products inside TensorRT-LLM, which first scales activations where the format asks for it, and vLLM."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, dtype, framework) in enumerate(
        zip(columns["device"], columns["dtype"], columns["framework"], strict=True)
    ):
        scaling = scaling_of(dtype, m[row], k[row]) if framework.startswith(_SCALING_FRAMEWORK) else ()
        work = product_of(dtype, m[row], k[row], n[row])
        keep(cases, device, work, float(latency[row]), scaling)
    return cases.judge()


def tpu_v4(columns: Columns) -> Judged:
    """TPU v4 kernels on fp32 tensors, one bf16 pass each."""
    return gemms(columns, "kernel_us", 1e-6, element_bytes=4)


def deepbench(columns: Columns) -> Judged:
    """Products of training on older GPUs; transposed operands are costed as others."""
    return gemms(columns, "latency_ms", 1e-3)


def neusight(columns: Columns) -> Judged:
    """Batched and single products of PyTorch, timed by events around one operator; a bias is part of the kernel."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    groups, m, k, n = (columns.numbers(name) for name in ("batch", "m", "k", "n"))
    for row, (device, dtype) in enumerate(zip(columns["device"], columns["dtype"], strict=True)):
        work = product_of(dtype, m[row], k[row], n[row], groups[row])
        keep(cases, device, work, float(latency[row]), timer=Timer(lag_s=event_s(device)))
    return cases.judge()


def event_s(device: str) -> float:
    """Seconds that timing by events adds on the machine of a device."""
    words = device.replace("-", " ").split()
    return next((seconds for word, seconds in _EVENT_S.items() if word in words), _OTHER_EVENT_S)


def deepgemm(columns: Columns) -> Judged:
    """fp8 products of DeepSeek-V3's shapes, dense and grouped, scales per block given."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    groups, m, k, n = (columns.numbers(name) for name in ("groups", "m_per_group", "k", "n"))
    for row, (device, dtype) in enumerate(zip(columns["device"], columns["dtype"], strict=True)):
        keep(cases, device, product_of(dtype, m[row], k[row], n[row], groups[row]), float(latency[row]))
    return cases.judge()


def best_found(columns: Columns) -> Judged:
    """The fastest product that a search over shapes found on a chip."""
    cases, rate = Cases(), columns.numbers("achieved_tflops") * 1e12
    m, k, n = (columns.numbers(side) for side in "mkn")
    for row, (device, dtype) in enumerate(zip(columns["device"], columns["dtype"], strict=True)):
        measured_s = float(2.0 * m[row] * k[row] * n[row] / rate[row])
        keep(cases, device, product_of(dtype, m[row], k[row], n[row]), measured_s)
    return cases.judge()


_HOST = Timer(lag_s=115e-6)
"""From the host's call to the kernel: what rows timed on the host take whatever the product (their intercept)."""

_ELEMENT_BYTES = {"bfloat16": 2, "bf16": 2, "float32": 4, "int8": 1}


def tpu_gemms(columns: Columns) -> Judged:
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
