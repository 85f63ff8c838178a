"""Shapes of every tensor of an ONNX graph as functions of the batch.

The shapes are worked out at the file's own batch and at a multiple of it; what differs is the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from phaze.errors import InputError
from phaze.workload.onnx.batch import PROBE, Shape, batch_axis
from phaze.workload.onnx.propagate import Propagation, dimensions
from phaze.workload.onnx.read import OnnxGraph
from phaze.workload.onnx.values import Array

FLOATING = frozenset(
    code
    for name, code in TensorProto.DataType.items()
    if "FLOAT" in name or name == "DOUBLE"  # FLOAT, FLOAT16, BFLOAT16, FLOAT8..., FLOAT4...
)


@dataclass(frozen=True, slots=True)
class Extent:
    """Shape of a tensor at batch 1, the axis that grows with the batch, and the ONNX element type."""

    shape: Shape
    batch_axis: int | None
    element_type: int

    def at(self, batch: int) -> Shape:
        """Shape at a batch."""
        axis = self.batch_axis
        if axis is None:
            return self.shape
        return (*self.shape[:axis], self.shape[axis] * batch, *self.shape[axis + 1 :])

    @property
    def is_floating(self) -> bool:
        """Whether the elements are real numbers rather than integers, booleans or text."""
        return self.element_type in FLOATING


def infer_extents(graph: OnnxGraph, bind: Mapping[str, int]) -> tuple[dict[str, Extent], dict[str, Array]]:
    """Extent of every tensor, and the shape data that does not depend on the batch.

    `bind` gives symbolic dimensions other than the batch. Raises InputError for an unbound one, for
    inconsistent shapes, and for a node that does not keep the batch.
    """
    _check_bindings(graph, bind)
    batch = _file_batch(graph)
    at_file = Propagation(graph, batch, bind).run()
    at_probe = Propagation(graph, batch * PROBE, bind, reference=at_file).run()
    extents = {name: _extent(graph, name, at_file, at_probe) for name in at_file.types}
    data = {name: value for name, value in at_file.values.items() if _equal(value, at_probe.values.get(name))}
    return extents, data


def _equal(left: Array, right: Array | None) -> bool:
    return right is not None and np.array_equal(left, right)


def _check_bindings(graph: OnnxGraph, bind: Mapping[str, int]) -> None:
    """Raise InputError for a name the file does not have and for a size below 1."""
    sizes = [dimensions(i) or [] for i in graph.inputs]
    symbols = {size for found in sizes for size in found[1:] if isinstance(size, str)}
    for name, size in sorted(bind.items()):
        if name not in symbols and name in {found[0] for found in sizes if found}:
            raise InputError(f"{graph.path}: dimension {name!r} is the batch, which is not bound")
        if name not in symbols:
            there = f"it has {', '.join(sorted(symbols))}" if symbols else "it has none besides the batch"
            raise InputError(f"{graph.path}: no symbolic dimension is called {name!r}: {there}")
        if size < 1:
            raise InputError(f"{graph.path}: dimension {name!r} cannot be {size}")


def _file_batch(graph: OnnxGraph) -> int:
    """The batch the file was written for: the first dimension of its inputs, 1 where that is symbolic."""
    firsts = {sizes[0] for i in graph.inputs if (sizes := dimensions(i))}
    known = sorted(size for size in firsts if isinstance(size, int) and size != 1)
    if len(known) > 1:
        raise InputError(f"{graph.path}: the inputs disagree on the batch: {', '.join(map(str, known))}")
    return known[0] if known else 1


def _extent(graph: OnnxGraph, name: str, at_file: Propagation, at_probe: Propagation) -> Extent:
    shape, code = at_file.shapes[name], at_file.types[name].tensor_type.elem_type
    try:
        axis = batch_axis(shape, at_probe.shapes[name])
    except ValueError:  # a constant built from several dimensions of the batch; live tensors are checked
        axis = None
    if axis is None:
        return Extent(shape, None, code)
    if shape[axis] % at_file.batch:
        raise InputError(f"{graph.path}: dimension {axis} of {name!r} is no multiple of the batch")
    return Extent((*shape[:axis], shape[axis] // at_file.batch, *shape[axis + 1 :]), axis, code)
