"""Activation recompute: tensors that forward keeps for backward, and those that backward works out again.

Gathered copies of divided tensors are never kept, only a device's own part: backward gathers them again.
Selective recompute (Korthikanti et al., arXiv 2205.05198) keeps nothing inside attention either, from
queries, keys and values up to their mix: that region of the forward pass runs again, as a whole. Flash
attention does so within its kernel, and nothing is left for the option. Full recompute, which keeps the
input of a layer alone and runs all of its forward pass again, needs no graph of its own.

Per-operator recompute (torchtitan's, arXiv 2410.06511, section 2.2.1) keeps the results of attention, of reductions
over devices and of every second product with weights, and runs all else again as far as backward needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from phaze.workload.operators.collective_rules import Role
from phaze.workload.operators.low_precision import SCALED, kept_input
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import OperatorContext, Step, word
from phaze.workload.training.backward_pass import forward_steps, saved_tensors


@dataclass(frozen=True)
class Region:
    """Operators that run again in backward, and which of their results are `lost` after forward."""

    operators: tuple[Operator, ...]
    lost: frozenset[str]


@dataclass(frozen=True)
class SavedActivations:
    """Bytes of all that is kept, by tensor (or mask) name, and the regions that make up for the rest.

    Regions stand in the order in which backward needs them: last first.
    """

    sizes: dict[str, float]
    recomputed: tuple[Region, ...]


def saved_activations(
    operators: Sequence[Operator], ctx: OperatorContext, *, selective: bool, keeps_products: bool = False
) -> SavedActivations:
    """Activations that a layer's forward pass keeps; `keeps_products`: selective recompute is that per operator."""
    if selective and keeps_products:
        return _by_operator(operators, ctx)
    cores = attention_cores(operators, ctx) if selective else ()
    inside = {op.name for core in cores for op in core}
    sizes = saved_tensors((op for op in operators if op.name not in inside), ctx)
    regions = [(core[-1].name, core) for core in cores]
    regions += [(op.name, (op,)) for op in operators if _gathers(op)]
    place = {op.name: i for i, op in enumerate(operators)}
    again: list[Region] = []
    for _, region in sorted(regions, key=lambda r: place[r[0]], reverse=True):
        made = frozenset(t for op in region for t in op.outputs)
        lost = made.intersection(sizes) if _gathers(region[0]) else made.difference(sizes)
        if lost:
            sizes = {t: size for t, size in sizes.items() if t.removesuffix(SCALED) not in lost}
            read = ctx.activations(t for op in region for t in op.inputs if t not in made)
            sizes |= {t: max(size, sizes.get(t, 0.0)) for t, size in kept_input(region[0], read, ctx).items()}
            again.append(Region(region, lost))
    return SavedActivations(sizes, tuple(again))


def _by_operator(operators: Sequence[Operator], ctx: OperatorContext) -> SavedActivations:
    """One region of all that backward needs and nothing keeps."""
    sizes = saved_tensors(operators, ctx)
    lost = {t for op in operators if op.name not in _kept_operators(operators, ctx) for t in op.outputs}
    again: list[Operator] = []
    wanted = lost.intersection(sizes)
    for op in reversed(operators):
        if not wanted.isdisjoint(op.outputs):
            again.insert(0, op)
            wanted |= lost.intersection(op.inputs)
    if not again:
        return SavedActivations(sizes, ())
    made = frozenset(t for op in again for t in op.outputs)
    read = ctx.activations(t for op in again for t in op.inputs if t not in made)
    region = Region(tuple(again), made.intersection(sizes))
    held = {t: size for t, size in sizes.items() if t.removesuffix(SCALED) not in made}
    return SavedActivations(held | read, (region,))


def _kept_operators(operators: Sequence[Operator], ctx: OperatorContext) -> frozenset[str]:
    """Operators whose results per-operator recompute keeps; what is but a view of one needs no memory of its own."""
    products = [
        op.name
        for op in operators
        if op.kind is OpKind.MATMUL and any(t in ctx.parameters for t in op.inputs[:2])
    ]
    held = set(products[::2])
    held |= {op.name for op in operators if op.kind in (OpKind.ATTENTION, OpKind.RECURRENCE) or _reduces(op)}
    tensors = {t for op in operators if op.name in held for t in op.outputs}
    for op in operators:
        if op.kind is OpKind.VIEW and tensors.issuperset(op.inputs):
            held.add(op.name)
            tensors.update(op.outputs)
    return frozenset(held)


def _reduces(op: Operator) -> bool:
    return op.kind is OpKind.COLLECTIVE and word(op, "role") in (Role.REDUCE, Role.SCATTER)


def saved_by_operator(operators: Sequence[Operator], ctx: OperatorContext) -> dict[str, dict[str, float]]:
    """Bytes kept for backward by operator name and tensor (or mask); each tensor at the first that keeps it."""
    seen: set[str] = set()
    found: dict[str, dict[str, float]] = {}
    for op in operators:
        new = {t: size for t, size in saved_tensors((op,), ctx).items() if t not in seen}
        seen.update(new)
        if new:
            found[op.name] = new
    return found


def attention_cores(operators: Iterable[Operator], ctx: OperatorContext) -> tuple[tuple[Operator, ...], ...]:
    """From a product of two activations to the next that reads what came of it: scores up to their mix."""
    opened: dict[str, list[Operator]] = {}
    cores = []
    for op in operators:
        core = next((opened[t] for t in op.inputs if t in opened), None)
        product = _of_activations(op, ctx)
        if core is not None:
            core.append(op)
        if core is not None and product:
            cores.append(tuple(core))
        elif core is not None or product:
            opened.update(dict.fromkeys(op.outputs, core if core is not None else [op]))
    return tuple(cores)


def multiplies_activations(operators: Iterable[Operator], ctx: OperatorContext) -> bool:
    """Whether there is a product of two activations; without any there is no attention whose core could run again."""
    return any(_of_activations(op, ctx) for op in operators)


def _of_activations(op: Operator, ctx: OperatorContext) -> bool:
    return op.kind is OpKind.MATMUL and not any(t in ctx.parameters for t in op.inputs[:2])


def with_recomputation(
    steps: Iterable[Step], regions: Iterable[Region], ctx: OperatorContext
) -> tuple[Step, ...]:
    """Backward steps with each region's forward steps before the first step that reads a lost tensor."""
    merged = list(steps)
    for region in regions:
        readers = (i for i, step in enumerate(merged) if not region.lost.isdisjoint(step.reads))
        at = next(readers, len(merged))
        merged[at:at] = [_recomputed(step) for step in forward_steps(region.operators, ctx)]
    return tuple(merged)


def _recomputed(step: Step) -> Step:
    name = f"{step.name}.again"
    return replace(step, name=name, work=replace(step.work, name=name) if step.work else None)


def _gathers(op: Operator) -> bool:
    return op.kind is OpKind.COLLECTIVE and word(op, "role") == Role.GATHER
