"""Recorded programs as forward models: the operator graph at any batch, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from phaze.errors import MALFORMED, InputError
from phaze.workload.exported.clean import clean
from phaze.workload.exported.extents import Extent, check_batch, infer_extents
from phaze.workload.exported.labels import label_nodes
from phaze.workload.exported.lowering import FLOAT_BYTES, Lowering
from phaze.workload.exported.operators import RULES, check_supported, is_work
from phaze.workload.exported.program import INTEGER_BYTES, Node, Program
from phaze.workload.exported.views import GENERATORS
from phaze.workload.ir import GraphBuilder, OperatorGraph


@dataclass(frozen=True)
class ExportedModel:
    """A forward model read from a recorded program.

    `heads` is None because a program does not tell them, so tensors are not divided. `nodes` are those that
    become operators: they depend on an input (`live`) or on a parameter. Graphs are kept per batch.
    """

    name: str
    program: Program
    nodes: tuple[Node, ...]
    extents: Mapping[str, Extent]
    live: frozenset[str]
    heads: int | None = None
    _graphs: dict[int, OperatorGraph] = field(default_factory=dict, repr=False, compare=False)

    def graph(self, batch: int) -> OperatorGraph:
        """The forward operator graph at a batch (samples). Raises InputError for a batch below 1."""
        if batch < 1:
            raise InputError(f"{self.program.source}: batch {batch} is below 1")
        if batch not in self._graphs:
            self._graphs[batch] = without_unread(self._lower(batch))
        return self._graphs[batch]

    def _lower(self, batch: int) -> OperatorGraph:
        program, builder = self.program, GraphBuilder(self.name)
        taken = {*program.inputs, *program.parameters.values(), *program.buffers.values()}
        labels = label_nodes(self.nodes, is_work, taken)
        low = Lowering(program, self.extents, labels, batch, builder)
        for name in program.inputs:
            size = INTEGER_BYTES.get(program.tensors[name].dtype, FLOAT_BYTES)
            low.made[name] = builder.input(name, self.extents[name].at(batch), size)
        for node in self.nodes:
            _convert(low, node)
        outputs = (low.made[t] for t in program.outputs if t in self.live)
        return builder.build(dict.fromkeys(outputs))


def _convert(low: Lowering, node: Node) -> None:
    """Append a node's operators and note what its results are called."""
    for name in node.reads():
        if name not in low.made and name in low.handed_out:
            raise low.error(node, f"reads {name!r}, a further result that is not supported")
    try:
        made = RULES[node.operator](low, node)
    except MALFORMED as error:
        raise low.error(node, f"is malformed ({error})") from error
    results = made if isinstance(made, tuple) else (made,)
    low.made.update(zip(node.outputs, results, strict=False))
    if not low.trained.isdisjoint(low.operands(node.reads())):
        low.trained.update(results)
    low.handed_out.update(node.outputs)


def join_recordings(name: str, first: Program, second: Program) -> ExportedModel:
    """A model from two recordings of one program at different batches.

    Raises InputError for unsupported operators, for a program that computes nothing from its inputs, and
    for one that mixes samples or changes with the batch.
    """
    first, second = clean(first), clean(second)
    extents = infer_extents(first, second)
    live = _reached(first.nodes, first.inputs)
    trained = _reached(first.nodes, first.parameters)
    nodes = tuple(n for n in first.nodes if not (live | trained).isdisjoint(n.outputs))
    if live.isdisjoint(first.outputs):
        raise InputError(f"{first.source}: no output is computed from an input")
    check_supported(first, nodes)
    read = frozenset(first.outputs).union(*(node.reads() for node in nodes))
    for node in nodes:
        check_batch(first, node, extents, live & read)
    model = ExportedModel(name, first, nodes, extents, live)
    model.graph(1)  # so that whatever a rule refuses is refused here
    return model


def _reached(nodes: tuple[Node, ...], sources: tuple[str, ...] | Mapping[str, str]) -> frozenset[str]:
    """Tensors that depend on the content of the sources."""
    found = set(sources)
    for node in nodes:
        if node.operator not in GENERATORS and not found.isdisjoint(node.reads()):
            found.update(node.outputs)
    return frozenset(found)


def without_unread(graph: OperatorGraph) -> OperatorGraph:
    """Drop operators and tensors that no output needs."""
    wanted, kept = set(graph.outputs), []
    for op in reversed(graph.operators):
        if not wanted.isdisjoint(op.outputs):
            kept.append(op)
            wanted.update(op.inputs, op.outputs)
    wanted.update(graph.inputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in wanted}
    return replace(graph, tensors=tensors, operators=tuple(reversed(kept)))
