"""Designs of a run compared: on two axes to choose, the frontier among them, and the winner beside known chips and the
next best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from phaze.cost.software_losses import losses_told
from phaze.csv_file import rows_to_csv
from phaze.explore.documents.result_document import Comparison, Design, ResultDocument
from phaze.explore.request.design_metrics import METRICS, Row
from phaze.report import number_format as fmt
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import (
    Bar,
    Html,
    Section,
    bars,
    data,
    details,
    download,
    figure,
    join,
    paragraph,
    plain,
    rounded,
    table,
    tag,
)
from phaze.report.terminal.beside_tables import throughput_ratio
from phaze.runs.run_directory import flat_row

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
    """Points of a chart: rows with the axes' keys and an `id`. `others`: designs not on the frontier.

    `several`: frontiers by name, where there are more than one; `frontier` holds all their designs.
    """

    frontier: Sequence[Row]
    others: Sequence[Row]
    chips: Sequence[Row] = ()
    winner: Sequence[Row] = ()
    several: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def plane(marks: Marks, axes: Sequence[Axis], x: str, y: str) -> Html:
    """Controls, plot and table; `x` and `y` are the keys of the axes shown at first."""
    content = data("frontier-data", _data(marks, axes, x, y))
    count = len(marks.frontier)
    caption = (
        "Every mark is a design; point at it for its figures."
        + " The line is the frontier: between two designs the "
        "worse one counts."
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
        *(
            {"name": f"{name} ({len(rows):,})", "role": "frontier", "rows": _values(rows, axes)}
            for name, rows in (marks.several or {"frontier": marks.frontier}).items()
        ),
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


def marks_of(contents: Contents) -> tuple[Marks, list[Axis], str, str] | None:
    """Points of a run's chart, its axes, and the keys of those shown at first; None where it has no frontier."""
    points = list(frontier_rows(contents.document))
    if not points:
        return None
    document = contents.document
    on_frontier = {str(point["id"]) for point in points}
    others = [row for row in contents.designs if str(row["id"]) not in on_frontier]
    marks = Marks(points, others, list(_chip_marks(document)), [_best(document)])
    return marks, _axes(document), *_first_axes(document)


def frontier(contents: Contents) -> Iterator[Section]:
    """Plot, controls and table; nothing where the run has no frontier."""
    if (found := marks_of(contents)) is not None:
        words = paragraph(_words(contents.document, len(found[0].frontier)))
        table_file = download(
            "frontier", _frontier_csv(contents.document), "Download the frontier as CSV, all columns"
        )
        yield Section("frontier", "Frontier", join([words, plane(*found), table_file]))


def _frontier_csv(document: ResultDocument) -> str:
    """Every figure in full and every field of the architectures, as `frontier.csv` of the run has them."""
    points = document.portfolio.frontier if document.portfolio else document.frontier
    return rows_to_csv([flat_row(point) for point in points])


def _words(document: ResultDocument, count: int) -> str:
    state = "complete" if document.certificate.frontier_complete else "as far as it was found"
    return (
        f"{count} {'design that is' if count == 1 else 'designs that are'} not beaten on all axes of the search at "
        f"once; the frontier is {state}."
    )


