"""Choices of a plan, as data: named spaces of plans, and the part of them that a framework runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InputError
from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, RankOrder, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.workload.parallel_degrees import Shardable
from phaze.yaml_file import checked, read_yaml

Numbers = tuple[Annotated[int, Field(ge=1)], ...]


class Dimension(StrEnum):
    """Dimension of a model that may be divided over devices; replicas of all of it are always possible."""

    TENSOR = "tensor"
    SEQUENCE = "sequence"
    CONTEXT = "context"
    EXPERT = "expert"
    PIPELINE = "pipeline"


class RecomputeChoice(StrEnum):
    """Activations that may run again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    SOME = "some-blocks"  # full recompute of as few blocks as memory asks for, from none to all
    LAYERS = "layers"  # of single layers of blocks, too, whatever is fastest and fits
    ALL = "all-blocks"


UNLESS_ASKED = tuple(choice for choice in RecomputeChoice if choice is not RecomputeChoice.LAYERS)
"""Recompute where a space does not say which: all but layer by layer, which searches over chips do not have."""


class Cut(StrEnum):
    """Cut of a pipeline: the numbers of blocks of its parts."""

    EQUAL = "equal"  # all of them as many
    WHOLE = "whole-blocks"  # as equal in number as can be, or fewer at the ends
    LAYERS = "layers"  # or between any two layers: of halves of blocks


