"""Degrees of parallelism inside a layer, and the groups of devices that they make.

Devices are numbered tensor-parallel rank first, then context, then expert (Megatron-LM's order, Narayanan
et al., SC'21): neighbours of a context group are `tensor` numbers apart, those of an expert group
`tensor x context`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from phaze.workload.expert_load import ExpertLoad


class Parallel(StrEnum):
    """Dimension of parallelism: the axis that a group of devices divides among its members."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"


class Shardable(StrEnum):
    """Layers whose weights tensor parallelism divides; one with attention and an MLP side by side is `attention`."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    HEAD = "head"  # logits and loss


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that communicate: `size` of them, neighbours `stride` device numbers apart."""

    parallel: Parallel = Parallel.TENSOR
    size: int = 1
    stride: int = 1

    @property
    def span(self) -> int:
        """Device numbers that the group reaches over."""
        return self.size * self.stride


@dataclass(frozen=True, slots=True)
class Sharding:
    """Sharding of one layer over devices.

    `tensor`: heads and widths, as in Megatron-LM. `sequence`: between the divided products the tokens are
    divided over the same group. `context`: tokens everywhere. `expert`: experts, among as many data-parallel
    devices, each with a microbatch of its own. `folded`: among tensor and context ranks too, each with tokens of its
    own, so that experts stay whole (parallel folding, arXiv 2504.14960). `whole`: layers that all ranks of a tensor
    group keep whole, each for tokens of its own, as under context parallelism; never those with experts. `load`: of
    experts in a forward pass, where it is uneven; a device is the one with most to do. ValueError for
    a degree below 1, and for folded experts or whole layers where tensor-parallel ranks have the same tokens.
    """

    tensor: int = 1
    sequence: bool = False
    context: int = 1
    expert: int = 1
    folded: bool = False
    replicated: frozenset[Shardable] = frozenset()
    load: ExpertLoad | None = None

    def __post_init__(self) -> None:
        """Check the degrees."""
        for parallel in Parallel:
            degree = getattr(self, parallel.value)
            if degree < 1:
                msg = f"{parallel}-parallel degree {degree} must be at least 1"
                raise ValueError(msg)
        if self.folded and self.tensor > 1 and not self.sequence:
            msg = "folded experts need sequence parallelism beside tensor parallelism"
            raise ValueError(msg)
        if self.replicated and not (self.sequence and self.tensor > 1):
            msg = "whole layers need sequence parallelism over a tensor group"
            raise ValueError(msg)

    @classmethod
    def of(cls, degrees: int | Sharding) -> Sharding:
        """The sharding itself, or plain tensor parallelism of that width."""
        return cls(degrees) if isinstance(degrees, int) else degrees

    @property
    def divided(self) -> Sharding:
        """Sharding of layers that do not stay whole."""
        return replace(self, replicated=frozenset())

    @property
    def undivided(self) -> Sharding:
        """Sharding of those that do: all devices of a tensor and a context group make one context group."""
        return replace(self.divided, tensor=1, sequence=False, context=self.tensor * self.context)

    @property
    def is_undivided(self) -> bool:
        """Whether nothing is divided."""
        return self.tensor == self.context == self.expert == 1 and self.load is None

    @property
    def divides_tokens(self) -> bool:
        """Whether some activation holds only a part of the tokens of its samples."""
        return self.context > 1 or (self.sequence and self.tensor > 1)

    def group(self, parallel: Parallel) -> Group:
        """The devices among which one degree divides."""
        strides = {
            Parallel.TENSOR: 1,
            Parallel.CONTEXT: self.tensor,
            Parallel.EXPERT: 1 if self.folded else self.tensor * self.context,
        }
        return Group(parallel, getattr(self, parallel.value), strides[parallel])
