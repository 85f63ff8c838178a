"""In which few bits linear layers may run, from what was asked and what the arrays at hand take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from phaze.errors import InputError
from phaze.inputs.named_choices import choose

if TYPE_CHECKING:
    from phaze.explore.request.explore_request import Task
    from phaze.hardware.architecture import Architecture
    from phaze.hardware.architecture_table import ArchitectureTable
    from phaze.hardware.hardware_fields import FieldValue
    from phaze.hardware.spaces.design_space import DesignSpace
    from phaze.hardware.spaces.space_axis import Option
    from phaze.workload.operators.low_precision import Recipe

_FORMATS = ("precision", "fp8_rate", "fp4_rate")
"""Fields that say what arrays are faster at."""


def with_recipe(task: Task, asked: str | None, chips: ArchitectureTable) -> Task:
    """The task with the recipe that was asked for, or without one (`none`).

    Nothing asked: fp8 where some of the chips are made for it (`precision: bf16+fp8`, with fp4 or without). Raises
    InputError for a word that is no recipe, one that is faster on none of the chips, and one for inference in training.
    """
    from phaze.hardware.hardware_fields import code
    from phaze.workload.operators.low_precision import NO_RECIPE, Recipe
    from phaze.workload.workload import Mode

    if asked is None:
        made_for_it = [chips["precision"] == code("precision", name) for name in ("bf16+fp8", "bf16+fp8+fp4")]
        return replace(task, recipe=Recipe.FP8) if any(found.any() for found in made_for_it) else task
    if asked == NO_RECIPE:
        return task
    recipe = choose(Recipe, asked, "--recipe")
    if task.workload.mode is Mode.TRAINING and not recipe.trains:
        trains = ", ".join(one for one in Recipe if one.trains)
        raise InputError(f"--recipe {recipe} is for inference (--mode prefill or decode); to train: {trains}")
    _check_arrays(recipe, chips)
    return replace(task, recipe=recipe)


def served_recipe(asked: str | None, chips: ArchitectureTable) -> Recipe | None:
    """The recipe that a model is served in on some chips. Raises InputError as `with_recipe`."""
    from phaze.workload.operators.low_precision import NO_RECIPE, Recipe

    if asked in (None, NO_RECIPE):
        return None
    recipe = choose(Recipe, str(asked), "--recipe")
    _check_arrays(recipe, chips)
    return recipe


def _check_arrays(recipe: Recipe, chips: ArchitectureTable) -> None:
    """Raises InputError for a recipe that is faster on none of the chips, unless weights alone are in few bits.

    One of 4 bits has to be faster than 8 bits are, as which arrays without products of 4 bits would take it.
    """
    from phaze.hardware.derived_figures import narrow_speed
    from phaze.workload.operators.low_precision import Recipe
    from phaze.workload.work import Format

    if recipe.operands is None:
        return
    wider = narrow_speed(chips, Format.FP8) if recipe.operands is Format.FP4 else 1.0
    if (narrow_speed(chips, recipe.operands) > wider).any():
        return
    alone = next((a for a in (f"{recipe}-weights", f"{recipe.operands}-weights") if a in list(Recipe)), None)
    stored = "" if alone is None else f", and --recipe {alone} keeps the weights alone so (inference)"
    raise InputError(
        f"--recipe {recipe} needs arrays that are faster on {recipe.operands} operands, and none here are; "
        f"dse run --space precision and --fix precision=bf16+fp8 have such in 8 bits, --space few-bits and "
        f"--fix precision=bf16+fp8+fp4 in 4{stored}"
    )


def task_in_recipe(task: Task, asked: str | None, chip: Architecture) -> Task:
    """The task with a workload that runs as asked on a chip, as `with_recipe` reads it, whether faster so or not.

    Raises InputError.
    """
    from phaze.hardware.architecture import to_table

    found = with_recipe(task, asked, to_table([chip]))
    return replace(found, workload=found.workload_in(found.recipe))


def arrays_of(space: DesignSpace) -> ArchitectureTable:
    """One architecture for every choice of formats that a space has."""
    from phaze.hardware.architecture import to_table

    chips = [space.base]
    for axis in space.axes:
        options = dict.fromkeys(tuple(_formats(axis.fields, option).items()) for option in axis.every_option)
        chips = [chip.replace(chip.name, **dict(option)) for chip in chips for option in options]
    table = to_table(chips)
    for pin in space.pins:
        if pin.field in _FORMATS:
            table = table.take(pin.holds(table.columns).nonzero()[0])
    return table


def _formats(fields: tuple[str, ...], option: Option) -> Mapping[str, FieldValue]:
    """Formats that one option of an axis sets, by field."""
    said = zip(fields, option, strict=True)
    return {name: value for name, value in said if name in _FORMATS and value is not None}
