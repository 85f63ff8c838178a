"""What the answer depends on: physical parameters one by one, and all constants of the model together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phaze.explore.documents.explanation_document import Sensitivity
from phaze.explore.documents.robustness_document import Robustness
from phaze.report import format as fmt
from phaze.report.figures.contents import Contents, by_workload
from phaze.report.page.markup import Bar, Html, Section, bars, figure, join, paragraph, table

_MOST_DESIGNS = 12


def sensitivity(contents: Contents) -> Iterator[Section]:
    """Elasticities where they are known, then robustness where the run was asked for it."""
    if contents.sensitivity:
        body = by_workload((name, _elasticities(rows)) for name, rows in contents.sensitivity.items())
        yield Section("sensitivity", "What it is sensitive to", body)
    if contents.document.robustness is not None:
        yield Section("robustness", "Where the model is wrong", _robustness(contents.document.robustness))


def _elasticities(rows: Sequence[Sensitivity]) -> Html:
    known = [row for row in rows if row.elasticity is not None]
    largest = max((abs(row.elasticity or 0.0) for row in known), default=1.0) or 1.0
    step = f"{100 * rows[0].step:.0f} %" if rows else ""
    told = [
        [
            fmt.label(row.parameter),
            "does not fit with less" if row.elasticity is None else _signed(row.elasticity, 2),
            f"{_signed(100 * row.gain, 1)} %",
            bars([Bar(abs(row.elasticity or 0.0) / largest, "c1" if (row.elasticity or 0.0) >= 0 else "c4")]),
        ]
        for row in rows
    ]
    caption = (
        f"Per cent of throughput per per cent of the parameter, over {step} less and {step} more of it, placement "
        "chosen anew and budgets aside; orange where more of it costs throughput."
    )
    behind = table(("", ""), [[fmt.label(row.parameter), row.description] for row in rows], look="facts")
    picture = table(("parameter", "elasticity", f"{step} more gives", ""), told, look="wide")
    return figure(picture, caption, behind, "What each parameter is")


def _signed(value: float, digits: int) -> str:
    """With its sign, unless it rounds to zero."""
    told = f"{value:+.{digits}f}"
    return told[1:] if float(told) == 0 else told


def _robustness(found: Robustness) -> Html:
    rows = [
        [
            design.id,
            fmt.number(design.throughput_samples_per_s),
            fmt.number(design.tdp_w),
            fmt.percent(design.best_probability),
            fmt.percent(design.mean_regret),
            fmt.percent(design.worst_regret),
        ]
        for design in found.designs[:_MOST_DESIGNS]
    ]
    heads = ("near-optimal design", "samples/s", "W", "best in", "mean regret", "worst regret")
    words = (
        f"{found.scenarios:,} scenarios, in each all constants of the model drawn together within their error bars. "
        "Regret: the share of a scenario's best that a design misses."
    )
    varied = [[one.name, f"x {one.low:g} to {one.high:g}", one.source] for one in found.constants]
    behind = table(("constant", "factor", "source"), varied, look="facts")
    return join(
        [paragraph(f"{found.summary}."), figure(table(heads, rows), words, behind, "What was varied")]
    )
