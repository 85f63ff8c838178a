"""Writes a plan for one of the training frameworks that are known."""

from __future__ import annotations

from enum import StrEnum

from phaze.errors import InputError
from phaze.explore.documents.plan_document import PlanDocument
from phaze.report.exports import maxtext_recipe, megatron_recipe, torchtitan_recipe
from phaze.report.exports.launch_recipe import Recipe
from phaze.workload.workload import Mode


class Target(StrEnum):
    """Frameworks that a plan can be written for."""

    MEGATRON_LM = "megatron-lm"
    TORCHTITAN = "torchtitan"
    MAXTEXT = "maxtext"

    @property
    def framework(self) -> str:
        """Packaged framework that says what such software hides, costs and can run."""
        return {"megatron-lm": "megatron-core-2024", "torchtitan": "torchtitan-2025"}.get(
            self.value, "maxtext-2024"
        )

    @property
    def counts_blocks(self) -> bool:
        """Whether a recipe can say how many blocks recompute; otherwise all or none."""
        return self is Target.MEGATRON_LM


def check_launchable(document: PlanDocument) -> None:
    """Raises InputError for what no framework with recipes runs: inference, and stages that end inside a block."""
    if (mode := document.request["mode"]) != Mode.TRAINING:
        raise InputError(f"launch recipes are of training plans; this is one of {mode}")
    if document.best.strategy.feeds is not None:
        raise InputError(
            "branches of this plan run side by side, which no framework with a launch recipe does: use --plans full"
        )
    if document.best.strategy.grain == "layer":
        raise InputError(
            "stages of this plan end inside blocks, where no framework with a launch recipe cuts: use --plans full"
        )


def recipe(document: PlanDocument, target: Target) -> Recipe:
    """The best plan of a document for a framework. Raises InputError as `check_launchable`."""
    check_launchable(document)
    writers = {
        Target.MEGATRON_LM: megatron_recipe.write,
        Target.TORCHTITAN: torchtitan_recipe.write,
        Target.MAXTEXT: maxtext_recipe.write,
    }
    return writers[target](document)
