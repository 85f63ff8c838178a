"""Import of ONNX files: `load_onnx` gives a model whose operator graph can be had at any batch.

Branches and composite operators are resolved while the shapes become known.

An If whose condition is computed from constants and shapes is its branch, a Loop of a constant count all its rounds,
and so is a Scan along an axis that is not the batch. An operator without a converter is what its own definition in the
ONNX standard makes of it, where that is a function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnx import FunctionProto, GraphProto, NodeProto, defs

from phaze.errors import MALFORMED, InputError
from phaze.workload.onnx.input_dimensions import InputSizes, input_sizes
from phaze.workload.onnx.onnx_graph import OnnxGraph, assemble, read_onnx
from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.onnx.onnx_nodes import (
    Constants,
    Inliner,
    bodies_of,
    constant_node,
    function_body,
    is_shape_query,
    names_read,
    node_label,
    operator_type,
    put_in_place,
    stored_tensors,
)
from phaze.workload.onnx.onnx_operators import (
    BY_PRODUCTS,
    CONTROL_FLOW,
    CONVERTERS,
    MANY_RESULTS,
    unsupported,
)
from phaze.workload.onnx.shape_data import Array
from phaze.workload.onnx.shape_inference import Extent, Propagation, infer_extents
from phaze.workload.onnx.unrolled_loops import Scanned, always_goes_on, rounds, scanned
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.patterns.recognition import recognised
from phaze.workload.sharding.found_roles import divisible_heads
from phaze.workload.workload import Attention

SLICED_SINCE = 9
"""Opset whose Scan goes through axes that it says, samples not apart."""
MOST_REPEATED = 20_000
"""Operators of loops where a file is given up: a step of a thousand tokens has ten or twenty."""


def is_expandable(node: NodeProto, opset: int) -> bool:
    """Whether a node can be resolved, given a constant condition if it is an If, a constant count if it is a Loop."""
    name = operator_type(node)
    if name in {"If", "Loop", "Scan"}:
        return True
    if name in CONVERTERS or "." in name:
        return False
    try:
        schema = defs.get_schema(name, opset)
    except defs.SchemaError:  # unknown, or younger than the file
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def expanded(graph: OnnxGraph, inputs: InputSizes) -> OnnxGraph:
    """The graph without what can be resolved. Raises InputError where a body is impossible."""
    opset = graph.opset.get("", 1)
    if not any(is_expandable(node, opset) for node in graph.nodes):
        return graph
    return _Expansion(graph, inputs).run()


class _Expansion:
    """One walk over a graph that grows in its place."""

    def __init__(self, graph: OnnxGraph, inputs: InputSizes) -> None:
        self._constants = Constants(dict(graph.constants), dict(graph.data))
        self._live = {value.name for value in graph.inputs}
        self._read = set(graph.read)
        self._repeated = 0  # nodes that loops have made
        self._sized = set[str]()  # what is computed from shapes, which the batch may change
        self._graph = replace(
            graph,
            constants=self._constants.types,
            data=self._constants.data,
            live=self._live,
            read=self._read,
        )
        self._walk = Propagation(self._graph, inputs.batch, inputs)
        self._inliner = Inliner(graph.functions, graph.path)

    def run(self) -> OnnxGraph:
        """Visit every node once, bodies in the place of what they stand for."""
        graph = self._graph
        self._walk.declare()
        waiting, done = list(reversed(graph.nodes)), []
        while waiting:
            node = waiting.pop()
            body = self._body(node)
            if body is None:
                self._visit(node)
                done.append(node)
            else:
                waiting += reversed(self._taken_in(body))
        return assemble(
            path=graph.path,
            nodes=done,
            opset=graph.opset,
            inputs=graph.inputs,
            outputs=graph.outputs,
            constants=self._constants,
            masks=graph.masks,
            functions=graph.functions,
        )

    def _visit(self, node: NodeProto) -> None:
        if operator_type(node) in CONTROL_FLOW:
            raise InputError(f"{self._graph.path}: unsupported operators: {unsupported(node)}")
        if not is_shape_query(node) and not self._live.isdisjoint(names_read(node)):
            self._live.update(filter(None, node.output))
        if is_shape_query(node) or not self._sized.isdisjoint(node.input):
            self._sized.update(node.output)
        self._walk.visit(node)

    def _taken_in(self, body: Iterable[NodeProto]) -> list[NodeProto]:
        """Nodes of a body without calls and constants."""
        nodes = self._constants.add((), self._inliner.inlined(list(body)))
        self._inliner.count(len(nodes))
        self._read.update(name for node in nodes for name in names_read(node))
        self._walk.declare_constants()
        return nodes

    def _body(self, node: NodeProto) -> list[NodeProto] | None:
        """Nodes that a node stands for; None where it stays."""
        if not is_expandable(node, self._graph.opset.get("", 1)):
            return None
        if node.op_type == "If":
            return self._branch(node)
        if node.op_type == "Loop":
            return self._rounds(node)
        if node.op_type == "Scan":
            return self._scanned(node)
        return None if self._live.isdisjoint(node.input) else self._definition(node)

    def _branch(self, node: NodeProto) -> list[NodeProto]:
        """The branch that a condition takes."""
        condition = self._walk.value(node.input[0]) if node.input else None
        bodies = {a.name: a.g for a in node.attribute}
        if condition is None or condition.size != 1 or not {"then_branch", "else_branch"} <= bodies.keys():
            raise InputError(
                f"{self._graph.path}: unsupported operators: control flow {node_label(node)}, "
                "whose condition depends on the input"
            )
        body = bodies["then_branch" if condition.item() else "else_branch"]
        constants = [constant_node(tensor) for tensor in stored_tensors(body)]
        return put_in_place(node, [*constants, *body.node], [o.name for o in body.output], {}, {})

    def _rounds(self, node: NodeProto) -> list[NodeProto]:
        """What a loop repeats, as often as its count says."""
        count, goes_on = (self._walk.value(name) if name else None for name in [*node.input, "", ""][:2])
        body = next(bodies_of(node), None)
        refused = f"{self._graph.path}: unsupported operators: control flow {node_label(node)}, "
        if body is None or len(body.input) != len(node.input) or len(body.output) < len(node.input) - 1:
            raise InputError(f"{refused}whose body does not fit it")
        if count is None or count.size != 1 or node.input[0] in self._sized:
            raise InputError(f"{refused}whose count is not a constant")
        given = not node.input[1] or (
            goes_on is not None and goes_on.size == 1 and node.input[1] not in self._sized
        )
        if not given or not always_goes_on(body):
            raise InputError(f"{refused}whose end depends on what it computes")
        times = max(0, int(count.item())) if goes_on is None or goes_on.item() else 0
        if not times and len(body.output) > len(node.input) - 1:
            raise InputError(f"{refused}which stacks no rounds")
        self._count(times, body)
        return list(rounds(node, body, times, self._graph.opset.get("", 1)))

    def _count(self, times: int, body: GraphProto) -> None:
        """Raise InputError where loops make too many nodes."""
        self._repeated += times * len(body.node)
        if self._repeated > MOST_REPEATED:
            raise InputError(f"{self._graph.path}: loops make more than {MOST_REPEATED} operators")

    def _scanned(self, node: NodeProto) -> list[NodeProto]:
        """What a Scan repeats, for every slice of what it goes through."""
        opset, body = self._graph.opset.get("", 1), next(bodies_of(node), None)
        refused = f"{self._graph.path}: unsupported operators: control flow {node_label(node)}, "
        if opset < SLICED_SINCE:
            raise InputError(f"{refused}as opset 8 has it")
        told = Scanned.of(node)
        outputs = len(told.result_axes) + told.kept
        if (
            body is None
            or len(body.input) != len(node.input)
            or len(body.output) != outputs
            or not told.sources
        ):
            raise InputError(f"{refused}whose body does not fit it")
        shapes = [self._walk.shapes[name] for name in told.sources]
        lengths = {shape[axis] for shape, axis in zip(shapes, told.axes, strict=True)}
        if len(lengths) > 1:
            raise InputError(f"{refused}which goes through tensors of different lengths")
        length = lengths.pop()
        self._count(length, body)
        return list(scanned(node, body, told, length, opset))

    def _definition(self, node: NodeProto) -> list[NodeProto]:
        """The function that the standard defines an operator as, at the operands' types."""
        schema = defs.get_schema(node.op_type, self._graph.opset.get("", 1))
        if schema.has_function:  # type: ignore[attr-defined]
            defaults = (attribute.default_value for attribute in schema.attributes.values())
            return function_body(node, schema.function_body, [a for a in defaults if a.name])
        types = [self._walk.types[name].SerializeToString() if name else b"" for name in node.input]
        try:
            made = schema.get_context_dependent_function(  # type: ignore[attr-defined]
                node.SerializeToString(), types
            )
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{self._graph.path}: {node_label(node)} is malformed ({error})") from error
        return function_body(node, FunctionProto.FromString(made))


