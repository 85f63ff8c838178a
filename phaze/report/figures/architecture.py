"""The winner: its floorplan, its hardware fields, and where its area and power go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from phaze.explore.documents.result_document import Design
from phaze.report import format as fmt
from phaze.report.design import shown_fields
from phaze.report.figures.contents import Contents
from phaze.report.figures.floorplan import STACK_MM, floorplan
from phaze.report.figures.parts import GROUPS, Part, area_part, power_part
from phaze.report.page.markup import Bar, Html, Section, bars, figure, join, legend, paragraph, table, tag


def architecture(contents: Contents) -> Iterator[Section]:
    """The floorplan with the fields, then area and power."""
    best = contents.document.best
    picture = join([legend(GROUPS), floorplan(best)])
    caption = (
        f"{best.id}, drawn to scale: {fmt.number(best.area_mm2)} mm² of silicon. Areas are the model's, positions are "
        f"not a layout. HBM stacks are shown with the footprint of HBM2 ({STACK_MM[0]:g} x {STACK_MM[1]:g} mm) and "
        "are no part of the area."
    )
    fields = table(["", ""], shown_fields(best.architecture), look="facts")
    yield Section("architecture", "Architecture", join([figure(picture, caption), fields]))
    yield Section("area-power", "Area and power", join(_both(best)))


def _both(best: Design) -> Iterator[Html]:
    yield tag("h3", "Area")
    yield _parts(best.area_parts_mm2, "mm²", best.area_mm2, area_part)
    yield tag("h3", "Power, worst case")
    yield _parts(best.power_parts_w, "W", best.tdp_w, power_part)
    drawn = sum(best.power_parts_w.values())
    if best.tdp_w > drawn * (1 + 1e-9):
        yield paragraph(
            f"The total holds a margin of {fmt.percent(best.tdp_w / drawn - 1)} over what is drawn."
        )


def _parts(values: Mapping[str, float], unit: str, total: float, part: Callable[[str], Part]) -> Html:
    """Every part that is not zero, largest first."""
    ordered = sorted(((name, value) for name, value in values.items() if value), key=lambda item: -item[1])
    largest = ordered[0][1] if ordered else 1.0
    rows: list[list[object]] = [
        [
            part(name).name,
            fmt.number(value),
            fmt.percent(value / total),
            bars([Bar(value / largest, part(name).look)]),
        ]
        for name, value in ordered
    ]
    rows.append([tag("strong", "total"), tag("strong", fmt.number(total)), "", ""])
    return table(["", unit, "share", ""], rows, look="wide")
