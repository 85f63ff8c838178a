"""Operators inside eager models in fp32, forward and backward, kernel by kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived_figures import product_flops_per_s
from phaze.validation.measured.measured_cases import Cases, Judged, timer_of
from phaze.validation.measured.measured_systems import chip_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.single_operators import norm, product, softmax
from phaze.validation.sets.kernels.gemm_measurements import NO_TEMPLATE
from phaze.workload.work import Format, Unit, Work

_RANDOM_CYCLES = 25.0  # one number of a counter-based generator
_FP32, _INDEX = 4.0, 8.0


@dataclass(frozen=True)
class Operator:
    """One row: shapes of the inputs and of the output."""

    kind: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements of the output."""
        return prod(self.output)

    @property
    def operand_bytes(self) -> float:
        """All inputs and the output, each moved once."""
        return _FP32 * (sum(prod(shape) for shape in self.inputs) + self.elements)

    @property
    def rows(self) -> int:
        """Rows along the last axis."""
        return self.elements // self.output[-1]


Kernels = Callable[[Operator], tuple[Work, ...]]


def _stream(op: Operator, *bytes_per_element: float, cycles: float = 1.0) -> tuple[Work, ...]:
    """Element-wise kernels that move so many bytes per element each."""
    n = op.elements
    return tuple(
        Work(op.kind, "elementwise", Unit.VECTOR, vector_cycles=cycles * n, stream_bytes=each * n)
        for each in bytes_per_element
    )


def _operands(op: Operator, cycles: float = 1.0) -> tuple[Work, ...]:
    return _stream(op, op.operand_bytes / op.elements, cycles=cycles)


def _lookup(op: Operator) -> tuple[Work, ...]:
    """A thread for each element, which reads the index of its row."""
    return _stream(op, _INDEX + 2 * _FP32)


def _masked(op: Operator) -> tuple[Work, ...]:
    """A choice by a mask of one byte an element."""
    return _stream(op, 2 * _FP32 + prod(op.inputs[0]) / op.elements)


def _fp32(batch: int, m: int, k: int, n: int) -> Work:
    """Products without tf32."""
    made = product(batch, m, k, n, element_bytes=4)
    return replace(made, gemms=(replace(made.gemms[0], operands=Format.FP32),))


def sides(op: Operator) -> tuple[int, int, int, int]:
    """Batch, m, k, n of a product or linear layer; with three inputs the first is a bias."""
    if op.kind == "bmm":
        (*lead, m, k), n = op.inputs[0], op.output[-1]
        return prod(lead), m, k, n
    left = op.inputs[1] if len(op.inputs) == 3 else op.inputs[0]
    return 1, prod(left[:-1]), left[-1], op.output[-1]


def _product(op: Operator) -> tuple[Work, ...]:
    return (_fp32(*sides(op)),)


def _product_gradients(op: Operator) -> tuple[Work, ...]:
    """One product for each operand."""
    batch, m, k, n = sides(op)
    return (_fp32(batch, m, n, k), _fp32(batch, k, m, n))


FORWARD: Mapping[str, Kernels] = MappingProxyType(
    {
        **dict.fromkeys(("add", "mul", "div", "pow"), _operands),  # whole powers are products
        **{name: lambda op: _operands(op, 15.0) for name in ("tanh", "activation")},
        "gelu": lambda op: _operands(op, 18.0),
        "where": _masked,
        "dropout": lambda op: _stream(op, 2 * _FP32 + 1, cycles=_RANDOM_CYCLES),
        "embedding": _lookup,
        "softmax": lambda op: (softmax(op.rows, op.output[-1], 4),),
        "layernorm": lambda op: (norm("layer", op.rows, op.output[-1], 4),),
        "linear": _product,
        "bmm": _product,
    }
)
"""Kernels of each operator."""


def _norm_gradients(op: Operator) -> tuple[Work, ...]:
    """Of the input, row by row, and then of scale and shift over all rows."""
    rows, columns = _stream(op, 3 * _FP32, 2 * _FP32, cycles=5.0)
    return replace(rows, kind="norm", rows=op.rows), columns


