"""Shapes of every tensor of an ONNX graph as functions of the batch.

The shapes are worked out at the file's own batch and at a multiple of it; what differs is the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.errors import InputError
from phaze.workload.onnx.batch import PROBE, Shape, batch_axis
from phaze.workload.onnx.inputs import InputSizes
from phaze.workload.onnx.nodes import FLOATING
from phaze.workload.onnx.propagate import Propagation
from phaze.workload.onnx.read import OnnxGraph
from phaze.workload.onnx.values import Array


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


def infer_extents(graph: OnnxGraph, inputs: InputSizes) -> tuple[dict[str, Extent], dict[str, Array]]:
    """Extent of every tensor, and the shape data that does not depend on the batch.

    Raises InputError for inconsistent shapes, and for a node that does not keep the batch.
    """
    at_file = Propagation(graph, inputs.batch, inputs).run()
    at_probe = Propagation(graph, inputs.batch * PROBE, inputs, reference=at_file).run()
    extents = {name: _extent(graph, name, at_file, at_probe) for name in at_file.types}
    data = {name: value for name, value in at_file.values.items() if _equal(value, at_probe.values.get(name))}
    return extents, data


def _equal(left: Array, right: Array | None) -> bool:
    return right is not None and np.array_equal(left, right)


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
