"""Modules recorded by `torch.export`: the only part of this front end that needs torch, which is optional.

The graph of a `torch.export.ExportedProgram` becomes a description without torch being imported.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError, Remark
from phaze.workload.fusion_rules import ALL_FUSION, Fusion
from phaze.workload.graph_workload import GraphWorkload, answerable_mode
from phaze.workload.patterns.decode_step import DecodingModel
from phaze.workload.torch_export.exported_model import (
    ExportedModel,
    join_recordings,
    overwritten_part,
    without_rule,
)
from phaze.workload.torch_export.exported_program import (
    Node,
    Program,
    Ref,
    TensorInfo,
    results_of,
)
from phaze.workload.torch_export.flex_attention import recorded_as_one
from phaze.workload.torch_export.known_content import full_masks
from phaze.workload.torch_export.recorded_decisions import Decisions, deciding, place_of
from phaze.workload.torch_export.recording_places import (
    as_if_on_cpu,
    kept_where_alike,
    silence,
    without_source_lines,
)
from phaze.workload.workload import Mode, Workload

if TYPE_CHECKING:
    import torch


# torch.fx.Node, torch.fx.GraphModule and what a node may hold; torch is optional, so they are not named.
FxNode = Any
FxModule = Any
FxValue = Any

_BRANCHING = "cond"
_NESTED = "wrap"  # higher-order operators that only set a mode for the block inside them


class _ContentError(InputError):
    """What a module computes depends on the content of tensors."""


@dataclass
class TracedGraph:
    """Reads the graph of an exported program and those nested in it.

    `source` is how errors call it, `branch` the one that `torch.cond` takes.
    """

    source: str
    exported: Any
    branch: bool | None = None
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)

    def program(self, batch: int) -> Program:
        """The whole description. Raises InputError for control flow and sizes that depend on data."""
        signature = self.exported.graph_signature
        self._read(self.exported.graph_module, {}, "", detached=False)
        state = self.exported.state_dict
        tied = _first_names(state)
        parameters = {n: tied.get(p, p) for n, p in signature.inputs_to_parameters.items()}
        return Program(
            source=self.source,
            batch=batch,
            nodes=tuple(self.nodes),
            tensors=self.tensors,
            inputs=tuple(n for n in signature.user_inputs if isinstance(n, str) and n in self.tensors),
            parameters=parameters,
            buffers=dict(signature.inputs_to_buffers),
            outputs=results_of(
                [n if isinstance(n, str) and n in self.tensors else None for n in signature.user_outputs],
                _fields(self.exported.call_spec.out_spec),
            ),
            frozen=frozenset(
                n
                for n, p in signature.inputs_to_parameters.items()
                if p in state and not state[p].requires_grad
            ),
        )

    def _read(self, module: FxModule, names: Mapping[str, str], prefix: str, *, detached: bool) -> None:
        """Append the nodes of a graph; `names` are the outer names of a nested graph's inputs and results."""
        outer = {node: names.get(node.name, f"{prefix}{node.name}") for node in module.graph.nodes}
        pieces = {node: outer[node] for node in module.graph.nodes if _is_piece(node)}
        for node in module.graph.nodes:
            if node in pieces or node.op not in {"placeholder", "call_function"}:
                continue
            made = dict(self._results(node, outer, pieces))
            self.tensors |= {name: self._info(node, value) for name, value in made.items()}
            if node.op == "placeholder":
                continue
            target = str(node.target)
            inner = next(
                (a for a in node.args if getattr(a, "op", "") == "get_attr" and _is_module(module, a)), None
            )
            if inner is not None:
                block = node.args[0] is False if "set_grad_enabled" in target else detached
                inside = getattr(module, self._taken(node, inner).target)
                self._inline(node, inside, tuple(made), outer, detached=block)
            else:
                arguments = {key: _argument(value, outer) for key, value in _named(node)}
                self.nodes.append(Node(outer[node], target, arguments, tuple(made), _path(node), detached))

    def _info(self, node: FxNode, value: FxValue) -> TensorInfo:
        try:
            shape = tuple(int(size) for size in value.shape)
        except RuntimeError as error:
            where = f" in module {path!r}" if (path := _path(node)) else ""
            what = f"sizes depend on the content of tensors, so it is not a fixed graph: {node.target}{where}"
            raise _ContentError(f"{self.source}: {what}") from error
        return TensorInfo(shape, str(value.dtype).removeprefix("torch."))

    def _taken(self, node: FxNode, first: FxNode) -> FxNode:
        """The nested graph that runs: the first, or of two branches the one that the user says."""
        if str(node.target) != _BRANCHING:
            return first
        if self.branch is None:
            what = "takes a branch that depends on the content of tensors: say which with branch=True or branch=False"
            raise InputError(f"{self.source}: torch.cond (node {node.name!r}) {what}")
        return node.args[1 if self.branch else 2]

    def _inline(
        self,
        node: FxNode,
        inside: FxModule,
        made: tuple[str, ...],
        outer: Mapping[FxNode, str],
        *,
        detached: bool,
    ) -> None:
        """A block under `no_grad` or `autocast` runs as if it stood in the graph around it."""
        if str(node.target) == _BRANCHING:
            given = [outer.get(a, "") for a in node.args[3]]
        elif str(node.target).startswith(_NESTED):
            position = next(i for i, a in enumerate(node.args) if getattr(a, "op", "") == "get_attr")
            given = [outer.get(a, "") for a in node.args[position + 1 :]]
        else:
            raise InputError(
                f"{self.source}: control flow {node.target} (node {node.name!r}) is not supported"
            )
        entries = [n.name for n in inside.graph.nodes if n.op == "placeholder"]
        names = dict(zip(entries, given, strict=True))
        (results,) = next(n for n in inside.graph.nodes if n.op == "output").args
        names |= {r.name: name for r, name in zip(results, made, strict=False) if r is not None}
        self._read(inside, names, f"{outer[node]}/", detached=detached)

    def _results(
        self,
        node: FxNode,
        outer: Mapping[FxNode, str],
        pieces: Mapping[FxNode, str],
    ) -> Iterator[tuple[str, FxValue]]:
        """Names and values of a node's tensors; results of several are called as those who take them out."""
        value = node.meta.get("val")
        if not isinstance(value, tuple | list):
            if hasattr(value, "shape"):
                yield outer[node], value
            return
        taken = {user.args[1]: pieces[user] for user in node.users if user in pieces}
        for i, item in enumerate(value):
            if hasattr(item, "shape"):
                yield taken.get(i, f"{outer[node]}.{i}"), item