class Choices(BaseModel):
    """Choices of each kind that are allowed; none: everything."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    divides: Annotated[
        frozenset[Dimension] | None,
        Field(description="what is divided beside data: tensor, sequence, context, expert, pipeline"),
    ] = None
    ragged: Annotated[
        bool | None,
        Field(
            description="whether data x microbatch need not divide the global batch, so that replicas have unequal work"
        ),
    ] = None
    stages: Annotated[
        Cut | None,
        Field(description="where pipelines are cut: equal, whole-blocks or layers (halves of blocks, too)"),
    ] = None
    schedules: Annotated[
        tuple[Schedule, ...] | None,
        Field(
            description="gpipe, 1f1b, interleaved, breadth-first, zb-h1, zb-h2, zb-v, dualpipe", min_length=1
        ),
    ] = None
    recompute: Annotated[
        tuple[RecomputeChoice, ...] | None,
        Field(
            description="none, selective (attention), some-blocks (as few as memory asks for), layers (single layers "
            "of blocks, too; only where asked for) or all-blocks",
            min_length=1,
        ),
    ] = None
    zero: Annotated[
        tuple[Zero, ...] | None,
        Field(
            description="what replicas divide: 0 nothing, 1 optimizer, 2 gradients, 3 weights", min_length=1
        ),
    ] = None
    zero_in_pipelines: Annotated[
        tuple[Zero, ...] | None,
        Field(description="the same beside pipeline parallelism; none: as zero", min_length=1),
    ] = None
    branches: Annotated[
        bool | None,
        Field(description="whether branches of a model may run side by side, so that stages are a graph"),
    ] = None
    orders: Annotated[
        tuple[RankOrder, ...] | None, Field(description="groups from neighbours to strangers", min_length=1)
    ] = None

    def divided(self, dimension: Dimension) -> bool:
        """Whether a dimension may be divided."""
        return self.divides is None or dimension in self.divides

    def refusal(self, held: Mapping[str, Sequence[Any]]) -> str | None:
        """Refusal of choices that are held (fields of a plan space) and not there, in words; None: all are there."""
        return next(self._refusals(held), None)

    def _refusals(self, held: Mapping[str, Sequence[Any]]) -> Iterator[str]:
        for field, (name, words) in _KINDS.items():
            known = getattr(self, name)
            if field in held and known is not None and not _has(known, held[field]):
                yield f"{words} {_listed(held[field][:1])}; it has: {_listed(known)}"
        for dimension in Dimension:
            undivided = 0 if dimension is Dimension.SEQUENCE else 1
            if not self.divided(dimension) and max(held.get(dimension.value, (undivided,))) > undivided:
                there = _listed(("data", *sorted(self.divides or ())))
                yield f"{dimension} parallelism; it divides: {there}"
        if Grain.BLOCK not in held.get("grains", (Grain.BLOCK,)) and self.stages not in (None, Cut.LAYERS):
            yield f"stages that end inside a block; it has: {self.stages}"
        zeros, deep = held.get("zeros", ()), min(held.get("pipeline", (1,))) > 1
        beside = self.zero_in_pipelines
        if deep and zeros and beside is not None and not _has(beside, zeros):
            yield f"ZeRO {_listed(zeros[:1])} beside pipelines; it has: {_listed(beside)}"

    def both(self, other: Choices) -> dict[str, Any]:
        """Choices that both have, by field. A kind of which they have nothing in common is empty."""
        return {name: _common(getattr(self, name), getattr(other, name)) for name in Choices.model_fields}


_KINDS = {
    "schedules": ("schedules", "schedule"),
    "zeros": ("zero", "ZeRO"),
    "recomputes": ("recompute", "recompute"),
    "orders": ("orders", "order"),
}
_AGAIN = {
    Recompute.NONE: RecomputeChoice.NONE,
    Recompute.FULL: RecomputeChoice.ALL,
    Recompute.SELECTIVE: RecomputeChoice.SELECTIVE,
}


def _has(known: Sequence[Any], values: Sequence[Any]) -> bool:
    there = _with_less(known)
    return any(_AGAIN.get(value, value) in there for value in values)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(str(int(value) if isinstance(value, Zero) else value) for value in values)


def chosen(plan: ParallelPlan) -> dict[str, tuple[Any, ...]]:
    """The choices of a plan as if all were held."""
    s, alone = plan, plan.pipeline_parallel == 1
    again = (
        RecomputeChoice.SOME if s.recompute is Recompute.FULL and s.recomputed is not None else s.recompute
    )
    again = RecomputeChoice.LAYERS if s.layers else again
    return {
        "tensor": (s.sharding.tensor,),
        "sequence": (s.sharding.sequence,),
        "context": (s.sharding.context,),
        "expert": (s.sharding.expert,),
        "pipeline": (s.pipeline_parallel,),
        "zeros": (s.zero,),
        "orders": (s.order,),
        "recomputes": (again,),
        "grains": (s.grain,),
    } | ({} if alone else {"schedules": (s.schedule,)})


def runs_plan(choices: Choices, plan: ParallelPlan, samples: int, groups: int) -> bool:
    """Whether choices have those of a plan, on a batch of so many samples and a model of so many groups of layers."""
    even = samples % (plan.microbatch * plan.data_parallel) == 0
    equal = groups % plan.parts == 0 and len(set(plan.stages)) <= 1
    return (
        choices.refusal(chosen(plan)) is None
        and (even or choices.ragged is not False)
        and (equal or choices.stages is not Cut.EQUAL)
        and not (plan.branches and choices.branches is False)
    )


def _common(one: Any, other: Any) -> Any:  # noqa: ANN401 - values of any field
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, bool):
        return one and other
    if isinstance(one, Cut):
        return min(one, other, key=list(Cut).index)
    if isinstance(one, frozenset):
        return one & other
    there = _with_less(other)
    return tuple(value for value in _with_less(one) if value in there)


def _with_less(values: Sequence[Any]) -> Sequence[Any]:
    """Who recomputes some blocks may also recompute none or all; who chooses layer by layer, some blocks, too."""
    less = {
        RecomputeChoice.LAYERS: (RecomputeChoice.SOME, RecomputeChoice.NONE, RecomputeChoice.ALL),
        RecomputeChoice.SOME: (RecomputeChoice.NONE, RecomputeChoice.ALL),
    }
    more = (some for value in values for some in less.get(value, ()))
    return tuple(dict.fromkeys((*values, *more)))


class Plans(Choices):
    """A space of plans; of numbers, none is every one that the model and the cluster allow."""

    schema_version: Literal[1] = 1
    name: str
    source: Annotated[str, Field(description="what the space is for, and where that is from")]
    microbatches: Annotated[Numbers, Field(description="samples of a microbatch", min_length=1)]
    tensor: Annotated[
        Numbers | None,
        Field(description="tensor-parallel widths; none: all inside a scale-up domain", min_length=1),
    ] = None
    context: Annotated[
        Numbers | None,
        Field(
            description="devices that divide a sample; none: powers of two, 4096 tokens each", min_length=1
        ),
    ] = None
    expert: Annotated[
        Numbers | None,
        Field(description="groups of experts; none: powers of two that divide them", min_length=1),
    ] = None
    pipeline: Annotated[
        Numbers | None, Field(description="stages; none: every number that pays", min_length=1)
    ] = None
    chunks: Annotated[
        Numbers, Field(description="parts of the model on each device (interleaving)", min_length=1)
    ]
    whole: Annotated[
        tuple[frozenset[Shardable], ...],
        Field(description="sets of layers that tensor ranks keep whole", min_length=1),
    ] = (frozenset(),)
    offloads: Annotated[
        tuple[frozenset[Offload], ...],
        Field(description="what hosts keep, each choice one list", min_length=1),
    ] = (frozenset(),)
    branches: Annotated[
        bool, Field(description="whether branches of a model may also run side by side: stages are a graph")
    ] = False

    def within(self, name: str, choices: Choices | None) -> Self:
        """Choices that a framework of a name runs. Raises InputError where there are none."""
        if choices is None:
            return self
        common = self.both(choices)
        for field, values in common.items():
            if values == () and field != "divides":
                raise InputError(f"plans {self.name} and framework {name} have no {field} in common")
        return self.model_copy(update=common)


def list_plans() -> tuple[str, ...]:
    """Names of the packaged spaces of plans."""
    return tuple(packaged(Catalogue.PLAN_SPACE))


def load_plans(name_or_path: str | Path = "full") -> Plans:
    """A space of plans by packaged name or file. Raises InputError."""
    path = find(Catalogue.PLAN_SPACE, name_or_path)
    return checked(Plans, read_yaml(path), str(path))
