"""Recorded programs as forward models: the operator graph at any batch, without torch.

Programs are made plain first: in-place updates become results of their own, and what no output needs is dropped.
Operators are named by the dotted path of the module that calls them and what they do there.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from phaze.errors import MALFORMED, InputError, Remark
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind, without_unread
from phaze.workload.patterns.recognition import recognised
from phaze.workload.sharding.found_roles import divisible_heads
from phaze.workload.torch_export.aten_lowering import (
    FLOAT_BYTES,
    Extent,
    Lowering,
    check_batch,
    infer_extents,
)
from phaze.workload.torch_export.aten_operators import RULES, check_supported, is_work
from phaze.workload.torch_export.aten_views import GENERATORS, JOINS, SPLITS, VIEWS
from phaze.workload.torch_export.exported_program import INTEGER_BYTES, Node, Program, Ref, TensorInfo
from phaze.workload.workload import Attention

_WHOLE = frozenset({"relu", "dropout", "hardtanh", "leaky_relu", "silu", "gelu", "elu", "hardswish"})
"""In-place functions of modules: nobody reads the tensor behind the view afterwards."""


def clean(program: Program) -> Program:
    """The program without in-place updates, dead code and tensors without elements.

    Raises InputError where a part of a tensor is overwritten that is read under another name later.
    """
    return _needed(_before_sums(_rejoined(_filled(_functional(program)))))


def _before_sums(program: Program) -> Program:
    """Let outputs that are one number over all samples, losses of a model's own, stand for what is summed in them.

    As losses of torch do (`LOSSES`): whoever trains the model appends the loss.
    """
    live = _reached(program.nodes, program.inputs)
    makers = {t: node for node in program.nodes for t in node.outputs}

    def summed(tensor: str) -> Iterator[str]:
        """What a sum over everything reads, through the arithmetic on it; any other tensor is itself."""
        node = makers.get(tensor)
        read = [] if node is None else [t for t in node.reads() if t in live]
        of_numbers = all(program.tensors[t].shape == () for t in read)
        if node is None or program.tensors[tensor].shape != () or not (of_numbers or node.operator in _SUMS):
            yield tensor
            return
        for each in read:
            yield from summed(each)

    outputs = (t for out in program.outputs for t in (summed(out) if out in live else (out,)))
    return replace(program, outputs=tuple(dict.fromkeys(outputs)))


_SUMS = frozenset({"sum", "mean"})


def _filled(program: Program) -> Program:
    """Leave out what makes tensors without elements, and them where tensors are put together.

    Rotations of whole heads make some, of the part that is not turned, and caches that are still empty.
    """
    empty = {name for name, tensor in program.tensors.items() if 0 in tensor.shape}
    if not empty or not empty.isdisjoint(program.outputs):
        return program
    nodes = []
    for node in program.nodes:
        if node.outputs and empty.issuperset(node.outputs):
            continue
        if node.operator in JOINS:
            arguments = {name: _without(value, empty) for name, value in node.arguments.items()}
            node = replace(node, arguments=arguments)  # noqa: PLW2901
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _without(value: object, empty: Collection[str]) -> object:
    if not isinstance(value, tuple):
        return value
    return tuple(item for item in value if not (isinstance(item, Ref) and item.tensor in empty))


def overwritten_part(program: Program) -> Node | None:
    """The first node that reads a view of a tensor after a part of that was overwritten, if there is one."""
    return _Updates().run(program)[1]


def _functional(program: Program) -> Program:
    """Let everything after an in-place update read its result.

    Updates of stored statistics (buffers) have no later reader that matters.
    """
    updated, stale = _Updates().run(program)
    if stale is not None:
        raise InputError(
            f"{program.source}: {stale.target} node {stale.name!r} reads a view of a tensor of which a part was "
            "overwritten; save the program after run_decompositions({}), which makes copies of such parts"
        )
    return updated


@dataclass
class _Updates:
    """In-place updates as results of their own.

    `latest`: what now stands for a tensor that was overwritten. A part of a tensor that is overwritten through views
    (`sources`: of what each is one) is put back: the whole is then a join of what it was and the part.
    `stale`: other views of it from before.
    """

    latest: dict[str, Ref] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)

    def run(self, program: Program) -> tuple[Program, Node | None]:
        """The program without updates, and the first node that reads a view from before one."""
        nodes, tensors, first = list[Node](), dict(program.tensors), None
        for node in program.nodes:
            arguments = {name: _renamed(value, self.latest) for name, value in node.arguments.items()}
            now = replace(node, arguments=arguments)
            if first is None and not self.stale.isdisjoint(now.reads()):
                first = node
            nodes.append(now)
            changed = next(now.reads(), None)
            if node.operator in VIEWS and changed is not None:
                self.sources.update(dict.fromkeys(node.outputs, changed))
            elif node.is_in_place and node.outputs and changed is not None:
                self.latest[changed] = Ref(node.outputs[0])
                if changed in self.sources and node.operator not in _WHOLE:
                    nodes.append(self._put_back(now, changed, tensors))
        outputs = tuple(_renamed(Ref(t), self.latest) for t in program.outputs)
        named = tuple(ref.tensor for ref in outputs if isinstance(ref, Ref))
        return replace(program, nodes=tuple(nodes), tensors=tensors, outputs=named), first

    def _put_back(self, node: Node, view: str, tensors: dict[str, TensorInfo]) -> Node:
        """The join of a tensor and the part of it that a node has overwritten."""
        whole = self._whole(view)
        self.stale |= {t for t in self.sources if t not in self.latest and self._whole(t) == whole}
        name = f"{node.outputs[0]}/whole"
        tensors[name] = tensors[whole]
        self.latest[whole] = Ref(name)
        arguments = {"self": Ref(whole), "src": Ref(node.outputs[0])}
        return Node(
            f"{node.name}/whole", "aten.slice_scatter.default", arguments, (name,), node.module, node.detached
        )

    def _whole(self, view: str) -> str:
        while view in self.sources:
            view = self.sources[view]
        return view


def _rejoined(program: Program) -> Program:
    """Let what only takes a tensor apart and puts all of it together again be a view, as of images one by one."""
    makers = {name: node for node in program.nodes for name in node.outputs}
    nodes = []
    for node in program.nodes:
        read = tuple(node.reads())
        apart = makers.get(read[0]) if node.operator in JOINS and read else None
        if apart is not None and apart.operator in SPLITS and apart.outputs == read:
            source = Ref(next(apart.reads()))
            node = replace(node, target="aten.reshape.default", arguments={"self": source})  # noqa: PLW2901
        nodes.append(node)
    return replace(program, nodes=tuple(nodes))


def _renamed(value: object, latest: Mapping[str, Ref]) -> object:
    if isinstance(value, Ref):
        while value.tensor in latest:
            value = latest[value.tensor]
        return value
    return tuple(_renamed(item, latest) for item in value) if isinstance(value, tuple) else value


def _needed(program: Program) -> Program:
    wanted = set(program.outputs)
    kept: list[Node] = []
    for node in reversed(program.nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.reads())
    return replace(program, nodes=tuple(reversed(kept)))


def label_nodes(
    nodes: Iterable[Node], is_work: Callable[[Node], bool], taken: Collection[str]
) -> dict[str, str]:
    """Name of each node's operator, by node name.

    A module that makes one call that is work gives it its own path (`layers.3.mlp.up`); all others are
    called after their operator within the module (`layers.3.add`, `layers.3.add_2`). No two are the same,
    and none is in `taken`.
    """
    nodes = tuple(nodes)
    calls = Counter(node.module for node in nodes if is_work(node))
    parents = {path for node in nodes for path in _above(node.module)}
    used, numbers = set(taken), Counter[str]()
    labels = {}
    for node in nodes:
        alone = calls[node.module] == 1 and is_work(node) and node.module and node.module not in parents
        operator = node.operator.strip("_")
        name = node.module if alone else f"{node.module}.{operator}" if node.module else operator
        labels[node.name] = _free(name, used, numbers)
    return labels


def _above(path: str) -> Iterable[str]:
    """Paths of the modules around a module."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _free(name: str, used: set[str], numbers: Counter[str]) -> str:
    """The name, numbered until it is free; takes it."""
    chosen = name
    while chosen in used:
        numbers[name] += 1
        chosen = f"{name}_{numbers[name] + 1}"
    used.add(chosen)
    return chosen