def _fields(spec: FxValue) -> list[tuple[str, int]]:
    """Names of what a program hands out, and how many values each holds; none where they have no names."""
    names = spec.context
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return []
    return [(name, part.num_leaves) for name, part in zip(names, spec.children(), strict=True)]


def _first_names(state: Mapping[str, Any]) -> dict[str, str]:
    """Each parameter by the first name of the tensor it is: tied weights are one."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in state.items()}


def _is_piece(node: FxNode) -> bool:
    """Whether a node only takes one of several results."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _is_module(module: FxModule, node: FxNode) -> bool:
    return hasattr(getattr(module, str(node.target), None), "graph")


def _named(node: FxNode) -> Iterator[tuple[str, FxValue]]:
    """Arguments by the names of the operator's schema."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    names += [str(i) for i in range(len(names), len(node.args))]
    yield from zip(names, node.args, strict=False)
    yield from node.kwargs.items()


def _argument(value: FxValue, outer: Mapping[FxNode, str]) -> object:
    """A plain value; sizes that are computed in the graph are left out."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(_argument(item, outer) for item in value)
    if hasattr(value, "meta") and value in outer:
        return Ref(outer[value]) if hasattr(value.meta.get("val"), "shape") else None
    return str(value)


def _path(node: FxNode) -> str:
    """Dotted path of the innermost module."""
    stack: Mapping[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return paths[-1] if paths else ""


Exported = Any  # torch.export.ExportedProgram; torch is optional, so it is not named

BATCHES = (2, 14)
"""The two batches a module is recorded at; what differs in their shapes is the batch.

A module is exported twice with fixed sizes rather than once with a dynamic batch: fixed sizes are what every
module can be exported with, while a dynamic batch fails wherever code asks for the size (masks, reshapes,
recurrent layers). The factor of 7 is a prime that is rare as a dimension.
"""

_NEEDS_A_DEVICE = ("same device", "unsupported autocast device_type", "unsupported scalarType")
"""What torch says of modules that cannot be recorded where nothing has memory."""
_READS_CONTENT = ("data-dependent", "non-nested SymInt")
"""What it says where sizes, or the branch that is taken, are read from tensors (`tolist`, `item`)."""

_FAULTS = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, ArithmeticError)


