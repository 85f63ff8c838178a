"""Rules of collectives: what a group of devices does in forward, and its conjugate in backward."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from phaze.workload.operators.low_precision import recipe_of
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import (
    OperatorContext,
    Step,
    gradient_of,
    integer,
    real,
    view_step,
    word,
)
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.routed_copies import Copies
from phaze.workload.training.training_numerics import HALF_BYTES
from phaze.workload.work import Collective, Link, Unit, Work


class Role(StrEnum):
    """Role of a COLLECTIVE: its effect on its tensor, and on the gradient on the way back.

    COPY and REDUCE are Megatron-LM's f and g (arXiv 1909.08053), GATHER and SCATTER those of sequence
    parallelism (arXiv 2205.05198).
    """

    COPY = "copy"  # identity forward, sum backward
    REDUCE = "reduce"  # sum forward, identity backward
    GATHER = "gather"  # all parts forward, sum of one's own part backward
    SCATTER = "scatter"  # sum of one's own part forward, all parts backward
    EXCHANGE = "exchange"  # a part to everyone, both ways


_CONJUGATES: Mapping[Role, tuple[Collective | None, Collective | None]] = MappingProxyType(
    {
        Role.COPY: (None, Collective.ALL_REDUCE),
        Role.REDUCE: (Collective.ALL_REDUCE, None),
        Role.GATHER: (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
        Role.SCATTER: (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
        Role.EXCHANGE: (Collective.ALL_TO_ALL, Collective.ALL_TO_ALL),
    }
)


def collective_forward(op: Operator, ctx: OperatorContext) -> Step:
    """The collective on the tensor."""
    x, y = op.inputs[0], op.outputs[0]
    forward, _ = _CONJUGATES[Role(word(op, "role"))]
    return _step(op.name, op, ctx, forward, {x: ctx.bytes(x)}, {y: ctx.bytes(y)})


def collective_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """The conjugate on the gradient."""
    x, y = op.inputs[0], op.outputs[0]
    _, backward = _CONJUGATES[Role(word(op, "role"))]
    reads, writes = {gradients[y]: ctx.bytes(y)}, {gradient_of(op, x): ctx.bytes(x)}
    return (_step(f"{op.name}.dX", op, ctx, backward, reads, writes),)


def _step(
    name: str,
    op: Operator,
    ctx: OperatorContext,
    collective: Collective | None,
    reads: Mapping[str, float],
    writes: Mapping[str, float],
) -> Step:
    """A collective on the link, whose buffer HBM sees read and written once; a view where there is none."""
    if collective is None:
        return view_step(name, reads, writes)
    read, written = sum(reads.values()), sum(writes.values())
    group = ctx.sharding.group(Parallel(word(op, "group")))
    copies = Copies(*(integer(op, name, 1) for name in ("copies", "groups", "groups_per_token")))
    # of rows that are exchanged, those of the sender are as many as they are, others are rounded up per expert
    whole = min if collective is Collective.ALL_TO_ALL else max
    payload, recipe = whole(read, written) * real(op, "uneven", 1.0), recipe_of(op)
    if recipe is not None and recipe.gathered and collective is Collective.ALL_GATHER:
        payload *= (recipe.element_bytes or HALF_BYTES) / HALF_BYTES
    link = Link(collective, payload, group, copies)
    work = Work(name, collective.value, Unit.LINK, stream_bytes=read + written, link=link)
    return Step(name, OpKind.COLLECTIVE, work, reads, writes)
