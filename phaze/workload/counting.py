"""Parameters of a model, without building all of it where its blocks repeat."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.workload.families.family import Extent, FamilyDimensions
from phaze.workload.ir import OperatorGraph, OpKind
from phaze.workload.training import trained_parameters
from phaze.workload.workload import Attention


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Trained parameters, tied ones once; `active` without the experts that a token is not sent to."""

    total: int
    active: int

    def __add__(self, other: ParameterCount) -> ParameterCount:
        """Both together."""
        return ParameterCount(self.total + other.total, self.active + other.active)

    def times_further(self, times: int, one: ParameterCount) -> ParameterCount:
        """What `times` steps add, of which each leads from `one` to this count."""
        return ParameterCount(times * (self.total - one.total), times * (self.active - one.active))


def count_parameters(dimensions: FamilyDimensions) -> ParameterCount:
    """Parameters of the model; a block that repeats is built once and multiplied."""
    fewest = dimensions.repeats
    short = {name: least for name, (least, _) in fewest.items()}
    base = _counted(dimensions.model_copy(update=short))
    total = base
    for name, (least, number) in fewest.items():
        longer = _counted(dimensions.model_copy(update={**short, name: least + 1}))
        total += longer.times_further(number - least, base)
    return total


def _counted(dimensions: FamilyDimensions) -> ParameterCount:
    """Counted on the graph."""
    graph = dimensions.graph("count", Extent(1), Attention.FLASH)
    total = sum(t.elements for t in trained_parameters(graph))
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
