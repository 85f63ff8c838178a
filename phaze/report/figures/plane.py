"""Designs as marks on two axes to choose, within ranges to choose, with the table of the frontier beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from phaze.explore.request.design_metrics import Row
from phaze.report import format as fmt
from phaze.report.figures.plot import plain, rounded
from phaze.report.page.markup import Html, data, details, figure, join, table, tag

_MOST_EVALUATED = 3000


@dataclass(frozen=True, slots=True)
class Axis:
    """One figure of a design: its key in rows, its name with unit, and what values are multiplied with to be shown."""

    key: str
    name: str
    factor: float = 1.0


AXES = (
    Axis("tdp_w", "power (W)"),
    Axis("area_mm2", "area (mm²)"),
    Axis("throughput_samples_per_s", "throughput (samples/s)"),
    Axis("energy_per_sample_j", "energy per sample (J)"),
    Axis("mfu", "MFU (%)", 100.0),
    Axis("memory_bytes", "peak memory (GiB)", 2.0**-30),
)
"""Of one workload."""

POWER, THROUGHPUT = AXES[0].key, AXES[2].key


@dataclass(frozen=True, slots=True)
class Marks:
    """What is drawn: rows with the keys of the axes and an `id`. `others`: designs not on the frontier."""

    frontier: Sequence[Row]
    others: Sequence[Row]
    chips: Sequence[Row] = ()
    winner: Sequence[Row] = ()


def plane(marks: Marks, axes: Sequence[Axis], x: str, y: str) -> Html:
    """Controls, plot and table; `x` and `y` are the keys of the axes shown at first."""
    content = data("frontier-data", _data(marks, axes, x, y))
    count = len(marks.frontier)
    caption = (
        "Every mark is a design; point at it for its figures. The line is the edge of what is reached: between two "
        "designs the worse one counts."
    )
    rows = table(
        ("design", *(axis.name for axis in axes)),
        ((point["id"], *(_shown(axis, point) for axis in axes)) for point in marks.frontier),
    )
    folded = tag("div", details(f"All {count} designs of the frontier", rows), id="frontier-table")
    return join([figure(join([_controls(axes), _place(count), content]), caption), folded])


def _data(marks: Marks, axes: Sequence[Axis], x: str, y: str) -> dict[str, Any]:
    step = max(1, -(-len(marks.others) // _MOST_EVALUATED))
    shown = marks.others[::step]
    name = f"evaluated ({len(shown):,}" + (f" of {len(marks.others):,})" if step > 1 else ")")
    groups = [
        {"name": name, "role": "evaluated", "rows": _values(shown, axes)},
        {
            "name": f"frontier ({len(marks.frontier):,})",
            "role": "frontier",
            "rows": _values(marks.frontier, axes),
        },
        {"name": "known chips", "role": "chips", "rows": _values(marks.chips, axes)},
        {"name": "the winner", "role": "winner", "rows": _values(marks.winner, axes)},
    ]
    return {
        "axes": [axis.name for axis in axes],
        "x": [axis.key for axis in axes].index(x),
        "y": [axis.key for axis in axes].index(y),
        "groups": [group for group in groups if group["rows"]],
        "rising": x == POWER,
    }


def _values(rows: Iterable[Row], axes: Sequence[Axis]) -> list[list[Any]]:
    """Each design as its name, then its figures; null where it has none."""
    return [[plain(row["id"]), *(_value(axis, row) for axis in axes)] for row in rows]


def _value(axis: Axis, row: Row) -> float | None:
    value = row.get(axis.key)
    return None if value is None or isnan(value) else rounded(float(value) * axis.factor)


def _shown(axis: Axis, row: Row) -> str:
    value = _value(axis, row)
    return "-" if value is None else fmt.number(value)


def _controls(axes: Sequence[Axis]) -> Html:
    """An axis to choose and a range on it, across and upwards."""
    fields = []
    for side, name in (("x", "across"), ("y", "upwards")):
        options = (tag("option", axis.name, value=str(i)) for i, axis in enumerate(axes))
        chosen = tag("select", *options, id=f"axis-{side}")
        bounds = (
            tag(
                "input",
                type="number",
                step="any",
                id=f"{end}-{side}",
                placeholder=word,
                aria_label=f"{name}, {word}",
            )
            for end, word in (("min", "from"), ("max", "to"))
        )
        fields.append(tag("div", tag("label", name, for_=f"axis-{side}"), tag("span", chosen, " ", *bounds)))
    reset = tag("button", "All", type="button", id="frontier-reset")
    count = tag("output", id="frontier-count", aria_live="polite")
    return tag("form", *fields, tag("div", reset, " ", count), look="controls", id="frontier-form")


def _place(count: int) -> Html:
    return tag(
        "div",
        look="plot",
        id="frontier-plot",
        role="img",
        aria_label=f"Frontier of {count} designs; see the table below",
    )