@dataclass(frozen=True)
class OnnxModel:
    """A forward model read from an ONNX file.

    `name` is the file's stem; `bound_batch` is the size its batch dimension was bound to, if it was. Graphs are kept
    per batch; heads and roles in tensor parallelism are those that its operators show.
    """

    name: str
    source: OnnxGraph
    extents: Mapping[str, Extent]
    values: Mapping[str, Array]
    bound_batch: int | None = None
    attention: Attention = Attention.FLASH
    _graphs: dict[int, OperatorGraph] = field(default_factory=dict, repr=False, compare=False)

    @property
    def heads(self) -> int | None:
        """Attention heads (or else widths) that tensor parallelism divides; None where nothing can be divided."""
        return divisible_heads(self.graph(1))[0]

    @property
    def kv_heads(self) -> int | None:
        """Heads of keys and values."""
        return divisible_heads(self.graph(1))[1]

    def graph(self, batch: int) -> OperatorGraph:
        """The forward operator graph at a batch (samples). Raises InputError for a batch below 1."""
        if batch < 1:
            raise InputError(f"{self.source.path}: batch {batch} is below 1")
        if batch not in self._graphs:
            self._graphs[batch] = recognised(self._lower(batch), self.attention)
        return self._graphs[batch]

    def _lower(self, batch: int) -> OperatorGraph:
        try:
            return self._lowered(batch)
        except InputError as error:  # the graph knows the model's name only, not its file
            if str(error).startswith(f"{self.source.path}: "):
                raise
            raise InputError(f"{self.source.path}: {error}") from error

    def _lowered(self, batch: int) -> OperatorGraph:
        builder = GraphBuilder(self.name)
        low = Lowering(self.source, self.extents, self.values, batch, builder)
        for value in self.source.inputs:
            builder.input(value.name, low.shape(value.name), low.element_bytes(value.name))
        for node in self.source.live_nodes():
            _convert(low, node)
        return builder.build([_classes_last(low, name) for name in self.source.outputs])


