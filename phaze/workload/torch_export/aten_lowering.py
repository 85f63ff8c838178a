"""Base of the operator rules: arguments of a node as tensors of the graph, shapes as functions of the batch.

What differs between two recordings is the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from phaze.errors import InputError
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.torch_export.exported_program import INTEGER_BYTES, Node, Program, Ref, Shape

LOSSES = frozenset(
    {
        *("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"),
        *("nll_loss_forward", "nll_loss2d_forward", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"),
    }
)
"""Operators whose result sums over samples; they stand for the logits they read."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Shape of a tensor at batch 1 and the axis that grows with the batch, None if none does.

    `pair_axis`: the second one that does, of what holds every sample against every other.
    """

    shape: Shape
    batch_axis: int | None = None
    pair_axis: int | None = None

    def at(self, batch: int) -> Shape:
        """Shape at a batch."""
        axes = {self.batch_axis, self.pair_axis}
        return tuple(size * batch if axis in axes else size for axis, size in enumerate(self.shape))


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
    if len(grown) not in {1, 2} or any(large[i] * first.batch != small[i] * second.batch for i in grown):
        return Extent(small)
    return Extent(tuple(n // first.batch if i in grown else n for i, n in enumerate(small)), *grown)


def check_batch(program: Program, node: Node, extents: Mapping[str, Extent], live: frozenset[str]) -> None:
    """Raise InputError where a live result of a node does not hold every sample apart from the others.

    Similarities of every sample with every other, as contrastive losses are made of, may be all that comes of a model.
    """
    pairs = any(extents[t].pair_axis is not None for t in live.intersection(node.reads()))
    for name in live.intersection(node.outputs):
        if pairs and extents[name].pair_axis is None and node.operator not in LOSSES:
            raise InputError(
                f"{program.source}: {node.target} node {node.name!r} does not keep the batch: "
                "it mixes what holds every sample against every other"
            )
        if extents[name].batch_axis is None and node.operator not in LOSSES:
            raise InputError(
                f"{program.source}: {node.target} node {node.name!r} does not keep the batch: "
                "its result does not grow with it along one axis"
            )


FLOAT_BYTES = 2  # bf16, whatever the program stores (definitions.md, training numerics)


@dataclass
class Lowering:
    """One translation of a program at one batch into an operator graph.

    `made` maps tensors of the program to tensors of the graph, `transposes` a view in the graph to the matrix
    that it transposes; `handed_out` are the results of the nodes done so far, `trained`
    the tensors of the graph that parameters take part in. `ordered`: constants of the program that say which of two
    positions comes first, as causal masks do.
    """

    program: Program
    extents: Mapping[str, Extent]
    labels: Mapping[str, str]
    batch: int
    builder: GraphBuilder
    made: dict[str, str] = field(default_factory=dict)
    transposes: dict[str, str] = field(default_factory=dict)
    handed_out: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)
    ordered: frozenset[str] = frozenset()
    _bytes: dict[str, int] = field(default_factory=dict)

    def shape(self, tensor: str) -> Shape:
        """Shape of a tensor of the graph."""
        return self.builder.shape(tensor)

    def shape_of(self, node: Node, output: int = 0) -> Shape:
        """Shape of a node's result at this batch."""
        return self.extents[node.outputs[output]].at(self.batch)

    def element_bytes(self, tensor: str) -> int:
        """Bytes per element of a tensor of the graph."""
        return self._bytes.get(tensor, FLOAT_BYTES)

    def bytes_of(self, node: Node, output: int = 0) -> int:
        """Bytes per element of a node's result: bf16 for real numbers, their own size for others."""
        return INTEGER_BYTES.get(self.program.tensors[node.outputs[output]].dtype, FLOAT_BYTES)

    def label(self, node: Node) -> str:
        """Name of a node's operator: the dotted path of its module, and what it does there."""
        return self.labels[node.name]

    def operand(self, name: str) -> str | None:
        """The tensor a name stands for; None for masks, tables of sines and the like: nothing is trained there."""
        if name in self.program.parameters and name not in self.made:
            self.made[name] = self._declare(name, self.program.parameters[name])
        return self.made.get(name)

    def statistic(self, name: str) -> str:
        """A buffer as a stored tensor of the graph (running statistics)."""
        if name in self.program.buffers and name not in self.made:
            return self._declare(name, self.program.buffers[name])
        return self.made[name]

    def _declare(self, name: str, called: str) -> str:
        self.trained.add(called)
        frozen = name in self.program.frozen
        return self.builder.parameter(called, self.extents[name].shape, FLOAT_BYTES, is_frozen=frozen)

    def operands(self, names: Iterable[str]) -> list[str]:
        """Activations and parameters among the names, in order."""
        return [tensor for name in names if (tensor := self.operand(name)) is not None]

    def maybe(self, node: Node, argument: str) -> str | None:
        """An argument that may be absent, or a constant that is no operand."""
        value = node.get(argument)
        return self.operand(value.tensor) if isinstance(value, Ref) else None

    def tensor(self, node: Node, argument: str) -> str:
        """An argument that must be a tensor; a constant is one that nothing makes. Raises InputError otherwise."""
        value = node.get(argument)
        found = self.factor(node, value.tensor, argument) if isinstance(value, Ref) else None
        if found is None:
            raise self.error(node, f"needs a computed tensor or a parameter as {argument!r}")
        return found

    def factor(self, node: Node, name: str, argument: str) -> str:
        """The tensor that a name stands for; a constant is one that nothing makes, for this node alone."""
        found = self.operand(name)
        if found is not None:
            return found
        called = self.free(f"{self.label(node)}.{argument}")
        return self.builder.add(called, OpKind.VIEW, (), self.extents[name].at(self.batch), FLOAT_BYTES)

    def free(self, name: str) -> str:
        """The name, lengthened until no tensor of the graph has it."""
        while self.builder.has(name):
            name += "_"
        return name

    def first(self, node: Node) -> str:
        """The first argument, whatever its name. Raises InputError where it is nothing computed."""
        return self.tensor(node, next(iter(node.arguments), ""))

    def orders(self, node: Node) -> bool:
        """Whether a constant that a node reads says which of two positions comes first."""
        return not self.ordered.isdisjoint(node.reads())

    def is_matrix(self, tensor: str) -> bool:
        """Whether a tensor of the graph is a parameter with two dimensions."""
        return tensor in self.program.parameters.values() and len(self.shape(tensor)) == 2

    def add(
        self,
        node: Node,
        kind: OpKind,
        inputs: Iterable[str],
        *,
        step: str = "",
        shape: Shape | None = None,
        **attributes: object,
    ) -> str:
        """Append an operator of a node; `step` tells the operators of one node apart.

        Without `shape` it is that of the node's first result.
        """
        name = f"{self.label(node)}.{step}" if step else self.label(node)
        size = self.bytes_of(node)
        self._bytes[name] = size
        return self.builder.add(
            name, kind, inputs, self.shape_of(node) if shape is None else shape, size, **attributes
        )

    def view(self, node: Node, tensor: str, shape: Shape, step: str) -> str:
        """A tensor in another shape; itself where the shape is the same."""
        if self.shape(tensor) == shape:
            return tensor
        return self.add(node, OpKind.VIEW, [tensor], step=step, shape=shape)

    def add_bias(self, node: Node, product: str, argument: str = "bias", *, trailing: int = 0) -> str:
        """The product plus the argument, if there is one; `trailing` dimensions of the product come after it."""
        bias = self.maybe(node, argument)
        if bias is None:
            return product
        bias = self.view(node, bias, (*self.shape(bias), *(1,) * trailing), "bias_column")
        inputs, shape = [product, bias], self.shape(product)
        return self.add(node, OpKind.ELEMENTWISE, inputs, step="add_bias", shape=shape, function="add")

    def error(self, node: Node, what: str) -> InputError:
        """An error that names the program and the node."""
        return InputError(f"{self.program.source}: {node.target} node {node.name!r} {what}")


Rule = Callable[[Lowering, Node], str | tuple[str, ...]]
"""Appends a node's operators; returns the graph's tensors for the node's results, the first ones if not all."""
