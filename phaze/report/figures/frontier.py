"""The frontier, every evaluated design and the known chips, on axes to choose and within ranges to choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from phaze.explore.document import Design, ResultDocument
from phaze.explore.metrics import METRICS, Row
from phaze.report import format as fmt
from phaze.report.figures.contents import Contents
from phaze.report.figures.plot import plain, rounded
from phaze.report.page.markup import Html, Section, data, details, figure, join, paragraph, table, tag

_MOST_EVALUATED = 3000


@dataclass(frozen=True, slots=True)
class _Axis:
    """One figure of a design: its key in rows, its name with unit, and what values are multiplied with to be shown."""

    key: str
    name: str
    factor: float = 1.0


_AXES = (
    _Axis("tdp_w", "power (W)"),
    _Axis("area_mm2", "area (mm²)"),
    _Axis("throughput_samples_per_s", "throughput (samples/s)"),
    _Axis("energy_per_sample_j", "energy per sample (J)"),
    _Axis("mfu", "MFU (%)", 100.0),
    _Axis("memory_bytes", "peak memory (GiB)", 2.0**-30),
)


def frontier(contents: Contents) -> Iterator[Section]:
    """Plot, controls and table; nothing where the run has no frontier."""
    points = list(_frontier_rows(contents.document))
    if not points:
        return
    axes = _axes(contents.document)
    content = _data(contents, points, axes)
    picture = join([_controls(axes), _place(len(points)), data("frontier-data", content)])
    caption = (
        "Every mark is a design; point at it for its figures. The line is the edge of what is reached: between two "
        "designs the worse one counts."
    )
    rows = table(
        ("design", *(axis.name for axis in axes)),
        ((point["id"], *(_shown(axis, point) for axis in axes)) for point in points),
    )
    folded = tag("div", details(f"All {len(points)} designs of the frontier", rows), id="frontier-table")
    body = join([paragraph(_words(contents.document, len(points))), figure(picture, caption), folded])
    yield Section("frontier", "Frontier", body)


def _words(document: ResultDocument, count: int) -> str:
    state = "complete" if document.certificate.frontier_complete else "as far as it was found"
    return (
        f"{count} {'design that is' if count == 1 else 'designs that are'} not beaten on all axes of the search at "
        f"once; the frontier is {state}."
    )


def _frontier_rows(document: ResultDocument) -> Iterator[Row]:
    """Points with the figures of every axis that they have, by rising power."""
    points: Iterable[Any] = document.portfolio.frontier if document.portfolio else document.frontier
    for point in sorted(points, key=lambda point: (point.tdp_w, point.id)):
        yield _flat(point.model_dump(exclude={"architecture"}))


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the throughput on each workload in a column of its own."""
    each = row.get("throughputs_samples_per_s") or {}
    return {**row, **{_on(name): value for name, value in each.items()}}


def _on(name: str) -> str:
    return f"throughput_samples_per_s[{name}]"


def _axes(document: ResultDocument) -> list[_Axis]:
    """Of several workloads: the score and the throughput on each."""
    if document.portfolio is None:
        return list(_AXES)
    own = [_Axis(_on(name), f"{name} (samples/s)") for name in document.best.workloads]
    return [*_AXES[:2], _Axis("score", "score"), *own]


def _first_axes(document: ResultDocument) -> tuple[str, str]:
    """What is shown at first, across and upwards."""
    if document.portfolio is not None:
        return "tdp_w", "score"
    asked = [METRICS[name].column for name in document.request.get("axes") or () if name in METRICS]
    shown = [key for key in asked if key in {axis.key for axis in _AXES}]
    return (shown[0], shown[1]) if len(shown) > 1 else ("tdp_w", "throughput_samples_per_s")


def _data(contents: Contents, points: Sequence[Row], axes: Sequence[_Axis]) -> dict[str, Any]:
    document = contents.document
    x, y = _first_axes(document)
    on_frontier = {str(point["id"]) for point in points}
    others = [row for row in contents.designs if str(row["id"]) not in on_frontier]
    step = max(1, -(-len(others) // _MOST_EVALUATED))
    shown = others[::step]
    name = f"evaluated ({len(shown):,}" + (f" of {len(others):,})" if step > 1 else ")")
    groups = [
        {"name": name, "role": "evaluated", "rows": _values(shown, axes)},
        {"name": f"frontier ({len(points):,})", "role": "frontier", "rows": _values(points, axes)},
        {"name": "known chips", "role": "chips", "rows": _values(_chips(document), axes)},
        {"name": "the winner", "role": "winner", "rows": _values([_best(document)], axes)},
    ]
    return {
        "axes": [axis.name for axis in axes],
        "x": [axis.key for axis in axes].index(x),
        "y": [axis.key for axis in axes].index(y),
        "groups": [group for group in groups if group["rows"]],
        "rising": x == "tdp_w",
    }


def _values(rows: Iterable[Row], axes: Sequence[_Axis]) -> list[list[Any]]:
    """Each design as its name, then its figures; null where it has none."""
    return [[plain(row["id"]), *(_value(axis, row) for axis in axes)] for row in rows]


def _value(axis: _Axis, row: Row) -> float | None:
    value = row.get(axis.key)
    return None if value is None or isnan(value) else rounded(float(value) * axis.factor)


def _shown(axis: _Axis, row: Row) -> str:
    value = _value(axis, row)
    return "-" if value is None else fmt.number(value)


def _best(document: ResultDocument) -> Row:
    score = document.portfolio.score if document.portfolio else None
    return {**_design(document.best), "score": score}


def _design(design: Design) -> dict[str, Any]:
    result = next(iter(design.workloads.values()))
    return {
        "id": design.id,
        "tdp_w": design.tdp_w,
        "area_mm2": design.area_mm2,
        "throughput_samples_per_s": result.throughput_samples_per_s,
        "energy_per_sample_j": result.energy_per_iteration_j / result.global_batch,
        "mfu": result.mfu,
        "memory_bytes": result.memory_bytes,
        **{_on(name): one.throughput_samples_per_s for name, one in design.workloads.items()},
    }


def _chips(document: ResultDocument) -> Iterator[Row]:
    """Known chips that fit, not other plans for the winner; of several workloads none is scored."""
    own = (document.best.tdp_w, document.best.area_mm2)
    for row in document.comparison if document.portfolio is None else ():
        if row.result is not None and (row.tdp_w, row.area_mm2) != own:
            yield {
                "id": row.name,
                "tdp_w": row.tdp_w,
                "area_mm2": row.area_mm2,
                "throughput_samples_per_s": row.result.throughput_samples_per_s,
                "energy_per_sample_j": row.result.energy_per_iteration_j / row.result.global_batch,
                "mfu": row.result.mfu,
                "memory_bytes": row.result.memory_bytes,
            }


def _controls(axes: Sequence[_Axis]) -> Html:
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
