"""Tensors that travel together from layer to layer, so that a model with two streams is a chain of layers."""

from __future__ import annotations

from math import prod

from phaze.workload.ir import GraphBuilder, OpKind


def together(g: GraphBuilder, name: str, *tensors: str) -> tuple[str, ...]:
    """The tensors (batch, ...) of 16-bit elements as one for a moment, and apart again under new names.

    Nothing is computed; the model may be cut there.
    """
    shapes = [g.shape(tensor) for tensor in tensors]
    total = sum(prod(shape[1:]) for shape in shapes)
    joint = g.add(f"{name}.joint", OpKind.VIEW, tensors, (shapes[0][0], total))
    return g.split_into(f"{name}.apart", joint, {f"{name}.part{i}": s for i, s in enumerate(shapes, 1)})
