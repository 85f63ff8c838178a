"""Operators without products, one at a time: eager kernels of GPUs, compiled kernels of TPU v4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from phaze.validation.measured.measured_cases import Cases, Judged, timer_of
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import elementwise, norm, softmax
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.work import Work

NOT_MODELLED = "operator not among those compared"

# ALU cycles of functions as compilers for GPUs make them, where that differs from the model's own table: a power
# with any exponent, whose logarithm and exponential carry more digits than the result; short forms of tanh.
_COMPILED_CYCLES: Mapping[str, float] = MappingProxyType({"pow": 50.0, "tanh": 15.0, "gelu_tanh": 21.0})
_SUBLANES, _LANES = 8, 128  # register tile of a TPU

_BINARY = ("add", "mul", "div", "pow")
_UNARY = ("relu", "gelu", "tanh")


def compiled(function: str, rows: int, columns: int, operands: int, element_bytes: int) -> Work:
    """An element-wise kernel of a GPU."""
    work = elementwise(function, rows, columns, operands, element_bytes)
    cycles = _COMPILED_CYCLES.get(function)
    return work if cycles is None else replace(work, vector_cycles=cycles * rows * columns)


def _eager(function: str, operands: int) -> Callable[[int, int], Work]:
    return lambda rows, columns: compiled(function, rows, columns, operands, element_bytes=4)


_NEUSIGHT: Mapping[str, Callable[[int, int], Work]] = MappingProxyType(
    {
        **{name: _eager(name, 2) for name in _BINARY},
        **{f"{name}_scalar": _eager(name, 1) for name in _BINARY},
        **{name: _eager(name, 1) for name in _UNARY},
        "softmax": lambda rows, columns: softmax(rows, columns, element_bytes=4),
        "layernorm": lambda rows, columns: norm("layer", rows, columns, element_bytes=4),
    }
)

# The model's function for each that the TPU set names; thresholds and slopes are one comparison or product.
_TPU_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("add", "mul", "relu", "leaky_relu", "elu", "sigmoid", "tanh")},
        **{"selu": "elu", "parametric_relu": "leaky_relu", "linear": "scale", "binary_step": "where"},
    }
)


def neusight(columns: Columns) -> Judged:
    """Eager kernels on fp32 tensors of rows x columns, timed between two events of the device."""
    cases, latency = Cases(), columns.numbers("latency_ms") * 1e-3
    rows, width = columns.numbers("rows"), columns.numbers("cols")
    for row, (device, op) in enumerate(zip(columns["device"], columns["op"], strict=True)):
        chip = chip_of(device)
        if chip is None or op not in _NEUSIGHT:
            cases.drop(NO_TEMPLATE if chip is None else NOT_MODELLED)
            continue
        work = _NEUSIGHT[op](int(rows[row]), int(width[row]))
        timer = timer_of("op_vector_neusight_fp32", device, op)
        cases.keep(chip, work, float(latency[row]), timer)
    return cases.judge()


def tpu_v4(columns: Columns) -> Judged:
    """Kernels of TPU v4 on fp32 tensors of one to three dimensions."""
    cases, latency = Cases(), columns.numbers("latency_us") * 1e-6
    for row, (device, op, text) in enumerate(
        zip(columns["device"], columns["op"], columns["shape"], strict=True)
    ):
        chip, shape = chip_of(device), [int(extent) for extent in text.split("x")]
        if chip is None or not (op == "layernorm" or op in _TPU_FUNCTIONS):
            cases.drop(NO_TEMPLATE if chip is None else NOT_MODELLED)
            continue
        height, width = tiled(shape)
        if op == "layernorm":
            work = norm("layer", height, width, element_bytes=4)
        else:
            work = elementwise(_TPU_FUNCTIONS[op], height, width, 1 + (op in _BINARY), element_bytes=4)
        cases.keep(chip, work, float(latency[row]))
    return cases.judge()


def tiled(shape: list[int]) -> tuple[int, int]:
    """Rows and columns of a tensor in register tiles of 8 x 128.

    The longest dimension lies along the lanes and the next one along the sublanes, each padded to whole tiles;
    a tensor of one dimension fills whole tiles.
    """
    if len(shape) == 1:
        return -(-shape[0] // (_SUBLANES * _LANES)) * _SUBLANES, _LANES
    *others, height, width = sorted(shape)
    rows = -(-height // _SUBLANES) * _SUBLANES
    for extent in others:
        rows *= extent
    return rows, -(-width // _LANES) * _LANES
