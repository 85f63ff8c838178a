"""The backward pass: gradient operators in reverse order, gradients summed where they meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phaze.workload.operators.low_precision import SCALED, recipe_of
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind, Tensor
from phaze.workload.operators.operator_steps import (
    OperatorContext,
    Step,
    flag,
    gradient_of,
    integer,
    vector_step,
)
from phaze.workload.operators.rule_table import RULES


def parameter_views(graph: OperatorGraph) -> frozenset[str]:
    """Names of parameters and of views of nothing but parameters."""
    found = {name for name, tensor in graph.tensors.items() if tensor.is_parameter}
    for op in graph.operators:
        if op.kind is OpKind.VIEW and op.inputs and found.issuperset(op.inputs):
            found.update(op.outputs)
    return frozenset(found)


def differentiable(graph: OperatorGraph) -> frozenset[str]:
    """Trained parameters and every tensor between one of them and an output: where gradients flow.

    Frozen parameters and stored statistics of batch norms (`statistics` trailing inputs of a NORM) are not trained.
    """
    fixed = {t for op in graph.operators for t in stored_statistics(op)}
    flows = {t.name for t in graph.parameters() if not t.is_frozen} - fixed
    for op in graph.operators:
        if passes_gradients(op) and not flows.isdisjoint(op.inputs):
            flows.update(op.outputs)
    wanted = set(graph.outputs)
    for op in reversed(graph.operators):
        if passes_gradients(op) and not wanted.isdisjoint(op.outputs):
            wanted.update(op.inputs)
    return frozenset(flows & wanted)


def passes_gradients(op: Operator) -> bool:
    """Whether gradients pass an operator: not one that is detached, and none says where a maximum stood."""
    return not flag(op, "detached") and op.attributes.get("function") != "argmax"


def model_parameters(graph: OperatorGraph) -> tuple[Tensor, ...]:
    """Parameters, frozen ones too, without the stored statistics of batch norms."""
    fixed = {t for op in graph.operators for t in stored_statistics(op)}
    return tuple(t for t in graph.parameters() if t.name not in fixed)


def stored_statistics(op: Operator) -> tuple[str, ...]:
    """Inputs of a NORM that are running statistics."""
    count = integer(op, "statistics", 0) if op.kind is OpKind.NORM else 0
    return op.inputs[len(op.inputs) - count :]


def forward_steps(operators: Iterable[Operator], ctx: OperatorContext) -> tuple[Step, ...]:
    """Forward steps, one per operator; what only rearranges parameters is left out."""
    return tuple(RULES[op.kind].forward(op, ctx) for op in operators if not _constant(op, ctx))


def _constant(op: Operator, ctx: OperatorContext) -> bool:
    """Whether the operator only rearranges parameters."""
    return all(t in ctx.parameters for t in op.outputs)


def _flows(op: Operator, ctx: OperatorContext) -> bool:
    """Whether a gradient comes to the operator."""
    return any(t in ctx.differentiable for t in op.outputs)


def saved_tensors(operators: Iterable[Operator], ctx: OperatorContext) -> dict[str, float]:
    """Bytes of everything the operators keep for backward, by tensor (or mask) name.

    A tensor that one of them keeps scaled to few bits and another one as it is has a copy of its own for the former.
    """
    kept: dict[str, float] = {}
    scaled: dict[str, float] = {}
    for op in operators:
        if _flows(op, ctx) and not _constant(op, ctx):
            (kept if recipe_of(op) is None else scaled).update(RULES[op.kind].saved(op, ctx))
    copies = {t + SCALED: size for t, size in scaled.items() if size < kept.get(t, 0.0)}
    return scaled | kept | copies


def incoming_gradient(tensor: str, number: int = 0) -> str:
    """Name of the whole gradient of a tensor; of an output: as it arrives from one of the layers that read it."""
    return f"d.{tensor}@{number}" if number else f"d.{tensor}"


def backward_steps(
    operators: Sequence[Operator], ctx: OperatorContext, outputs: Mapping[str, int], inputs: Iterable[str]
) -> tuple[tuple[Step, ...], frozenset[str]]:
    """Backward steps of a layer whose `outputs` receive so many gradients, and the gradients of its `inputs`."""
    parts = {t: [incoming_gradient(t, n) for n in range(count)] for t, count in outputs.items()}
    steps: list[Step] = []
    for op in reversed(operators):
        gradients = {y: _settle(y, parts[y], ctx, steps) for y in op.outputs if y in parts}
        if not _flows(op, ctx) or not (gradients or op.kind is OpKind.LOSS):
            continue
        made = RULES[op.kind].backward(op, ctx, gradients)
        steps += made
        written = {t for step in made for t in step.writes}
        for x in dict.fromkeys(op.inputs):
            if x in ctx.differentiable and gradient_of(op, x) in written:
                parts.setdefault(x, []).append(gradient_of(op, x))
    made_for_inputs = frozenset(_settle(x, parts[x], ctx, steps) for x in inputs if x in parts)
    return tuple(steps), made_for_inputs


def _settle(tensor: str, parts: list[str], ctx: OperatorContext, steps: list[Step]) -> str:
    """Name of the tensor's whole gradient; where several operators contribute, one sum of them all."""
    if len(parts) == 1:
        return parts[0]
    size = ctx.bytes(tensor)
    total = incoming_gradient(tensor) if incoming_gradient(tensor) not in parts else f"d.{tensor}@sum"
    cycles = float((len(parts) - 1) * ctx.elements(tensor))
    reads, writes = dict.fromkeys(parts, size), {total: size}
    steps.append(
        vector_step("gradient_sum", OpKind.ELEMENTWISE, cycles, reads, writes, hosts=True, epilogue=True)
    )
    return total
