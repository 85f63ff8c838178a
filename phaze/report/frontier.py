"""The Pareto set of evaluated designs on any axes, its hypervolume and knee, and its export as data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from phaze.errors import InputError
from phaze.explore.frontier.frontier_indicators import hypervolume, knee
from phaze.explore.frontier.pareto_archive import nondominated
from phaze.explore.request.design_metrics import Metric, Row


@dataclass(frozen=True)
class Frontier:
    """Designs that no other evaluated one beats, by rising first axis.

    `knee`: id of the best compromise (`frontier_indicators.knee`), None below three designs. `hypervolume`: what they
    dominate up to `reference`, one value per axis, in the product of the axes' units.
    """

    axes: tuple[Metric, ...]
    rows: tuple[Row, ...]
    knee: str | None
    reference: tuple[float, ...]
    hypervolume: float


def pareto(rows: Iterable[Row], *axes: Metric) -> list[Row]:
    """The rows no other row beats on all axes, by increasing first axis; of equal rows the first by id."""
    ordered = sorted(rows, key=lambda row: str(row["id"]))
    values = _minimised(ordered, axes)
    _, first = np.unique(values, axis=0, return_index=True)
    kept = [ordered[i] for i in sorted(first[nondominated(values[first])])]
    return sorted(kept, key=axes[0].value)


def frontier(
    rows: Sequence[Row], axes: Sequence[Metric], reference: Sequence[float] | None = None
) -> Frontier:
    """The frontier of a design table; the reference is the worst value of each axis in it, unless given.

    Raises InputError where there is no design or a reference of another length.
    """
    if not rows:
        raise InputError("the design table is empty")
    if reference is not None and len(reference) != len(axes):
        raise InputError(f"the reference has {len(reference)} values for {len(axes)} axes")
    kept, signs = pareto(rows, *axes), _signs(axes)
    corner = _minimised(rows, axes).max(axis=0) if reference is None else np.array(reference) * signs
    values = _minimised(kept, axes)
    at = knee(values)
    return Frontier(
        axes=tuple(axes),
        rows=tuple(kept),
        knee=None if at is None else str(kept[at]["id"]),
        reference=tuple((corner * signs).tolist()),
        hypervolume=hypervolume(values, corner),
    )


def _signs(axes: Sequence[Metric]) -> NDArray[np.float64]:
    return np.array([-1.0 if axis.maximise else 1.0 for axis in axes])


def _minimised(rows: Sequence[Row], axes: Sequence[Metric]) -> NDArray[np.float64]:
    """The axes of some rows, (rows, axes), each turned so that less is better."""
    values = np.array([[axis.value(row) for axis in axes] for row in rows]).reshape(len(rows), len(axes))
    return values * _signs(axes)


def with_axes(row: Row, axes: Sequence[Metric]) -> dict[str, Any]:
    """A row with a column for each axis, also for those that are worked out of others."""
    return {**row, **{axis.column: axis.value(row) for axis in axes}}


def to_csv(rows: Sequence[Row]) -> str:
    """One line per design; the header names every column with its unit."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(dict(row) for row in rows)
    return text.getvalue()


def to_parquet(rows: Sequence[Row]) -> bytes:
    """The same columns as a Parquet file."""
    content = io.BytesIO()
    pa_parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows]), content)
    return content.getvalue()


def to_json(found: Frontier) -> str:
    """A document that says which axes and directions the points are optimal for, and what is known of them."""
    axes = [{"name": a.name, "column": a.column, "unit": a.unit, "maximise": a.maximise} for a in found.axes]
    document = {
        "schema": "phaze-frontier/1",
        "x": axes[0],
        "y": axes[1],
        "axes": axes,
        "hypervolume": found.hypervolume,
        "reference": list(found.reference),
        "knee": found.knee,
        "points": [with_axes(row, found.axes) for row in found.rows],
    }
    return json.dumps(document, indent=2) + "\n"
