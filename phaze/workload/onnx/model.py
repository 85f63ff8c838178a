"""Import of ONNX files: `load_onnx` gives a model whose operator graph can be had at any batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx import NodeProto

from phaze.errors import MALFORMED, InputError
from phaze.workload.ir import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.onnx.expand import expanded, is_expandable
from phaze.workload.onnx.inputs import input_sizes
from phaze.workload.onnx.lowering import Lowering
from phaze.workload.onnx.nodes import operator_type
from phaze.workload.onnx.operators import BY_PRODUCTS, CONVERTERS, MANY_RESULTS, unsupported
from phaze.workload.onnx.read import OnnxGraph, read_onnx
from phaze.workload.onnx.shapes import Extent, infer_extents
from phaze.workload.onnx.values import Array


@dataclass(frozen=True)
class OnnxModel:
    """A forward model read from an ONNX file.

    `name` is the file's stem; `bound_batch` is the size its batch dimension was bound to, if it was;
    `heads` is None because a file does not tell them, so tensors are not divided. Graphs are kept per batch.
    """

    name: str
    source: OnnxGraph
    extents: Mapping[str, Extent]
    values: Mapping[str, Array]
    bound_batch: int | None = None
    heads: int | None = None
    _graphs: dict[int, OperatorGraph] = field(default_factory=dict, repr=False, compare=False)

    def graph(self, batch: int) -> OperatorGraph:
        """The forward operator graph at a batch (samples). Raises InputError for a batch below 1."""
        if batch < 1:
            raise InputError(f"{self.source.path}: batch {batch} is below 1")
        if batch not in self._graphs:
            self._graphs[batch] = self._lower(batch)
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

    `bind` gives sizes to symbolic dimensions; the batch needs none (see `inputs.py`). Raises InputError (one
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