def _convert(low: Lowering, node: NodeProto) -> None:
    """Append a node's operators. Raises InputError for what ONNX's inference let through."""
    further = [name for name in node.output[1:] if name in low.graph.read]
    if further and operator_type(node) not in MANY_RESULTS | BY_PRODUCTS:
        raise low.error(node, "hands out a second result, which is not supported")
    try:
        CONVERTERS[operator_type(node)](low, node)
    except MALFORMED as error:
        raise low.error(node, f"is malformed ({error})") from error
    for name in further if node.op_type in BY_PRODUCTS else ():
        low.builder.add(name, OpKind.VIEW, [node.output[0]], low.shape(name), low.element_bytes(name))


def _classes_last(low: Lowering, name: str) -> str:
    """An output of shape (batch, classes, 1, 1) as (batch, classes), which a loss can read."""
    shape = low.shape(name)
    kept = shape
    while len(kept) > 2 and kept[-1] == 1:
        kept = kept[:-1]
    if kept == shape:
        return name
    return low.builder.add(f"{name}.flat", OpKind.VIEW, [name], kept, low.element_bytes(name))


def load_onnx(path: str | Path, bind: Mapping[str, int] | None = None) -> OnnxModel:
    """Read a model without its weights.

    `bind` gives sizes to symbolic dimensions; the batch needs none (see `input_dimensions.py`). Raises InputError (one
    sentence, naming the file) for a file that is missing, damaged, empty, cyclic, holds unsupported
    operators (all listed, with counts), leaves a symbolic dimension without a size, or mixes samples.
    """
    try:
        return _loaded(Path(path), bind or {})
    except MALFORMED as error:
        raise InputError(f"{path}: not a readable ONNX model ({error})") from error


def _loaded(path: Path, bind: Mapping[str, int]) -> OnnxModel:
    source = read_onnx(path)
    inputs = input_sizes(source, bind)
    _check_supported(source, is_expandable)
    source = expanded(source, inputs)
    _check_supported(source)
    extents, values = infer_extents(source, inputs)
    model = OnnxModel(path.stem, source, extents, values, inputs.bound_batch)
    model.graph(1)  # so that whatever a converter refuses is refused here
    return model


def _check_supported(source: OnnxGraph, otherwise: Callable[[NodeProto, int], bool] | None = None) -> None:
    """Raise InputError that lists all operators without a converter, unless they are something else too."""
    opset = source.opset.get("", 1)
    faults = Counter(
        fault
        for node in source.live_nodes()
        if (fault := unsupported(node)) is not None and not (otherwise and otherwise(node, opset))
    )
    if faults:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(faults.items()))
        raise InputError(f"{source.path}: unsupported operators: {listed}")