@dataclass(frozen=True)
class ExportedModel:
    """A forward model read from a recorded program.

    `nodes` are those that become operators: they depend on an input (`live`) or on a parameter. Graphs are kept per
    batch; heads and roles in tensor parallelism are those that its operators show.
    """

    name: str
    program: Program
    nodes: tuple[Node, ...]
    extents: Mapping[str, Extent]
    live: frozenset[str]
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
            raise InputError(f"{self.program.source}: batch {batch} is below 1")
        if batch not in self._graphs:
            self._graphs[batch] = recognised(self.as_recorded(batch), self.attention)
        return self._graphs[batch]

    def as_recorded(self, batch: int) -> OperatorGraph:
        """The operators of the program one by one."""
        return without_unread(self._lower(batch))

    def _lower(self, batch: int) -> OperatorGraph:
        program, builder = self.program, GraphBuilder(self.name)
        taken = {*program.inputs, *program.parameters.values(), *program.buffers.values()}
        labels = label_nodes(self.nodes, is_work, taken)
        low = Lowering(program, self.extents, labels, batch, builder, ordered=_ordered(program, self.nodes))
        for name in program.inputs:
            size = INTEGER_BYTES.get(program.tensors[name].dtype, FLOAT_BYTES)
            low.made[name] = builder.input(name, self.extents[name].at(batch), size)
        for node in self.nodes:
            _convert(low, node)
        outputs = (low.made[t] for t in program.outputs if t in self.live)
        return builder.build(dict.fromkeys(outputs))


_COMPARES = frozenset({"lt", "le", "gt", "ge"})


