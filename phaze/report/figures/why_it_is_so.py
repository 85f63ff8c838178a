"""Why the winner is what it is: what stops a better design, one step along every axis, and what its layers wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phaze.explore.documents.explanation_document import (
    Against,
    Binding,
    Explanation,
    LayerBottleneck,
    Neighbour,
)
from phaze.report import number_format as fmt
from phaze.report.figures.question_and_answer import marked
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import (
    Bar,
    Html,
    Section,
    bars,
    details,
    figure,
    join,
    legend,
    pair,
    paragraph,
    table,
    tag,
)

_MOST_LAYERS = 8
_WAITS = {"compute": "c1", "global_buffer": "c3", "hbm": "c2", "link": "c4", "fill": "c7"}
_NAMES = {"c1": "compute", "c3": "global buffer", "c2": "HBM", "c4": "links", "c7": "fill of the arrays"}


def why(contents: Contents) -> Iterator[Section]:
    """The sentence, then tables; nothing where the winner could not be worked out again."""
    if (found := contents.explanation) is not None:
        yield Section("why", "Why it is so", join(_why(found)))


def _why(found: Explanation) -> Iterator[Html]:
    better = "faster" if found.objective == "throughput" else "better"
    yield paragraph(marked(f"{found.summary}."))
    sides = [_neighbours(found.neighbours, better)]
    if found.binding:
        sides.insert(0, _binding(found.binding, better))
    yield pair(join(sides), _layers(found.layers))
    if found.against:
        yield _against(found.against)


def _binding(rows: Sequence[Binding], better: str) -> Html:
    told = [
        [
            row.limit if row.alone else f"{row.limit} (with others)",
            fmt.gain(row.best_gain),
            _left(_axes(row.axes)),
        ]
        for row in rows
    ]
    return table(("limit", "at best", "<along"), told, caption=f"What stops a {better} design one step away")


def _neighbours(rows: Sequence[Neighbour], better: str) -> Html:
    told = [
        [
            _values(row),
            "-" if row.gain is None else fmt.gain(row.gain),
            fmt.number(row.tdp_w),
            fmt.number(row.area_mm2),
            _left(", ".join(row.forbidden_by) or "nothing"),
        ]
        for row in rows
    ]
    steps = table(("to", better, "W", "mm²", "<forbidden by"), told, caption="One step along each axis")
    return details(f"One step along each axis, {len(rows)} designs", steps, printed=True)


def _layers(rows: Sequence[LayerBottleneck]) -> Html:
    shown = rows[:_MOST_LAYERS]
    told = [
        [
            f"{row.layer} {row.direction}",
            f"{row.count:,}",
            fmt.duration(row.time_s),
            fmt.percent(row.share_of_layers),
            bars([Bar(getattr(row, name), look, fmt.label(name)) for name, look in _WAITS.items()]),
        ]
        for row in shown
    ]
    heads = ("", "times", "each", "of all", "")
    caption = (
        f"What the layers wait for, {len(shown)} of {len(rows)} passes; full width is the time of a pass."
    )
    return figure(join([legend(_NAMES), table(heads, told, look="wide")]), caption)


def _against(rows: Sequence[Against]) -> Html:
    names = [factor.name for factor in rows[0].factors]
    told = [
        [name, *(_factor(row, name) for row in rows)] for name in dict.fromkeys([*names, *_all_factors(rows)])
    ]
    told.append([tag("strong", "throughput"), *(tag("strong", f"x {row.ratio:.3f}") for row in rows)])
    caption = "The winner over known chips: factors that multiply"
    return table(("", *(row.name for row in rows)), told, caption=caption)


def _all_factors(rows: Sequence[Against]) -> Iterator[str]:
    return (factor.name for row in rows for factor in row.factors)


def _factor(row: Against, name: str) -> str:
    return next((f"x {factor.ratio:.3f}" for factor in row.factors if factor.name == name), "-")


def _left(words: str) -> Html:
    return tag("td", words, look="left")


def _axes(names: Sequence[str]) -> str:
    return ", ".join(fmt.label(field) for name in names for field in name.split("+"))


def _values(row: Neighbour) -> str:
    told = " ".join(fmt.field(name, value) for name, value in row.values.items())
    words = f"{_axes([row.axis])} {told}" if len(row.values) == 1 else told
    return words if row.in_space else f"({words})"
