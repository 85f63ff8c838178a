"""A user's own served models: time per output token against the model, and the host time that explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np

from phaze.arrays import Floats
from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture
from phaze.hardware.cluster_network import Network
from phaze.parallel.serving import Traffic
from phaze.parallel.serving.replicas.layer_grid import Served
from phaze.validation.measured.measurement_columns import Columns, read_columns
from phaze.validation.measured.measurement_schemas import OWN_SERVING
from phaze.validation.sets.serving.engine_runs import replica_on, steady_token_s
from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.operators.low_precision import Recipe

DISPATCHES_S = (0.0, *(1e-6 * 1.25**k for k in range(20)))
"""Host times per kernel that are tried: none, and from 1 to 70 us in steps of a quarter."""


@dataclass(frozen=True)
class ServedRow:
    """One replica that was measured: `measured_s` per output token after the first."""

    workload: str
    width: int
    recipe: Recipe | None
    traffic: Traffic
    concurrency: int
    measured_s: float

    @property
    def replica(self) -> tuple[str, int, str, int, int]:
        """What rows have in common that are of one replica."""
        sizes = self.traffic.prompt_tokens, self.traffic.output_tokens
        return self.workload, self.width, str(self.recipe), *sizes


def own_served(path: Path) -> tuple[ServedRow, ...]:
    """Rows of a table of served models. Raises InputError for a table that cannot be read, or a bad row."""
    columns = read_columns(path, OWN_SERVING)
    if columns.bad:
        raise InputError(f"{path}, {columns.bad[0]}")
    if not columns.rows:
        raise InputError(f"{path} has no rows")
    return served_rows(columns)


def served_rows(columns: Columns) -> tuple[ServedRow, ...]:
    """Rows of such a table. Raises InputError for a recipe that is not known."""
    widths, prompts, outputs, batches = (
        columns.numbers(name) for name in ("tensor_parallel", "prompt_tokens", "output_tokens", "concurrency")
    )
    recipes = columns["recipe"] if "recipe" in columns.text else [""] * columns.rows
    found = []
    for row, (workload, recipe, tpot) in enumerate(
        zip(columns["workload"], recipes, columns.numbers("tpot_ms"), strict=True)
    ):
        if recipe and recipe not in list(Recipe):
            known = ", ".join(Recipe)
            raise InputError(
                f"{columns.path}, {columns.place(row)}: {recipe!r} is not a recipe; use one of {known}, or nothing"
            )
        traffic = Traffic(int(prompts[row]), int(outputs[row]))
        kind = Recipe(recipe) if recipe else None
        found.append(
            ServedRow(workload, int(widths[row]), kind, traffic, int(batches[row]), float(tpot) * 1e-3)
        )
    return tuple(found)


@dataclass(frozen=True)
class ServingFit:
    """Rows against the model under every one of `DISPATCHES_S`; `predicted_s` is (rows, dispatches), NaN: too slow."""

    rows: Sequence[ServedRow]
    predicted_s: Floats

    @cached_property
    def errors(self) -> Floats:
        """Absolute error as a share of what was measured, (rows, dispatches); 1 where a row cannot be."""
        measured = np.array([[row.measured_s] for row in self.rows])
        return np.asarray(np.nan_to_num(np.abs(self.predicted_s / measured - 1.0), nan=1.0))

    @property
    def dispatch_s(self) -> float:
        """Host time per kernel with the least mean error; none where it does not help rows that were left out."""
        if self.left_out is None or self.left_out >= self.before:
            return 0.0
        return DISPATCHES_S[int(self.errors.mean(axis=0).argmin())]

    @property
    def before(self) -> float:
        """Mean error without host time."""
        return float(self.errors[:, 0].mean())

    @property
    def left_out(self) -> float | None:
        """Mean error of each row under the host time that the others give; None below three rows."""
        if len(self.rows) < 3:
            return None
        others = self.errors.sum(axis=0) - self.errors
        return float(np.take_along_axis(self.errors, others.argmin(axis=1)[:, None], axis=1).mean())

    @property
    def fitted_s(self) -> Floats:
        """Seconds per token of every row, (rows,), under `dispatch_s`."""
        return self.predicted_s[:, DISPATCHES_S.index(self.dispatch_s)]


def fit_serving(
    rows: Sequence[ServedRow], chip: Architecture, network: Network, rung: Fidelity
) -> ServingFit:
    """The rows against the model on a chip. Raises InputError for a workload or width that cannot be served."""
    found = np.full((len(rows), len(DISPATCHES_S)), np.nan)
    order = sorted(range(len(rows)), key=lambda row: rows[row].replica)
    for _, alike in groupby(order, key=lambda row: rows[row].replica):
        at = list(alike)
        first, batches = rows[at[0]], np.array([float(rows[row].concurrency) for row in at])
        served = Served(first.workload, KvCache.PAGED, None, first.recipe)
        most = int(batches.max())
        plain = replica_on(chip, network, rung, served, first.traffic, most, width=first.width)
        for k, dispatch_s in enumerate(DISPATCHES_S):
            found[at, k] = steady_token_s(replace(plain, dispatch_s=dispatch_s), batches)
    return ServingFit(rows, found)