def _ordered(program: Program, nodes: Collection[Node]) -> frozenset[str]:
    """Constants made by comparing positions, or stored as a square; a mask of them is taken for a causal one."""
    working = {node.name for node in nodes}
    shapes = ((name, program.tensors[name].shape) for name in program.buffers)
    found = {name for name, shape in shapes if len(shape) > 1 and shape[-1] == shape[-2] > 1}
    for node in program.nodes:
        compares = node.operator in _COMPARES and isinstance(node.get("other"), Ref)
        orders = compares or node.operator in {"tril", "triu"} or not found.isdisjoint(node.reads())
        if orders and node.name not in working:
            found.update(node.outputs)
    return frozenset(found)


def _convert(low: Lowering, node: Node) -> None:
    """Append a node's operators and note what its results are called."""
    for name in node.reads():
        if name not in low.made and name in low.handed_out:
            raise low.error(node, f"reads {name!r}, a further result that is not supported")
    before = low.builder.operators
    low.builder.common = {"detached": True} if node.detached else {}
    try:
        made = RULES[node.operator](low, node)
    except MALFORMED as error:
        raise low.error(node, f"is malformed ({error})") from error
    results = made if isinstance(made, tuple) else (made,)
    if node.detached:
        new = low.builder.made_since(before)
        results = tuple(t if t in new else _detached(low, node, i, t) for i, t in enumerate(results))
    low.made.update(zip(node.outputs, results, strict=False))
    if not low.trained.isdisjoint(low.operands(node.reads())):
        low.trained.update(results)
    low.handed_out.update(node.outputs)


def _detached(low: Lowering, node: Node, number: int, tensor: str) -> str:
    """A view that no gradient passes of a tensor that a rule hands on as it is."""
    shape = low.shape(tensor)
    return low.add(node, OpKind.VIEW, [tensor], step=f"detached{number}", shape=shape)


def join_recordings(name: str, first: Program, second: Program) -> ExportedModel:
    """A model from two recordings of one program at different batches.

    Raises InputError for unsupported operators, for a program that computes nothing from its inputs, and
    for one that mixes samples or changes with the batch.
    """
    first, second = clean(first), clean(second)
    extents = infer_extents(first, second)
    # inputs without a batch, tables that all samples share, are constants
    live = _reached(first.nodes, tuple(t for t in first.inputs if extents[t].batch_axis is not None))
    trained = _reached(first.nodes, first.parameters)
    nodes = tuple(n for n in first.nodes if not (live | trained).isdisjoint(n.outputs))
    if live.isdisjoint(first.outputs):
        raise InputError(f"{first.source}: no output is computed from an input")
    check_supported(first, nodes)
    read = frozenset(first.outputs).union(*(node.reads() for node in nodes))
    for node in nodes:
        check_batch(first, node, extents, live & read)
    model = ExportedModel(name, first, nodes, extents, live)
    _tell_unreached(first, model.as_recorded(1))  # whatever a rule refuses is refused here
    return model


def _tell_unreached(program: Program, graph: OperatorGraph) -> None:
    """Remark on parameters that no output depends on. Raises InputError where they are most of the model."""
    sizes = {called: prod(program.tensors[name].shape) for name, called in program.parameters.items()}
    left = [called for called in sizes if called not in graph.tensors]
    if not left:
        return
    elements, every = sum(sizes[called] for called in left), sum(sizes.values())
    what = (
        f"{program.source}: {len(left)} of {len(sizes)} parameters ({elements:,} of {every:,} numbers) play no part "
        f"in what is computed from these inputs: {', '.join(_branches(left, sizes))}"
    )
    if 2 * elements > every:
        raise InputError(f"{what}; give all inputs of the model")
    warnings.warn(f"{what}; they are left out", Remark, stacklevel=2)


def _branches(names: Collection[str], every: Collection[str]) -> list[str]:
    """The names, those of a whole module as its path with their number."""
    others = {path for name in every if name not in names for path in _above(name)}
    shown = (next((p for p in reversed([*_above(name)]) if p not in others), name) for name in names)
    return [path if count == 1 else f"{path} ({count})" for path, count in Counter(shown).items()]


def without_rule(program: Program) -> frozenset[str]:
    """Full names of the operators that would have to be read and that no rule knows."""
    if all(node.operator in RULES or node.operator in GENERATORS for node in program.nodes):
        return frozenset()
    plain = clean(program)
    working = _reached(plain.nodes, (*plain.inputs, *plain.parameters))
    nodes = (node for node in plain.nodes if not working.isdisjoint(node.outputs))
    return frozenset(node.target for node in nodes if node.operator not in RULES)


def _reached(nodes: tuple[Node, ...], sources: tuple[str, ...] | Mapping[str, str]) -> frozenset[str]:
    """Tensors that depend on the content of the sources."""
    found = set(sources)
    for node in nodes:
        if node.operator not in GENERATORS and not found.isdisjoint(node.reads()):
            found.update(node.outputs)
    return frozenset(found)