def from_torch(
    module: torch.nn.Module,
    example_inputs: Sequence[object] = (),
    example_keywords: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    mode: Mode = Mode.TRAINING,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    fusion: Set[Fusion] = ALL_FUSION,
    batch_axes: Mapping[int | str, int | None] | None = None,
    branch: bool | None = None,
) -> Workload:
    """Workload of a module, or of a `torch.fx.GraphModule`.

    `example_inputs` and `example_keywords` are arguments of its `forward`: tensors, or lists and dicts of them.
    The first dimension of every tensor among them is the batch (of any size), or the one that `batch_axes` says
    of an argument, by its position or keyword; None: all samples share it, as a table of positions. `branch`: the one
    that `torch.cond` takes, wherever it stands, and every `if` on the content of a tensor.
    A mask among them that is all ones, and not on the meta device, is full for every sample.
    Of a graph module with shapes in its metadata (`ShapeProp`) they may be left out. Build the module under
    `torch.device("meta")` and no weight is ever allocated; nothing is computed in either case.
    `sequence_length` (tokens of one sample) is only noted. The module is recorded as in training or as in
    evaluation, as the mode asks, and left as it was.

    Raises InputError where torch is missing, the module cannot be exported, an operator is not supported,
    or samples are mixed; and for decode where no key-value cache can be derived: it is one token after as many as the
    examples have. A model with nothing to train is taken for prefill.
    """
    called, told = name or type(module).__name__, Told(batch_axes or {}, branch)
    model = _recorded_for(mode, module, example_inputs, example_keywords or {}, called, told)
    if mode is Mode.DECODE:
        step = DecodingModel.of(model, called)
        batch, context = global_batch, step.context
        return GraphWorkload(
            step, mode, global_batch=batch, fusion=fusion, sequence_length=1, context=context
        )
    return GraphWorkload(
        model,
        answerable_mode(model, mode),
        global_batch=global_batch,
        fusion=fusion,
        sequence_length=sequence_length,
    )


@dataclass(frozen=True)
class Told:
    """What is said of a module beside its inputs.

    `batch_axes`: axis of the batch in arguments where it is not the first, `branch` of `cond`; `rows`: how many of
    the batch's axis are one sample's, where it is not one.
    """

    batch_axes: Mapping[int | str, int | None] = field(default_factory=dict)
    branch: bool | None = None
    rows: Mapping[int | str, int] = field(default_factory=dict)


def _recorded_for(
    mode: Mode,
    module: FxModule,
    inputs: Sequence[object],
    keywords: Mapping[str, object],
    name: str,
    told: Told,
) -> ExportedModel:
    """The module recorded in the state that the mode asks for; where that cannot be, as it is, with a remark."""
    training = mode is Mode.TRAINING
    if getattr(module, "training", training) is training:
        return record(module, inputs, keywords, name, told)
    before = {part: part.training for part in module.modules()}
    try:
        return record(module.train(training), inputs, keywords, name, told)
    except InputError as error:
        reason = error
    finally:
        for part, was in before.items():
            part.training = was
    model = record(module, inputs, keywords, name, told)
    states = ("training", "evaluation") if training else ("evaluation", "training")
    warnings.warn(f"recorded as in {states[1]}, for as in {states[0]}: {reason}", Remark, stacklevel=3)
    return model


def record(
    module: torch.nn.Module,
    inputs: Sequence[object],
    keywords: Mapping[str, object],
    name: str,
    told: Told | None = None,
) -> ExportedModel:
    """Export a module at two batches. Raises InputError as `from_torch` does."""
    torch = require_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{name}: expected a torch.nn.Module, found {type(module).__name__}")
    given = tuple(inputs) or _recorded_inputs(module, name) if not keywords else tuple(inputs)
    told = told or Told()

    def recorded() -> list[Program]:
        exported = (_exported(torch, module, given, keywords, batch, name, told) for batch in BATCHES)
        return [_program(one, batch, name, told) for one, batch in zip(exported, BATCHES, strict=True)]

    decisions = Decisions(told.branch)
    with silence(), without_source_lines(), kept_where_alike(torch), recorded_as_one(torch):
        try:
            programs = recorded()
        except _ContentError as error:
            try:
                full = full_masks(torch, [*enumerate(given), *keywords.items()])
                with deciding(torch, decisions, module, full):
                    programs = recorded()
            except InputError:
                raise error from None  # it depends on more than what can be decided
    if decisions.taken:
        warnings.warn(f"{name}: taken are {', '.join(decisions.taken)}", Remark, stacklevel=2)
    return join_recordings(name, *programs)


