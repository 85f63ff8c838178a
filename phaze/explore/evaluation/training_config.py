"""Training configs: what distinguishes the points of one architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.workload.operators.low_precision import NO_RECIPE, Recipe, recipe_of_word, recipe_word
from phaze.workload.parallel_degrees import Sharding

if TYPE_CHECKING:
    from phaze.explore.documents.result_document import Placement
    from phaze.explore.request.explore_request import Task

Chain = tuple[int, Sharding, bool, Recipe | None]
"""Microbatch, sharding, whether attention recomputes, recipe: configs that share them share a chain of layers."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Config of a point of one architecture. `recipe`: of linear layers; None, as the workload has them."""

    microbatch: int
    tensor_parallel: int
    recompute: Recompute
    recipe: Recipe | None = None
    sequence: bool = False
    context: int = 1
    expert: int = 1
    grain: Grain = Grain.BLOCK

    @property
    def sharding(self) -> Sharding:
        """How every layer is divided."""
        return Sharding(self.tensor_parallel, self.sequence, self.context, self.expert)

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Choices it fixes in a plan space, recompute aside unless it is selective, which is a kind of its own."""
        selective = {"recomputes": (self.recompute,)} if self.recompute is Recompute.SELECTIVE else {}
        return {
            "microbatches": (self.microbatch,),
            "tensor": (self.tensor_parallel,),
            "sequence": (self.sequence,),
            "context": (self.context,),
            "expert": (self.expert,),
            "grains": (self.grain,),
            **selective,
        }

    @property
    def recomputes(self) -> bool:
        """Whether blocks may run their forward pass again."""
        return self.recompute is Recompute.FULL

    @property
    def chain(self) -> Chain:
        """Key of the chain of layers: what these follow from."""
        return self.microbatch, self.sharding, self.recompute is Recompute.SELECTIVE, self.recipe

    @property
    def order(self) -> tuple[int, int, str, str, bool, int, int, str]:
        """By which configs can be sorted."""
        degrees = self.sequence, self.context, self.expert, self.grain.value
        return self.microbatch, self.tensor_parallel, self.recompute, self.recipe or "", *degrees


def config_of_placement(task: Task, placement: Placement) -> TrainingConfig:
    """The config that a placement of a task is in."""
    told, recompute = placement.plan, Recompute(placement.recompute)
    if told is None:
        return TrainingConfig(
            placement.microbatch_size, placement.tensor_parallel, recompute, placement.recipe
        )
    if task.plan_space.frugal and recompute is Recompute.NONE:
        recompute = Recompute.FULL  # of no block, where memory asks for none
    return TrainingConfig(
        placement.microbatch_size,
        placement.tensor_parallel,
        recompute,
        placement.recipe,
        told.sequence_parallel,
        told.context_parallel,
        told.expert_parallel,
        Grain(told.grain),
    )


def config_row(task: Task, config: TrainingConfig) -> dict[str, Any]:
    """A config as columns of a design table: what the points of a task may differ in."""
    further = {
        "sequence_parallel": config.sequence,
        "context_parallel": config.context,
        "expert_parallel": config.expert,
    }
    return {
        "microbatch_size": config.microbatch,
        "tensor_parallel": config.tensor_parallel,
        "recompute": config.recompute.value,
        **further,
        **({"grain": config.grain.value} if len(task.plan_space.grains) > 1 else {}),
        **({"recipe": recipe_word(config.recipe)} if task.recipe else {}),
    }


def config_columns(task: Task, configs: Sequence[TrainingConfig]) -> dict[str, NDArray[Any]]:
    """Configs as columns of a design table, at least one."""
    rows = [config_row(task, config) for config in configs]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def config_of_row(row: Mapping[str, Any]) -> TrainingConfig:
    """The config behind a row of a design table."""
    return TrainingConfig(
        int(row["microbatch_size"]),
        int(row["tensor_parallel"]),
        Recompute(row["recompute"]),
        recipe_of_word(row.get("recipe", NO_RECIPE)),
        bool(row.get("sequence_parallel", False)),
        int(row.get("context_parallel", 1)),
        int(row.get("expert_parallel", 1)),
        Grain(row.get("grain", Grain.BLOCK)),
    )
