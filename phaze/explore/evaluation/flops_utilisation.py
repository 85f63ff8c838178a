"""Effect of formats on points: which arrays take a recipe, and the peaks to hold a throughput against."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    narrow_speed,
    peak_flops_per_s,
    product_flops_per_s,
    sustained_flops_per_s,
)
from phaze.workload.operators.low_precision import Recipe

_Value = TypeVar("_Value", float, Floats)


def takes_recipe(table: ArchitectureTable, recipe: Recipe | None) -> NDArray[np.bool_]:
    """Which architectures points with a recipe are for, (A,): those that are faster on its operands.

    All where weights alone are in few bits.
    """
    if recipe is None or recipe.operands is None:
        return np.ones(len(table), dtype=np.bool_)
    return np.asarray(narrow_speed(table, recipe.operands) > 1)


def counted_flops_per_s(table: ArchitectureTable, recipe: Recipe | None) -> Floats:
    """Peak that MFU counts against, (A,): that in the recipe's format, without one in the chip's own."""
    return peak_flops_per_s(table) if recipe is None else product_flops_per_s(table, recipe.operands)


def flops_utilisation(model_flops: float, seconds: _Value, devices: int, peak_flops_per_s: _Value) -> _Value:
    """Model FLOPs utilisation of iterations that take some seconds on `devices` of such a peak each, numbers or (A,).

    Model FLOPs (no recompute) over those of all devices at their peak (PaLM, arXiv 2204.02311, appendix B).
    """
    found: _Value = model_flops / (seconds * devices * peak_flops_per_s)
    return found


def fastest_flops_per_s(table: ArchitectureTable, task: Task, recipe: Recipe | None) -> Floats:
    """Peak of every architecture, (A,), at the clock that latencies use, in the fastest format that products have.

    That is a format of the recipe, or of the one that the workload itself has.
    """
    own, one = sustained_flops_per_s(table), task.workload_in(recipe).recipe
    return own if one is None else own * narrow_speed(table, one.operands)
