"""The winner beside known chips, and beside the next best designs."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.explore.documents.result_document import Comparison, Design, ResultDocument
from phaze.report import format as fmt
from phaze.report.figures.contents import Contents
from phaze.report.page.markup import Bar, Html, Section, bars, figure, join, table, tag
from phaze.report.tables import throughput_ratio


def comparison(contents: Contents) -> Iterator[Section]:
    """Known chips under the same budgets; then the designs that came closest."""
    document = contents.document
    if document.comparison:
        yield Section("known-chips", "Beside known chips", _chips(document))
    if document.next_best:
        yield Section("next-best", "Next best designs", _next_best(document))


def _chips(document: ResultDocument) -> Html:
    """Throughput on the first workload, every figure the model's."""
    best = document.best
    name, reference = next(iter(best.workloads.items()))
    top = max([reference, *(row.result for row in document.comparison if row.result)], key=_speed)
    rows: list[list[object]] = [
        [
            tag("strong", "the winner"),
            fmt.number(best.tdp_w),
            fmt.number(best.area_mm2),
            f"{float(best.architecture.get('clock_hz', 0)) / 1e9:.2f}",
            fmt.number(_speed(reference)),
            fmt.percent(reference.mfu),
            "",
            bars([Bar(_speed(reference) / _speed(top), "c1")]),
        ]
    ]
    rows += [_chip(row, _speed(reference), _speed(top)) for row in document.comparison]
    heads = ("", "W", "mm²", "GHz", "samples/s", "MFU", "winner is", "")
    notes = table(("", ""), [[row.name, row.note] for row in document.comparison if row.note], look="facts")
    caption = (
        f"Throughput on {name}; every figure is the model's, every chip at the clock that its note says."
    )
    return join([figure(table(heads, rows, look="wide"), caption), notes])


def _speed(result: object) -> float:
    return float(getattr(result, "throughput_samples_per_s", 0.0))


def _chip(row: Comparison, reference: float, top: float) -> list[object]:
    figures = [fmt.number(row.tdp_w), fmt.number(row.area_mm2), f"{row.clock_hz / 1e9:.2f}"]
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
    rows = [_design(design, document.best) for design in document.next_best]
    heads = ("", "W", "mm²", "samples/s", "of the winner")
    return table(heads, rows, caption="The best evaluated architectures after the winner.")


def _design(design: Design, best: Design) -> list[object]:
    speeds = " / ".join(fmt.number(r.throughput_samples_per_s) for r in design.workloads.values())
    return [
        design.id,
        fmt.number(design.tdp_w),
        fmt.number(design.area_mm2),
        speeds,
        fmt.percent(throughput_ratio(design, best)),
    ]
