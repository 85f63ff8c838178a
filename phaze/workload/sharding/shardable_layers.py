"""Sort of each layer to tensor parallelism, and chains in which some sorts stay whole.

With sequence parallelism the tensors between layers are divided by tokens. A layer whose weights are whole on every
device of the group starts and ends with the same tensors: it works on a device's own tokens, as under context
parallelism over the same devices. So the layers of two chains can be mixed, sort by sort.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from phaze.workload.layers.layer_cutting import Segment
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind
from phaze.workload.parallel_degrees import Shardable, Sharding
from phaze.workload.sharding.shard_roles import Shard, among_experts, divides_output, shard_of
from phaze.workload.work import LayerChain


def classify_segments(segments: Sequence[Segment], graph: OperatorGraph) -> tuple[Segment, ...]:
    """The layers of a model with their sort; those with a divided tensor between them (logits and loss) are of one."""
    makers = graph.producers()
    runs: list[list[Segment]] = []
    for segment in segments:
        made = (graph.operators[makers[t]] for t in (*segment.inputs, *segment.passing) if t in makers)
        if not any(divides_output(op) for op in made) or not runs:
            runs.append([])
        runs[-1].append(segment)
    return tuple(
        replace(segment, shardable=shardable_of(op for one in run for op in one.operators))
        for run in runs
        for segment in run
    )


def shardable_of(operators: Iterable[Operator]) -> Shardable | None:
    """The sort of layer that operators make; none where nothing is divided, or where experts are."""
    some = tuple(operators)
    roles = {(shard_of(op), op.kind is OpKind.EMBEDDING) for op in some}
    if any(among_experts(op) for op in some):
        return None
    if (Shard.VOCAB, False) in roles:
        return Shardable.HEAD
    if (Shard.VOCAB, True) in roles:
        return Shardable.EMBEDDING
    found = {role for role, _ in roles}
    if Shard.HEADS in found:
        return Shardable.ATTENTION
    return Shardable.MLP if found & {Shard.COLUMN, Shard.ROW} else None


def mix_chains(divided: LayerChain, undivided: LayerChain, sharding: Sharding) -> LayerChain:
    """A chain under `sharding`: of `undivided` the layers that stay whole, of `divided` others and all boundaries."""
    layers = [
        replace(whole, input_bytes=layer.input_bytes, output_bytes=layer.output_bytes)
        if layer.shardable in sharding.replicated
        else layer
        for layer, whole in zip(divided.layers, undivided.layers, strict=True)
    ]
    return replace(divided, sharding=sharding, layers=tuple(layers))
