"""What distinguishes the points of one architecture."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.placement.cluster import Recompute
from phaze.workload.degrees import Sharding
from phaze.workload.low_precision import Recipe

Chain = tuple[int, Sharding, bool, Recipe | None]
"""Microbatch, sharding, whether attention recomputes, recipe: settings that share them share a chain of layers."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What distinguishes the points of one architecture. `recipe`: of linear layers; None, as the workload has them."""

    microbatch: int
    tensor_parallel: int
    recompute: Recompute
    recipe: Recipe | None = None
    sequence: bool = False
    context: int = 1
    expert: int = 1

    @property
    def sharding(self) -> Sharding:
        """How every layer is divided."""
        return Sharding(self.tensor_parallel, self.sequence, self.context, self.expert)

    @property
    def recomputes(self) -> bool:
        """Whether blocks may run their forward pass again."""
        return self.recompute is Recompute.FULL

    @property
    def chain(self) -> Chain:
        """What the layers follow from."""
        return self.microbatch, self.sharding, self.recompute is Recompute.SELECTIVE, self.recipe

    @property
    def order(self) -> tuple[int, int, str, str, bool, int, int]:
        """By which settings can be sorted."""
        degrees = self.sequence, self.context, self.expert
        return self.microbatch, self.tensor_parallel, self.recompute, self.recipe or "", *degrees
