"""What distinguishes the points of one architecture."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.placement.cluster import Recompute
from phaze.workload.low_precision import Recipe

Chain = tuple[int, int, bool, Recipe | None]
"""Microbatch, width, whether attention recomputes, recipe: settings that share them share a chain of layers."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What distinguishes the points of one architecture. `recipe`: of linear layers; None, as the workload has them."""

    microbatch: int
    tensor_parallel: int
    recompute: Recompute
    recipe: Recipe | None = None

    @property
    def chain(self) -> Chain:
        """What the layers follow from."""
        return self.microbatch, self.tensor_parallel, self.recompute is Recompute.SELECTIVE, self.recipe

    @property
    def order(self) -> tuple[int, int, str, str]:
        """By which settings can be sorted."""
        return self.microbatch, self.tensor_parallel, self.recompute, self.recipe or ""
