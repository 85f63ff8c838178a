"""Shapes of every tensor as functions of the batch: what differs between two recordings is the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phaze.errors import InputError
from phaze.workload.exported.program import Node, Program, Shape

LOSSES = frozenset(
    {
        *("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"),
        *("nll_loss_forward", "nll_loss2d_forward"),
    }
)
"""Operators whose result sums over samples; they stand for the logits they read."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Shape of a tensor at batch 1 and the axis that grows with the batch, None if none does."""

    shape: Shape
    batch_axis: int | None = None

    def at(self, batch: int) -> Shape:
        """Shape at a batch."""
        axis = self.batch_axis
        if axis is None:
            return self.shape
        return (*self.shape[:axis], self.shape[axis] * batch, *self.shape[axis + 1 :])


def infer_extents(first: Program, second: Program) -> dict[str, Extent]:
    """Extent of every tensor of two recordings of one program at different batches.

    Raises InputError where the two run different operators. A tensor that does not grow in proportion to
    the batch along one axis gets no batch axis; `check_batch` decides whether that matters.
    """
    for left, right in zip(first.nodes, second.nodes, strict=False):
        if (left.target, left.outputs) != (right.target, right.outputs):
            raise _differs(first, second, f"{left.target} ({left.name}) becomes {right.target}")
    if len(first.nodes) != len(second.nodes):
        raise _differs(first, second, f"{len(first.nodes)} operators become {len(second.nodes)}")
    return {name: _extent(name, first, second) for name in first.tensors if name in second.tensors}


def _differs(first: Program, second: Program, what: str) -> InputError:
    at = f"from batch {first.batch} to batch {second.batch}"
    return InputError(f"{first.source}: the program depends on the batch: {what} {at}")


def _extent(name: str, first: Program, second: Program) -> Extent:
    small, large = first.tensors[name].shape, second.tensors[name].shape
    if len(small) != len(large):
        return Extent(small)
    grown = [axis for axis, (a, b) in enumerate(zip(small, large, strict=True)) if a != b]
    if len(grown) != 1 or large[grown[0]] * first.batch != small[grown[0]] * second.batch:
        return Extent(small)
    axis = grown[0]
    return Extent((*small[:axis], small[axis] // first.batch, *small[axis + 1 :]), axis)


def check_batch(program: Program, node: Node, extents: Mapping[str, Extent], live: frozenset[str]) -> None:
    """Raise InputError where a live result of a node does not hold every sample apart from the others."""
    for name in live.intersection(node.outputs):
        if extents[name].batch_axis is None and node.operator not in LOSSES:
            raise InputError(
                f"{program.source}: {node.target} node {node.name!r} does not keep the batch: "
                "its result does not grow with it along one axis"
            )
