"""Arithmetic on shape data: the small tensors from which exporters build reshape targets, axes and pads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[np.generic]
Attributes = Mapping[str, object]
Inputs = Sequence[Array | None]

FAULTS = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError, KeyError)
"""Exceptions of an evaluator on impossible data; the caller names the node."""


def _axes(inputs: Inputs, attributes: Attributes) -> tuple[int, ...] | None:
    """Axes of (Un)squeeze and reductions: an attribute until opset 12, an input since 13."""
    given = attributes.get("axes")
    if given is None and len(inputs) > 1 and inputs[1] is not None:
        given = inputs[1].ravel().tolist()
    return None if given is None else tuple(int(a) for a in given)  # type: ignore[attr-defined]


def _slice(inputs: Inputs, attributes: Attributes) -> Array:
    data, *bounds = inputs
    if "starts" in attributes:  # until opset 9
        bounds = [np.asarray(attributes[key]) for key in ("starts", "ends", "axes") if key in attributes]
    starts, ends = _list(bounds[0]), _list(bounds[1])
    axes = _list(bounds[2]) if len(bounds) > 2 and bounds[2] is not None else list(range(len(starts)))
    steps = _list(bounds[3]) if len(bounds) > 3 and bounds[3] is not None else [1] * len(starts)
    window = [slice(None)] * _array(data).ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # Stepping backwards past the first element is spelled as a large negative end.
        window[axis] = slice(start, None if step < 0 and end < -_array(data).shape[axis] else end, step)
    return _array(data)[tuple(window)]


def _array(value: Array | None) -> Array:
    if value is None:
        raise ValueError("missing input")
    return value


def _list(value: Array | None) -> list[int]:
    return [int(v) for v in _array(value).ravel().tolist()]


def _constant_of_shape(inputs: Inputs, attributes: Attributes) -> Array:
    value = attributes.get("value")
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return np.full(_list(inputs[0]), fill.ravel()[0], fill.dtype)


def _unsqueeze(inputs: Inputs, attributes: Attributes) -> Array:
    return np.expand_dims(_array(inputs[0]), _axes(inputs, attributes) or ())


def _divide(inputs: Inputs, _: Attributes) -> Array:
    left, right = _array(inputs[0]), _array(inputs[1])
    quotient: Array = np.asarray(np.true_divide(left, right))
    # ONNX divides integers towards zero.
    return np.trunc(quotient).astype(left.dtype) if np.issubdtype(left.dtype, np.integer) else quotient


def _cast(inputs: Inputs, attributes: Attributes) -> Array:
    return _array(inputs[0]).astype(helper.tensor_dtype_to_np_dtype(int(str(attributes["to"]))))


def _elementwise(function: Callable[..., object]) -> Callable[[Inputs, Attributes], Array]:
    return lambda inputs, _: np.asarray(function(*(_array(i) for i in inputs)))


def _reduce(function: Callable[..., object]) -> Callable[[Inputs, Attributes], Array]:
    def evaluate(inputs: Inputs, attributes: Attributes) -> Array:
        keep = bool(attributes.get("keepdims", 1))
        return np.asarray(function(_array(inputs[0]), axis=_axes(inputs, attributes), keepdims=keep))

    return evaluate


EVALUATORS: Mapping[str, Callable[[Inputs, Attributes], Array]] = MappingProxyType(
    {
        "Add": _elementwise(np.add),
        "Cast": _cast,
        "Ceil": _elementwise(np.ceil),
        "Concat": lambda i, a: np.concatenate([_array(v) for v in i], axis=int(str(a["axis"]))),
        "ConstantOfShape": _constant_of_shape,
        "Div": _divide,
        "Equal": _elementwise(np.equal),
        "Expand": lambda i, _: _array(i[0]) * np.ones(_list(i[1]), _array(i[0]).dtype),
        "Floor": _elementwise(np.floor),
        "Gather": lambda i, a: np.take(
            _array(i[0]), _array(i[1]).astype(int), axis=int(str(a.get("axis", 0)))
        ),
        "Identity": lambda i, _: _array(i[0]),
        "Max": _elementwise(lambda *i: np.max(np.broadcast_arrays(*i), axis=0)),
        "Min": _elementwise(lambda *i: np.min(np.broadcast_arrays(*i), axis=0)),
        "Mod": _elementwise(np.mod),
        "Mul": _elementwise(np.multiply),
        "Neg": _elementwise(np.negative),
        "Range": _elementwise(lambda *i: np.arange(*(v.item() for v in i), dtype=i[0].dtype)),
        "ReduceMax": _reduce(np.max),
        "ReduceMin": _reduce(np.min),
        "ReduceProd": _reduce(np.prod),
        "ReduceSum": _reduce(np.sum),
        "Reshape": lambda i, _: _array(i[0]).reshape(_list(i[1])),
        "Slice": _slice,
        "Squeeze": lambda i, a: np.squeeze(_array(i[0]), _axes(i, a)),
        "Sub": _elementwise(np.subtract),
        "Unsqueeze": _unsqueeze,
        "Where": _elementwise(np.where),
    }
)
"""Evaluators by operator type, on (inputs, attributes)."""
