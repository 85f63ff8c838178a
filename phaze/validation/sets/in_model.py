"""Operators inside eager models in fp32, forward and backward."""

from __future__ import annotations

import json
from collections.abc import Callable

from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import product_flops_per_s
from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.eager import BACKWARD, FORWARD, Operator
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.validation.timer import timer_of
from phaze.workload.work import Format, Work

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
