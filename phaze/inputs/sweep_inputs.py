"""Plan of a sweep, from the options of `dse sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError
from phaze.inputs.named_choices import choose
from phaze.inputs.recipe_inputs import arrays_of, with_recipe
from phaze.inputs.task_inputs import asked_task, check_calibration, make_budgets, searched_space

if TYPE_CHECKING:
    from phaze.explore.sampling.optuna_sweep import SweepPlan
    from phaze.inputs.options.search_options import SweepOptions

JOURNAL = "study.journal"
"""File of a run directory that holds the study."""


def make_plan(options: SweepOptions, storage: Path | str | None) -> SweepPlan:
    """The plan behind the options of `dse sweep`.

    `storage`: journal file, database URL, or none for a study that does not last.

    Raises InputError where a value is no good, or where the space lets the stages of a pipeline differ.
    """
    from phaze.explore.evaluation.design_candidates import Candidates
    from phaze.explore.request.design_metrics import check_tokens, metric
    from phaze.explore.sampling.optuna_sweep import SweepPlan
    from phaze.explore.sampling.sampled_study import Sampler
    from phaze.explore.sampling.study_record import StudyPlace

    budgets = make_budgets(options)
    space = searched_space(options, budgets)
    if space.heterogeneous:
        raise InputError(
            f"space {space.name} lets every stage have a design of its own, which dse run searches; dse sweep takes "
            "spaces with stages: alike"
        )
    if space.network_axes is not None:
        raise InputError(
            f"space {space.name} has networks, which dse run searches; dse sweep takes spaces without `network`"
        )
    task = with_recipe(asked_task(options.workload, options), options.recipe, arrays_of(space))
    check_calibration(task, [space.base], f"space {space.name} (base: {space.base.name})")
    objectives = tuple(metric(name.strip()) for name in options.objectives.split(","))
    check_tokens((one.name for one in objectives), task.workload)
    return SweepPlan(
        task=task,
        candidates=Candidates(space, budgets),
        objectives=objectives,
        trials=options.trials,
        place=StudyPlace(storage, options.study),
        sampler=choose(Sampler, options.sampler, "--sampler"),
        seed=options.seed,
        resume=options.resume,
        join=options.join,
        batch=options.batch,
    )
