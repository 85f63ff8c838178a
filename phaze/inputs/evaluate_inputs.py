"""Architectures that are given: one evaluated, or several side by side, from what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InfeasibleError
from phaze.inputs.architecture_names import find_architecture
from phaze.inputs.recipe_inputs import with_recipe
from phaze.inputs.task_inputs import asked_task, check_calibration
from phaze.inputs.workload_sources import name_of, one_workload

if TYPE_CHECKING:
    from phaze.explore.documents.compare_document import CompareDocument
    from phaze.explore.documents.result_document import Design, ResultDocument
    from phaze.hardware.architecture import Architecture
    from phaze.inputs.options.plan_options import CompareOptions, EvaluateOptions
    from phaze.inputs.workload_sources import Source


def evaluate_given(options: EvaluateOptions) -> ResultDocument:
    """One architecture under the best plan of a space of plans, within the choices that options fix.

    Raises InputError, and InfeasibleError where no plan fits.
    """
    from dataclasses import replace

    from phaze.explore.answers.main_job import evaluate_document
    from phaze.hardware.architecture import to_table
    from phaze.inputs.plan_inputs import held_choices

    chip = find_architecture(options.arch)
    asked = asked_task(options.workload, options)
    check_calibration(asked, [chip], chip.name)
    task = with_recipe(asked, options.recipe, to_table([chip]))
    return evaluate_document(replace(task, held=held_choices(options)), chip)


@dataclass(frozen=True)
class ComparedArchitectures:
    """Architectures by what they were asked as, each a design or why it cannot run the workload."""

    rows: Mapping[str, Design | str]
    document: CompareDocument


def compare_given(options: CompareOptions) -> ComparedArchitectures:
    """Architectures, each under its own best placement.

    Raises InputError; whether any of them can run the workload is for `check_some_can` to say.
    """
    from phaze.explore.answers.main_job import evaluate
    from phaze.explore.documents.compare_document import compare_document
    from phaze.hardware.architecture import to_table

    started = datetime.now(UTC)
    chips = {_name(arch): find_architecture(arch) for arch in options.arch}
    table = to_table(list(chips.values()))
    asked = asked_task(options.workload, options)
    check_calibration(asked, list(chips.values()), "every chip")
    made = with_recipe(asked, options.recipe, table)
    rows: dict[str, Design | str] = {}
    for name, chip in chips.items():
        try:
            rows[name] = evaluate(made, chip)
        except InfeasibleError as error:
            rows[name] = str(error)
    return ComparedArchitectures(rows, compare_document(made, rows, started))


def check_some_can(rows: Mapping[str, Design | str], workload: Sequence[Source]) -> None:
    """Raises InfeasibleError where none of the architectures can run the workload."""
    if all(isinstance(row, str) for row in rows.values()):
        raise InfeasibleError(f"none of {', '.join(rows)} can run {name_of(one_workload(workload))}")


def _name(arch: str | Path | Architecture) -> str:
    return str(arch) if isinstance(arch, str | Path) else arch.name
