"""The built-in workload files: names, summaries with numbers of parameters, and where a name's file lies."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from phaze.errors import InputError
from phaze.plugins import FileRegistry, name_key
from phaze.workload.families.model_family import Extent, FamilyDimensions
from phaze.workload.operators.operator_graph import OperatorGraph, OpKind
from phaze.workload.training.backward_pass import model_parameters
from phaze.workload.workload import Attention
from phaze.workload.workload_file import WorkloadSpec, parse_spec, read_spec


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Trained parameters, tied ones once; `active` without the experts that a token is not sent to."""

    total: int
    active: int

    def __add__(self, other: ParameterCount) -> ParameterCount:
        """Both together."""
        return ParameterCount(self.total + other.total, self.active + other.active)

    def times_further(self, times: int, one: ParameterCount) -> ParameterCount:
        """Parameters that `times` steps add, of which each leads from `one` to this count."""
        return ParameterCount(times * (self.total - one.total), times * (self.active - one.active))


def count_parameters(dimensions: FamilyDimensions) -> ParameterCount:
    """Parameters of the model; blocks that repeat are built once and multiplied."""
    fewest = dimensions.repeats
    short = {name: least for name, (least, _) in fewest.items()}
    base = _counted(dimensions.model_copy(update=short))
    total = base
    for name, (least, number) in fewest.items():
        if number > least:
            longer = _counted(dimensions.model_copy(update={**short, name: least + dimensions.period}))
            total += longer.times_further((number - least) // dimensions.period, base)
    return total


def _counted(dimensions: FamilyDimensions) -> ParameterCount:
    """Counted on the graph."""
    graph = dimensions.graph("count", Extent(1), Attention.FLASH)
    total = sum(t.elements for t in model_parameters(graph))
    return ParameterCount(total, total - _unused(graph))


def _unused(graph: OperatorGraph) -> int:
    """Parameters of the experts that a token is not sent to."""
    found, chosen = 0, 0
    for op in graph.operators:
        if op.kind is OpKind.DISPATCH:
            chosen = graph.tensors[op.inputs[1]].shape[-1]
        elif "experts" in op.attributes:
            owned = (graph.tensors[t] for t in op.inputs if graph.tensors[t].is_parameter)
            found += sum(t.elements // t.shape[0] * (t.shape[0] - chosen) for t in owned)
    return found


YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class WorkloadSummary:
    """One line of the list of built-in workloads; `sequence_length` is None where samples are no sequences.

    `active_parameters`: without the experts that a token is not sent to.
    """

    name: str
    family: str
    parameters: int
    active_parameters: int
    layers: int
    sequence_length: int | None
    global_batch: int | None
    source: str


def builtin_names() -> tuple[str, ...]:
    """Names of the built-in workloads, sorted."""
    files = resources.files("phaze.workloads").iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def _builtin_files() -> dict[str, Path]:
    folder = Path(str(resources.files("phaze.workloads")))
    return {name: folder / f"{name}.yaml" for name in builtin_names()}


WORKLOADS = FileRegistry("phaze.workloads", "workloads", _builtin_files)
"""Workload files by name, ours and those of other distributions."""


def list_workloads() -> tuple[WorkloadSummary, ...]:
    """Summaries of all workloads that have a name, ours first."""
    return builtin_workloads() + tuple(_summary(named_spec(name)) for name in WORKLOADS.brought())


def builtin_workloads() -> tuple[WorkloadSummary, ...]:
    """Summaries of the built-in workloads, by name."""
    return tuple(_summary(builtin_spec(name)) for name in builtin_names())


def builtin_spec(name: str) -> WorkloadSpec[FamilyDimensions]:
    """Parsed file of a built-in workload; `name` as in `builtin_names`."""
    file = resources.files("phaze.workloads").joinpath(f"{name}.yaml")
    return parse_spec(file.read_text(encoding="utf-8"), f"built-in workload {name}.yaml")


def named_spec(name: str) -> WorkloadSpec[FamilyDimensions]:
    """Parsed file of a workload; `name` as in `known_name`, which is that of its file.

    Raises InputError where another distribution's is wrong.
    """
    if name in builtin_names():
        return builtin_spec(name)
    return read_spec(WORKLOADS.brought()[name]).model_copy(update={"name": name})


def find_workload(name_or_path: str) -> Path:
    """File of a known name or of a path to a YAML file. Raises InputError for an unknown name."""
    path = Path(name_or_path)
    if path.suffix in YAML_SUFFIXES:
        return path
    name = known_name(name_or_path)
    return _builtin_files().get(name) or WORKLOADS.brought()[name]


def is_known(name: str) -> bool:
    """Whether that is a built-in workload."""
    return name_key(name) in map(name_key, builtin_names())


def known_name(name: str) -> str:
    """The workload of that name, ours or another distribution's; case, `-`, `_` and blanks do not matter.

    Raises InputError, which tells the nearest names.
    """
    names = builtin_names() if is_known(name) else tuple(WORKLOADS.all())
    found = [known for known in names if name_key(known) == name_key(name)]
    if found:
        return found[0]
    if "," in name:
        each = " ".join(f"--workload {one.strip()}" for one in name.split(","))
        raise InputError(f"unknown workload {name!r}; name several one by one: {each}")
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.4)
    hint = f"; nearest: {', '.join(near)}" if near else f"; dse workloads lists the {len(names)} there are"
    raise InputError(f"unknown workload {name!r}{hint}")


def _summary(spec: WorkloadSpec[FamilyDimensions]) -> WorkloadSummary:
    """Summary of a workload file."""
    parameters = count_parameters(spec.dimensions)
    return WorkloadSummary(
        name=spec.name,
        family=spec.family.value,
        parameters=parameters.total,
        active_parameters=parameters.active,
        layers=spec.dimensions.depth,
        sequence_length=spec.sequence_length,
        global_batch=spec.global_batch,
        source=next(iter(spec.source.values())),
    )