def frontier_rows(document: ResultDocument) -> Iterator[Row]:
    """Points of the frontier with the figures of every axis that they have, by rising power."""
    points: Iterable[Any] = document.portfolio.frontier if document.portfolio else document.frontier
    for point in sorted(points, key=lambda point: (point.tdp_w, point.id)):
        yield _flat(point.model_dump(exclude={"architecture"}))


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the throughput on each workload in a column of its own."""
    each = row.get("throughputs_samples_per_s") or {}
    return {**row, **{_on(name): value for name, value in each.items()}}


def _on(name: str) -> str:
    return f"throughput_samples_per_s[{name}]"


def _axes(document: ResultDocument) -> list[Axis]:
    """Of several workloads: the score and the throughput on each."""
    if document.portfolio is None:
        return list(AXES)
    own = [Axis(_on(name), f"{name} (samples/s)") for name in document.best.workloads]
    return [*AXES[:2], Axis("score", "score"), *own]


def _first_axes(document: ResultDocument) -> tuple[str, str]:
    """Keys of the initial axes, horizontal and vertical."""
    if document.portfolio is not None:
        return POWER, "score"
    asked = [METRICS[name].column for name in document.request.get("axes") or () if name in METRICS]
    shown = [key for key in asked if key in {axis.key for axis in AXES}]
    return (shown[0], shown[1]) if len(shown) > 1 else (POWER, THROUGHPUT)


def _best(document: ResultDocument) -> Row:
    score = document.portfolio.score if document.portfolio else None
    return {**design_mark(document.best), "score": score}


def design_mark(design: Design) -> dict[str, Any]:
    """A design as a row of a chart, its figures on the first workload."""
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


def _chip_marks(document: ResultDocument) -> Iterator[Row]:
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


def comparison(contents: Contents) -> Iterator[Section]:
    """Known chips under the same budgets; then the designs that came closest."""
    document = contents.document
    if document.comparison:
        yield Section("known-chips", "Beside known chips", _chips_table(document))
    if document.next_best:
        yield Section("next-best", "Next best designs", _next_best(document))


def _chips_table(document: ResultDocument) -> Html:
    """Throughput on the first workload, every figure the model's."""
    best = document.best
    name, reference = next(iter(best.workloads.items()))
    top = max([reference, *(row.result for row in document.comparison if row.result)], key=_speed)
    rows: list[list[object]] = [
        [
            tag("strong", "the winner"),
            str(best.architecture.get("node", "")),
            fmt.number(best.tdp_w),
            fmt.number(reference.drawn_w),
            "",
            fmt.number(best.area_mm2),
            f"{float(best.architecture.get('clock_hz', 0)) / 1e9:.2f}",
            fmt.number(_speed(reference)),
            fmt.percent(reference.mfu),
            "",
            bars([Bar(_speed(reference) / _speed(top), "c1")]),
        ]
    ]
    rows += [_chip_row(row, _speed(reference), _speed(top)) for row in document.comparison]
    heads = ("", "node", "W", "drawn", "TDP", "mm²", "GHz", "samples/s", "MFU", "winner is", "")
    notes = table(("", ""), [[row.name, row.note] for row in document.comparison if row.note], look="facts")
    losses = losses_told(document.request.get("rung"))
    if document.request.get("power_means") == "sustained":
        losses = f"{losses}; the budget of power is one of what is drawn".removeprefix("; ")
    caption = (
        f"Throughput on {name}; every figure but the published TDP is the model's, every chip at the clock that its "
        f"note says; W: at full load, drawn: while the plan runs{losses and f'; {losses}'}."
    )
    return join([figure(table(heads, rows, look="wide"), caption), notes])


def _speed(result: object) -> float:
    return float(getattr(result, "throughput_samples_per_s", 0.0))


def _chip_row(row: Comparison, reference: float, top: float) -> list[object]:
    published = "" if row.published_tdp_w is None else fmt.number(row.published_tdp_w)
    figures = [
        *(row.node, fmt.number(row.tdp_w)),
        *("-" if row.result is None else fmt.number(row.result.drawn_w), published),
        *(fmt.number(row.area_mm2), f"{row.clock_hz / 1e9:.2f}"),
    ]
    if row.result is None:
        return [row.name, *figures, "-", "-", "-", bars([])]
    speed = row.result.throughput_samples_per_s
    ratio = f"{fmt.number(reference / speed)} x as fast"
    return [
        row.name,
        *figures,
        fmt.number(speed),
        fmt.percent(row.result.mfu),
        ratio,
        bars([Bar(speed / top, "c6")]),
    ]


def _next_best(document: ResultDocument) -> Html:
    rows = [_next_best_row(design, document.best) for design in document.next_best]
    heads = ("", "W", "mm²", "samples/s", "of the winner")
    return table(heads, rows, caption="The best evaluated architectures after the winner.")


def _next_best_row(design: Design, best: Design) -> list[object]:
    speeds = " / ".join(fmt.number(r.throughput_samples_per_s) for r in design.workloads.values())
    return [
        design.id,
        fmt.number(design.tdp_w),
        fmt.number(design.area_mm2),
        speeds,
        fmt.percent(throughput_ratio(design, best)),
    ]
