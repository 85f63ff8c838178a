"""The frontier of a run, every evaluated design and the known chips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from phaze.explore.documents.result_document import Design, ResultDocument
from phaze.explore.request.design_metrics import METRICS, Row
from phaze.report.figures.contents import Contents
from phaze.report.figures.plane import AXES, POWER, THROUGHPUT, Axis, Marks, plane
from phaze.report.page.markup import Section, join, paragraph


def frontier(contents: Contents) -> Iterator[Section]:
    """Plot, controls and table; nothing where the run has no frontier."""
    points = list(_frontier_rows(contents.document))
    if not points:
        return
    document = contents.document
    on_frontier = {str(point["id"]) for point in points}
    others = [row for row in contents.designs if str(row["id"]) not in on_frontier]
    marks = Marks(points, others, list(_chips(document)), [_best(document)])
    drawn = plane(marks, _axes(document), *_first_axes(document))
    yield Section("frontier", "Frontier", join([paragraph(_words(document, len(points))), drawn]))


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


def _axes(document: ResultDocument) -> list[Axis]:
    """Of several workloads: the score and the throughput on each."""
    if document.portfolio is None:
        return list(AXES)
    own = [Axis(_on(name), f"{name} (samples/s)") for name in document.best.workloads]
    return [*AXES[:2], Axis("score", "score"), *own]


def _first_axes(document: ResultDocument) -> tuple[str, str]:
    """What is shown at first, across and upwards."""
    if document.portfolio is not None:
        return POWER, "score"
    asked = [METRICS[name].column for name in document.request.get("axes") or () if name in METRICS]
    shown = [key for key in asked if key in {axis.key for axis in AXES}]
    return (shown[0], shown[1]) if len(shown) > 1 else (POWER, THROUGHPUT)


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
