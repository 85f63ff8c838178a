"""Workloads from whatever names them: a built-in name, a YAML file, an ONNX model.

Each front end turns a source and the options into a `Workload`. One that needs a heavy package imports it
when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.families.family import Extent, FamilyDimensions
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.ir import OperatorGraph
from phaze.workload.library import YAML_SUFFIXES, builtin_spec, find_workload, known_name
from phaze.workload.options import LoadOptions
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_file import WorkloadSpec, read_spec

FrontEnd = Callable[[str, LoadOptions], Workload]


@dataclass(frozen=True)
class FamilyModel:
    """Forward model of a workload file: dimensions, sequence length and the choice of attention."""

    name: str
    spec: WorkloadSpec[FamilyDimensions]
    attention: Attention

    @property
    def heads(self) -> int | None:
        """Attention heads."""
        return self.spec.dimensions.heads_to_divide

    def graph(self, batch: int) -> OperatorGraph:
        """Forward graph of `batch` samples."""
        extent = Extent(batch, self.spec.sequence_length or 1)
        return self.spec.dimensions.graph(self.name, extent, self.attention)


def load_workload(
    source: str,
    mode: Mode = Mode.TRAINING,
    attention: Attention = Attention.FLASH,
    *,
    sequence_length: int | None = None,
    global_batch: int | None = None,
    bind: Mapping[str, int] | None = None,
    fusion: bool = True,
) -> Workload:
    """Workload of a built-in name, a YAML file or an ONNX file.

    `sequence_length` and `global_batch` replace the file's own; `bind` gives sizes to the symbolic
    dimensions of an ONNX file (but for the batch). Raises InputError for an unknown name
    (with the nearest ones), a file that cannot be read or used, and sizes that make no sense.
    """
    options = LoadOptions(mode, attention, sequence_length, global_batch, bind or {}, fusion)
    return _front_end(source)(source, options)


def source_file(source: str) -> Path:
    """File behind a source of `load_workload`. Raises InputError for an unknown name."""
    return Path(source) if Path(source).suffix in _BY_SUFFIX else find_workload(source)


def _front_end(source: str) -> FrontEnd:
    return _BY_SUFFIX.get(Path(source).suffix, _builtin)


def _onnx(source: str, options: LoadOptions) -> Workload:
    from phaze.workload.onnx import load_onnx

    options.refuse_sequence(source, "an ONNX file")
    model = load_onnx(source, options.bind)
    return GraphWorkload(model, options.mode, global_batch=options.global_batch, fusion=options.fusion)


def _file(source: str, options: LoadOptions) -> Workload:
    return _of_family(read_spec(Path(source)), Path(source).stem, source, options)


def _builtin(source: str, options: LoadOptions) -> Workload:
    spec = builtin_spec(known_name(source))
    return _of_family(spec, spec.name, source, options)


def _of_family(
    spec: WorkloadSpec[FamilyDimensions], name: str, source: str, options: LoadOptions
) -> Workload:
    options.refuse_binding(source)
    spec = _with_sequence(spec, options.sequence_length)
    plan = spec.expert_plan
    return GraphWorkload(
        FamilyModel(name, spec, options.attention),
        options.mode,
        global_batch=options.global_batch or spec.global_batch,
        optimizer=spec.optimizer,
        expert_plan=(plan.pipeline, plan.tensor, plan.data) if plan else None,
        fusion=options.fusion,
        sequence_length=spec.sequence_length,
    )


def _with_sequence(
    spec: WorkloadSpec[FamilyDimensions], length: int | None
) -> WorkloadSpec[FamilyDimensions]:
    """The workload at another sequence length."""
    if length is None:
        return spec
    try:
        spec.check_sequence(length)
    except ValueError as error:
        raise InputError(f"{spec.name}: {error}") from error
    return spec.model_copy(update={"sequence_length": length})


_BY_SUFFIX: Mapping[str, FrontEnd] = MappingProxyType({".onnx": _onnx, **dict.fromkeys(YAML_SUFFIXES, _file)})
