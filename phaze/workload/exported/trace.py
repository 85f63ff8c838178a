"""Modules recorded by `torch.export`: the only part of this front end that needs torch, which is optional."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence, Set
from types import ModuleType
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.workload.exported.clean import overwritten_part
from phaze.workload.exported.model import ExportedModel, join_recordings
from phaze.workload.exported.program import Program
from phaze.workload.exported.traced_graph import TracedGraph
from phaze.workload.fusion_rules import ALL_FUSION, Fusion
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.workload import Mode, Workload

if TYPE_CHECKING:
    import torch

Exported = Any  # torch.export.ExportedProgram; torch is optional, so it is not named

BATCHES = (2, 14)
"""The two batches a module is recorded at; what differs in their shapes is the batch.

A module is exported twice with fixed sizes rather than once with a dynamic batch: fixed sizes are what every
module can be exported with, while a dynamic batch fails wherever code asks for the size (masks, reshapes,
recurrent layers). The factor of 7 is a prime that is rare as a dimension.
"""

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
) -> Workload:
    """Workload of a module, or of a `torch.fx.GraphModule`.

    `example_inputs` and `example_keywords` are arguments of its `forward`; the first dimension of every
    tensor among them is the batch (of any size). Of a graph module with shapes in its metadata
    (`ShapeProp`) they may be left out. Build the module under `torch.device("meta")` and no weight is ever
    allocated; nothing is computed in either case. `sequence_length` (tokens of one sample) is only noted.

    Raises InputError where torch is missing, the module cannot be exported, an operator is not supported,
    or samples are mixed.
    """
    model = record(module, example_inputs, example_keywords or {}, name or type(module).__name__)
    return GraphWorkload(
        model, mode, global_batch=global_batch, fusion=fusion, sequence_length=sequence_length
    )


def record(
    module: torch.nn.Module, inputs: Sequence[object], keywords: Mapping[str, object], name: str
) -> ExportedModel:
    """Export a module at two batches. Raises InputError as `from_torch` does."""
    torch = require_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{name}: expected a torch.nn.Module, found {type(module).__name__}")
    given = tuple(inputs) or _recorded_inputs(module, name) if not keywords else tuple(inputs)
    first, second = (
        _program(_exported(torch, module, given, keywords, batch, name), batch, name) for batch in BATCHES
    )
    return join_recordings(name, first, second)


def _program(exported: Exported, batch: int, name: str) -> Program:
    """Description of an exported program; parts of tensors that it overwrites become copies first."""
    try:
        program = TracedGraph(name, exported).program(batch)
        if overwritten_part(program) is None:
            return program
        return TracedGraph(name, exported.run_decompositions({})).program(batch)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{name}: its sizes depend on the content of tensors: {reason}") from error


def require_torch() -> ModuleType:
    """The torch package. Raises InputError with the line that installs it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise InputError("PyTorch is not installed: pip install 'phaze-dse[torch]'") from error


def _exported(
    torch: ModuleType,
    module: torch.nn.Module,
    inputs: Sequence[object],
    keywords: Mapping[str, object],
    batch: int,
    name: str,
) -> Exported:
    """The module's program at one batch."""
    weight = next(module.parameters(), None)
    device = None if weight is None else weight.device

    def sized(value: object) -> object:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        return torch.zeros(batch, *value.shape[1:], dtype=value.dtype, device=device or value.device)

    try:
        return torch.export.export(
            module, tuple(map(sized, inputs)), {key: sized(value) for key, value in keywords.items()}
        )
    except _FAULTS as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{name}: torch.export cannot record it at batch {batch}: {reason}") from error


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
