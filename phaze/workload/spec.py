"""Workloads by name or file: the built-in YAML files, a user's own, ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from phaze.errors import InputError
from phaze.workload.families.decoder import decoder_graph
from phaze.workload.families.encoder import encoder_graph
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.ir import OperatorGraph
from phaze.workload.workload import Attention, Mode, Workload
from phaze.workload.workload_file import Dimensions, Family, WorkloadSpec, parse_spec, read_spec

_GRAPHS: Mapping[Family, Callable[[str, Dimensions, int, int, Attention], OperatorGraph]] = {
    Family.DECODER: decoder_graph,
    Family.ENCODER: encoder_graph,
}
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class FamilyModel:
    """Forward model of a workload file: dimensions, sequence length and the choice of attention."""

    name: str
    spec: WorkloadSpec
    attention: Attention

    @property
    def heads(self) -> int | None:
        """Attention heads."""
        return self.spec.dimensions.heads

    def graph(self, batch: int) -> OperatorGraph:
        """Forward graph of `batch` sequences."""
        build = _GRAPHS[self.spec.family]
        return build(self.name, self.spec.dimensions, batch, self.spec.sequence_length, self.attention)


@dataclass(frozen=True)
class WorkloadSummary:
    """One line of the list of built-in workloads."""

    name: str
    family: str
    parameters: int
    layers: int
    sequence_length: int
    global_batch: int | None
    source: str


def builtin_names() -> tuple[str, ...]:
    """Names of the built-in workloads, sorted."""
    files = resources.files("phaze.workloads").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def list_workloads() -> tuple[WorkloadSummary, ...]:
    """Summaries of the built-in workloads, by name."""
    return tuple(_summary(_builtin_spec(name)) for name in builtin_names())


def load_workload(
    name_or_path: str,
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
    _check_positive("global_batch", global_batch)
    _check_positive("sequence_length", sequence_length)
    path = Path(name_or_path)
    if path.suffix == ".onnx":
        _check_no_sequence(path, sequence_length)
        return _load_onnx(path, mode, global_batch, bind or {}, fusion=fusion)
    if bind:
        raise InputError(f"{name_or_path}: only ONNX files have dimensions to bind ({', '.join(bind)})")
    if path.suffix in _SUFFIXES:
        spec, name = read_spec(path), path.stem
    else:
        spec = _builtin_spec(_known(name_or_path))
        name = spec.name
    spec = _with_sequence(spec, sequence_length)
    plan = spec.expert_plan
    return GraphWorkload(
        FamilyModel(name, spec, attention),
        mode,
        global_batch=global_batch or spec.global_batch,
        optimizer=spec.optimizer,
        expert_plan=(plan.pipeline, plan.tensor, plan.data) if plan else None,
        fusion=fusion,
        sequence_length=spec.sequence_length,
    )


def _load_onnx(
    path: Path, mode: Mode, global_batch: int | None, bind: Mapping[str, int], *, fusion: bool
) -> Workload:
    """Workload of an ONNX file; the reader is imported only here, as it needs a while."""
    from phaze.workload.onnx import load_onnx

    return GraphWorkload(load_onnx(path, bind), mode, global_batch=global_batch, fusion=fusion)


def _check_no_sequence(path: Path, sequence_length: int | None) -> None:
    if sequence_length is not None:
        msg = f"{path}: the sequence length of an ONNX file is one of its dimensions; bind that instead"
        raise InputError(msg)


def find_workload(name_or_path: str) -> Path:
    """File of a built-in name or of a path to a YAML file. Raises InputError for an unknown name."""
    path = Path(name_or_path)
    if path.suffix in _SUFFIXES:
        return path
    return Path(str(resources.files("phaze.workloads"))) / f"{_known(name_or_path)}.yaml"


def _known(name: str) -> str:
    """The built-in workload of that name; case, `-`, `_` and blanks do not matter."""
    names = builtin_names()
    found = [known for known in names if _key(known) == _key(name)]
    if found:
        return found[0]
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.4)
    hint = f"; nearest: {', '.join(near)}" if near else f"; known: {', '.join(names)}"
    msg = f"unknown workload {name!r}{hint} (a file must end in .yaml, .yml or .onnx)"
    raise InputError(msg)


def _builtin_spec(name: str) -> WorkloadSpec:
    """Parsed file of a built-in workload."""
    file = resources.files("phaze.workloads").joinpath(f"{name}.yaml")
    return parse_spec(file.read_text(encoding="utf-8"), f"built-in workload {name}.yaml")


def _with_sequence(spec: WorkloadSpec, sequence_length: int | None) -> WorkloadSpec:
    """The workload at another sequence length."""
    if sequence_length is None:
        return spec
    if sequence_length > spec.dimensions.max_positions:
        msg = (
            f"{spec.name}: sequence length {sequence_length} exceeds the model's "
            f"{spec.dimensions.max_positions} positions (dimensions.max_positions)"
        )
        raise InputError(msg)
    return spec.model_copy(update={"sequence_length": sequence_length})


def _key(name: str) -> str:
    return "".join(c for c in name.lower() if c not in "-_ ")


def _check_positive(what: str, value: int | None) -> None:
    if value is not None and value < 1:
        msg = f"{what} is {value}; it must be at least 1"
        raise InputError(msg)


def _summary(spec: WorkloadSpec) -> WorkloadSummary:
    """Summary of a workload file; parameters counted on its graph."""
    parameters = FamilyModel(spec.name, spec, Attention.FLASH).graph(1).parameters()
    return WorkloadSummary(
        name=spec.name,
        family=spec.family.value,
        parameters=sum(t.elements for t in parameters),
        layers=spec.dimensions.layers,
        sequence_length=spec.sequence_length,
        global_batch=spec.global_batch,
        source=next(iter(spec.source.values())),
    )
