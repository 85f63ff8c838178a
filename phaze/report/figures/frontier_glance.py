"""The frontier as a small picture for the first screen: steps, known chips, the winner with its error bars, and the
power budget as a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.request.design_metrics import Row
from phaze.report import number_format as fmt
from phaze.report.charts.svg_charts import Scale
from phaze.report.figures.designs_compared import POWER, THROUGHPUT, marks_of
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import Html, tag
from phaze.validation.stated_errors import StatedError

Points = Sequence[tuple[float, float, str]]
_LINE = 7.0  # per cent of the picture that a name is high


def frontier_glance(contents: Contents, error: StatedError | None) -> Html | None:
    """The picture; `error`: of the throughput, as whiskers of the winner. None where there is no frontier to draw."""
    found = marks_of(contents)
    if found is None or len(found[0].frontier) < 2:
        return None
    marks, axes, x, y = found
    across, up = next(a for a in axes if a.key == x), next(a for a in axes if a.key == y)
    points = {
        name: [
            (float(r[x]) * across.factor, float(r[y]) * up.factor, str(r["id"])) for r in _known(rows, x, y)
        ]
        for name, rows in (("frontier", marks.frontier), ("chips", marks.chips), ("winner", marks.winner))
    }
    reach = _whisker(error, points["winner"], x, y)
    scales = _scales([*(p for group in points.values() for p in group), *((v[0], v[1], "") for v in reach)])
    drawn = [
        *_grid(*scales),
        *([_budget(contents.document, *scales)] if x == POWER and _limits_tdp(contents.document) else []),
        *([_steps(points["frontier"], *scales)] if x == POWER else []),
        *(_dots(points["frontier"], *scales, "edge")),
        *(_dots(points["chips"], *scales, "known")),
        *([_line(reach, *scales, "whisker")] if reach else []),
        *(_dots(points["winner"], *scales, "won")),
    ]
    svg = tag("svg", *drawn, viewBox="0 0 100 100", preserveAspectRatio="none", aria_hidden="true")
    labels = [*_tick_labels(*scales), *_names(points["chips"], *scales)]
    so_far = "" if contents.document.certificate.frontier_complete else " so far"
    words = f"{len(marks.frontier)} designs that no other one beats{so_far}; the winner is orange, known chips are grey"
    words += ", and the bar spans the errors of nine in ten published runs" if reach else ""
    label = f"{up.name} against {across.name}, {len(marks.frontier)} designs"
    chart = tag("div", svg, *labels, look="small-chart", role="img", aria_label=label)
    heads = tag("div", tag("span", up.name), tag("span", across.name), look="small-axes", aria_hidden="true")
    link = tag("a", "all axes", href="#frontier")
    return tag("figure", heads, chart, tag("figcaption", f"{words}; ", link, "."), look="frontier-glance")


def _known(rows: Iterable[Row], x: str, y: str) -> list[Row]:
    return [row for row in rows if all(row.get(k) is not None and math.isfinite(row[k]) for k in (x, y))]


def _whisker(error: StatedError | None, winner: Points, x: str, y: str) -> list[tuple[float, float, str]]:
    """From the least to the most that nine of ten published cases leave open."""
    if error is None or y != THROUGHPUT or x == THROUGHPUT:
        return []
    return [(a, b * (1 + sign * error.p90_pct / 100), "") for a, b, _ in winner for sign in (-1, 1)]


def _scales(points: Points) -> tuple[Scale, Scale]:
    """Both axes from a little below the least to a little above the most, in per cent of the picture."""
    spans = []
    for values in ([p[0] for p in points], [p[1] for p in points]):
        low, high = min(values), max(values)
        room = 0.06 * (high - low) or abs(high) or 1.0
        spans.append((max(0.0, low - room) if low >= 0 else low - room, high + room))
    return Scale(*spans[0], 0.0, 100.0), Scale(*spans[1], 100.0, 0.0)


def _grid(across: Scale, up: Scale) -> Iterator[Html]:
    for y in map(up.px, up.ticks(4)):
        yield tag("path", look="grid", d=f"M0 {y:.2f}H100")
    for x in map(across.px, across.ticks(4)):
        yield tag("path", look="grid", d=f"M{x:.2f} 0V100")


def _tick_labels(across: Scale, up: Scale) -> Iterator[Html]:
    for tick in up.ticks(4):
        yield tag("span", fmt.number(tick), look="up", style=f"top:{up.px(tick):.2f}%", aria_hidden="true")
    for tick in across.ticks(4):
        where = f"left:{across.px(tick):.2f}%"
        yield tag("span", fmt.number(tick), look="across", style=where, aria_hidden="true")


def _names(chips: Points, across: Scale, up: Scale) -> Iterator[Html]:
    """Names of the known chips, to the left of those at the right edge; each below those that it would cover."""
    taken: list[tuple[str, float]] = []
    for y, x, name in sorted((up.px(b), across.px(a), name) for a, b, name in chips):
        side = "right" if x > 70 else "left"
        lowest = max((top for other, top in taken if other == side), default=-math.inf)
        taken.append((side, max(y, lowest + _LINE)))
        at = f"{side}:{100 - x if side == 'right' else x:.2f}%;top:{taken[-1][1]:.2f}%"
        yield tag("span", name, look=f"chip {side}", style=at, aria_hidden="true")


def _steps(points: Points, across: Scale, up: Scale) -> Html:
    """Between two designs the worse one counts."""
    (first, *others) = points
    path = [f"M{across.px(first[0]):.2f} {up.px(first[1]):.2f}"]
    path += [f"H{across.px(a):.2f}V{up.px(b):.2f}" for a, b, _ in others]
    return tag("path", look="edge", d="".join(path))


def _line(points: Points, across: Scale, up: Scale, look: str) -> Html:
    (a, b, _), (c, d, _) = points[:2]
    return tag("path", look=look, d=f"M{across.px(a):.2f} {up.px(b):.2f}L{across.px(c):.2f} {up.px(d):.2f}")


def _limits_tdp(document: ResultDocument) -> bool:
    """Whether a budget limits the power of the axis, which is that at full load."""
    request = document.request
    return bool(request.get("power_w")) and request.get("power_means") != "sustained"


def _budget(document: ResultDocument, across: Scale, up: Scale) -> Html:
    limit = float(document.request["power_w"])
    x = min(100.0, across.px(limit))
    return tag("path", tag("title", f"budget: {fmt.number(limit)} W"), look="limit", d=f"M{x:.2f} 0V100")


def _dots(points: Points, across: Scale, up: Scale, look: str) -> Iterator[Html]:
    """Round at any shape of the picture: lines of no length with round ends."""
    for a, b, name in points:
        title = tag("title", f"{name}: {fmt.number(a)}, {fmt.number(b)}")
        yield tag("path", title, look=f"dot {look}", d=f"M{across.px(a):.2f} {up.px(b):.2f}h0")
