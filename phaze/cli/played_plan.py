"""From a plan document to its best plan, played again: for the page that draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.explore.answers.plan_replay import ReplayedPlan
    from phaze.explore.documents.plan_document import PlanDocument


def played_plan(document: PlanDocument) -> ReplayedPlan | str:
    """The plan in time, or why it cannot be worked out again: a document names its inputs, it does not hold them."""
    from dataclasses import replace

    from phaze.explore.answers.plan_replay import replay_plan
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.recipe_inputs import task_in_recipe
    from phaze.inputs.task_inputs import make_task
    from phaze.placement.strategy.framework import load_framework

    asked = document.request
    try:
        framework = load_framework(asked["framework"])
        task = make_task(
            asked["workloads"],
            devices=asked["devices"],
            global_batch=asked["global_batch"],
            network=asked["network"],
            rung=asked["rung"],
            mode=asked["mode"],
            attention=framework.attention.value,
            fusion=asked["fusion"],
        )
        chip = find_architecture(asked["architecture"])
        task = task_in_recipe(task, asked.get("recipe") or "none", chip)
        return replay_plan(document, replace(task, framework=framework), chip)
    except KeyError as error:
        return f"the request of the document does not tell {error}"
    except (InputError, ValueError) as error:  # ValueError: a name that no file can have
        return " ".join(str(error).split())
