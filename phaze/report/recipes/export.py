"""Writes a plan for one of the training frameworks that are known."""

from __future__ import annotations

from enum import StrEnum

from phaze.errors import InputError
from phaze.explore.documents.plan_document import PlanDocument
from phaze.report.recipes import maxtext, megatron, torchtitan
from phaze.report.recipes.recipe import Recipe
from phaze.workload.workload import Mode


class Target(StrEnum):
    """Frameworks that a plan can be written for."""

    MEGATRON_LM = "megatron-lm"
    TORCHTITAN = "torchtitan"
    MAXTEXT = "maxtext"


def recipe(document: PlanDocument, target: Target) -> Recipe:
    """The best plan of a document for a framework.

    Raises InputError for what none of these runs: inference, and stages that end inside a block.
    """
    if (mode := document.request["mode"]) != Mode.TRAINING:
        raise InputError(f"launch recipes are of training plans; this is one of {mode}")
    if document.best.strategy.grain == "layer":
        raise InputError(
            "stages of this plan end inside blocks, where no framework with a launch recipe cuts: use --plans full"
        )
    writers = {
        Target.MEGATRON_LM: megatron.write,
        Target.TORCHTITAN: torchtitan.write,
        Target.MAXTEXT: maxtext.write,
    }
    return writers[target](document)