BACKWARD: Mapping[str, Kernels] = MappingProxyType(
    {
        "mul": lambda op: _stream(op, *[(1 + len(op.inputs)) * _FP32] * len(op.inputs)),
        "div": lambda op: _stream(op, 2 * _FP32),
        "pow": lambda op: _stream(op, 2 * _FP32, 2 * _FP32, 3 * _FP32),
        "where": _masked,
        **dict.fromkeys(("tanh", "activation"), lambda op: _stream(op, 3 * _FP32)),
        "gelu": lambda op: _stream(op, 3 * _FP32, cycles=30.0),
        "dropout": lambda op: _stream(op, _FP32 + 1, 2 * _FP32, 3 * _FP32),  # mask to fp32, scale, product
        "softmax": lambda op: _stream(op, 3 * _FP32, 3 * _FP32),  # product, then its share of each row
        "layernorm": _norm_gradients,
        "linear": _product_gradients,
        "bmm": _product_gradients,
    }
)
"""Kernels of each operator's gradients; a sum passes its gradient on as it is."""


_SET = "op_in_model_neusight_fp32"
_NO_KERNEL = "runs no kernel: passes its tensor on"
_NO_BACKWARD = "inference: no backward pass"
_TABLE = "gradient of a table whose size the row does not give"
_IMPOSSIBLE = "a product above the chip's peak: another operator under its name"


def forward(columns: Columns) -> Judged:
    """Forward pass of each operator."""
    return _judge(columns, "fwd_ms_median", _forward)


def backward(columns: Columns) -> Judged:
    """Gradients of the operands; adding them to those of earlier passes is not among them."""
    return _judge(columns, "bwd_ms_median", _backward)


def _forward(op: Operator, mode: str) -> tuple[Work, ...] | str:
    """Kernels of a row, or why it has none."""
    return _NO_KERNEL if op.kind == "dropout" and mode == "inf" else FORWARD[op.kind](op)


def _backward(op: Operator, mode: str) -> tuple[Work, ...] | str:
    if mode == "inf":
        return _NO_BACKWARD
    if op.kind == "embedding":
        return _TABLE
    return BACKWARD[op.kind](op) if op.kind in BACKWARD else _NO_KERNEL


def _judge(columns: Columns, time: str, kernels: Callable[[Operator, str], tuple[Work, ...] | str]) -> Judged:
    cases, latency = Cases(), columns.numbers(time) * 1e-3
    shapes = zip(columns["op"], columns["input_shapes"], columns["output_shape"], strict=True)
    ops = [_operator(*texts) for texts in shapes]
    for row, (device, mode) in enumerate(zip(columns["device"], columns["mode"], strict=True)):
        op, chip = ops[row], chip_of(device)
        found = kernels(op, mode)
        if chip is None:
            cases.drop(NO_TEMPLATE)
        elif isinstance(found, str):
            cases.drop(found)
        elif _impossible(found, chip, float(latency[row])):
            cases.drop(_IMPOSSIBLE)
        else:
            cases.keep(chip, found, float(latency[row]), timer_of(_SET, device, op.kind))
    return cases.judge()


def _operator(kind: str, inputs: str, output: str) -> Operator:
    """An operator by its columns; a "linear" that only adds a dimension to indices looks rows up."""
    shapes = tuple(tuple(shape) for shape in json.loads(inputs))
    result = tuple(int(extent) for extent in output.strip("()").split(",") if extent.strip())
    looks_up = kind == "linear" and len(shapes) == 1 and len(shapes[0]) < len(result)
    return Operator("embedding" if looks_up else kind, shapes, result)


def _impossible(works: tuple[Work, ...], chip: Architecture, measured_s: float) -> bool:
    peak = float(product_flops_per_s(to_table([chip]), Format.FP32)[0])
    return sum(2.0 * work.macs for work in works) > peak * measured_s
