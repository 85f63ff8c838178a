"""What a sweep is asked, from the options of `dse sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.errors import InputError
from phaze.inputs.named_choices import choose
from phaze.inputs.recipe_inputs import arrays_of, with_recipe
from phaze.inputs.run_inputs import asked_task
from phaze.inputs.task_inputs import make_budgets, make_space

if TYPE_CHECKING:
    from phaze.explore.sampling.optuna_sweep import SweepPlan

JOURNAL = "study.journal"
"""File of a run directory that holds the study."""


def make_plan(asked: Mapping[str, Any], storage: Path | str | None) -> SweepPlan:
    """The plan behind the values of `dse sweep`'s options, by their names in Python.

    `storage`: journal file, database URL, or none for a study that does not last.

    Raises InputError where a value is no good, or where the space lets the stages of a pipeline differ.
    """
    from phaze.explore.evaluation.design_candidates import Candidates
    from phaze.explore.request.design_metrics import metric
    from phaze.explore.sampling.optuna_sweep import SweepPlan
    from phaze.explore.sampling.sampled_study import Sampler
    from phaze.explore.sampling.study_record import StudyPlace

    space = make_space(asked["space"], asked["node"], asked["clock"], asked["fix"] or ())
    if space.heterogeneous:
        raise InputError(
            f"space {space.name} lets every stage have a design of its own, which dse run searches; dse sweep takes "
            "spaces with stages: alike"
        )
    budgets = make_budgets(
        asked["power"],
        asked["area"],
        asked["tdp_margin"],
        dvfs=asked["dvfs"],
        power_density=asked["power_density"],
    )
    return SweepPlan(
        task=with_recipe(asked_task(asked["workload"], asked), asked["recipe"], arrays_of(space)),
        candidates=Candidates(space, budgets),
        objectives=tuple(metric(name.strip()) for name in asked["objectives"].split(",")),
        trials=asked["trials"],
        place=StudyPlace(storage, asked["study"]),
        sampler=choose(Sampler, asked["sampler"], "--sampler"),
        seed=asked["seed"],
        resume=asked["resume"],
        join=asked["join"],
        batch=asked["batch"],
    )