def _program(exported: Exported, batch: int, name: str, told: Told) -> Program:
    """Description of an exported program.

    Parts of tensors that it overwrites become copies first, operators without a rule what torch takes them apart into.
    """
    program = TracedGraph(name, exported, told.branch).program(batch)
    if overwritten_part(program) is not None:
        exported = exported.run_decompositions({})
        program = TracedGraph(name, exported, told.branch).program(batch)
    for _ in range(_DEPTH):
        parts = _decompositions(without_rule(program))
        if not parts or any(
            node.detached for node in program.nodes
        ):  # regions without gradients are lost in it
            break
        exported = exported.run_decompositions(parts)
        program = TracedGraph(name, exported, told.branch).program(batch)
    return program


_DEPTH = 4  # how often operators are taken apart whose parts have no rule either


def _decompositions(targets: Set[str]) -> Mapping[Any, Any]:
    """What torch makes of operators in terms of others, of those among some (full names) that it knows so."""
    if not targets:
        return {}
    known = importlib.import_module("torch.export").default_decompositions()
    return {operator: made for operator, made in known.items() if str(operator) in targets}


def require_torch() -> ModuleType:
    """The torch package. Raises InputError with the line that installs it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise InputError("PyTorch is not installed: pip install '.[torch]' in a clone of phaze") from error


def _exported(
    torch: ModuleType,
    module: torch.nn.Module,
    inputs: Sequence[object],
    keywords: Mapping[str, object],
    batch: int,
    name: str,
    told: Told,
) -> Exported:
    """The module's program at one batch."""
    devices = {weight.device for weight in module.parameters()}
    device = next((each for each in devices if each.type == "meta"), next(iter(devices), None))

    def sized(argument: int | str, value: object) -> object:
        if isinstance(value, Mapping):
            return {key: sized(argument, each) for key, each in value.items()}
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)(sized(argument, each) for each in value)
        axis = told.batch_axes.get(argument, 0)
        if not isinstance(value, torch.Tensor):
            return value
        if axis is None or value.dim() <= axis:
            return value if device is None else torch.zeros_like(value, device=device)
        rows = batch * told.rows.get(argument, 1)
        shape = (*value.shape[:axis], rows, *value.shape[axis + 1 :])
        return torch.zeros(shape, dtype=value.dtype, device=device or value.device)

    def given() -> tuple[tuple[object, ...], dict[str, object]]:
        named = {key: sized(key, value) for key, value in keywords.items()}
        return tuple(sized(i, value) for i, value in enumerate(inputs)), named

    on_meta = device is not None and device.type == "meta"
    # what a module makes itself, a mask or a table, lies where its weights do
    elsewhere = torch.device("meta") if on_meta else nullcontext()
    try:
        with elsewhere:
            return torch.export.export(module, *given())
    except _FAULTS as error:
        fault: Exception = error
    if on_meta and any(told in str(fault) for told in _NEEDS_A_DEVICE):
        try:
            part, pretending = as_if_on_cpu(torch, module)
            device = torch.device("cpu")
            with pretending:
                arguments = given()
            return torch.export.export(part, *arguments)
        except _FAULTS as error:
            fault = error
    reason = str(fault).strip().partition("\n")[0]
    if any(told in reason for told in _READS_CONTENT):
        what = "what it computes depends on the content of tensors, so it is not a fixed graph"
        raise _ContentError(f"{name}: {what}{place_of(fault)}") from fault
    raise InputError(f"{name}: torch.export cannot record it at batch {batch}: {reason}") from fault


def _recorded_inputs(module: torch.nn.Module, name: str) -> tuple[object, ...]:
    """Inputs of a graph module as its own metadata describes them."""
    torch = require_torch()
    if not isinstance(module, torch.fx.GraphModule):
        return ()
    found = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            known = node.meta.get("val", node.meta.get("tensor_meta"))
            if known is None:
                raise InputError(
                    f"{name}: input {node.name!r} has no shape; give example_inputs or run ShapeProp"
                )
            found.append(torch.empty(tuple(known.shape), dtype=known.dtype, device="meta"))
    return tuple(found)
