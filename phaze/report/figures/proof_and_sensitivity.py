"""How far the answer holds: the certificate in plain words, and what the answer depends on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from phaze.explore.documents.explanation_document import Sensitivity
from phaze.explore.documents.result_document import Certificate
from phaze.explore.documents.robustness_document import Robustness
from phaze.report import number_format as fmt
from phaze.report.figures.report_contents import Contents, by_workload
from phaze.report.html_markup import Bar, Html, Section, bars, figure, join, paragraph, table, tag, text
from phaze.report.terminal.frontier_tables import amount

_STAGES: Mapping[str, str] = {
    "number of devices": "as a whole: so many devices cannot be better",
    "floor": "proven too slow for --min-throughput or --max-latency",
    "roofline": "too slow even with all units at their peak",
    "work": "too slow even with all work spread evenly over all devices",
    "critical_path": "too slow by the longest chain of operators in each layer",
    "exchanges": "too slow by what devices have to exchange in the best plan, whatever their cores and memory",
    "format": "arrays without the format of the recipe",
    "memory": "does not fit in memory under any placement",
    "placement": "too slow by bounds on schedules and the exact cut into stages",
    "path": "other placements, proven slower without evaluating them",
    "open": "not decided when the search was stopped",
}


def certificate(contents: Contents) -> Iterator[Section]:
    """The claim, the funnel, and within which model it holds."""
    found = contents.document.certificate
    body = join(
        [
            paragraph(text(_claim(found))),
            *_search_note(contents),
            figure(_funnel(found), "Points left after each step; the length of a bar is logarithmic."),
            paragraph(
                "It is a proof within the model and says nothing about what the model leaves out. It holds for:"
            ),
            tag("ul", *(tag("li", part) for part in found.scope)),
        ]
    )
    yield Section("certificate", "What was proven", body)


def _claim(found: Certificate) -> str:
    """Objective, bound and gap in words."""
    reached, bound = (amount(found.objective, v) for v in (found.objective_value, found.upper_bound))
    what = fmt.label(found.objective)
    if found.optimal:
        claim = f"Of {found.space_size:,} points of the space none has a better {what} than {reached}: proven optimal."
        if found.plans_per_architecture:
            claim += (
                f" Each architecture has {found.plans_per_architecture:,} plans; a point is all of one shape."
            )
    else:
        claim = (
            f"The best {what} found is {reached}. No point of the space reaches more than {bound}: at most "
            f"{fmt.percent(found.gap)} could still be gained."
        )
    if found.frontier_complete:
        return f"{claim} The frontier is complete, too: no point of the space is missing from it."
    return f"{claim} The frontier holds what was found; it is not proven complete."


def _search_note(contents: Contents) -> Iterator[Html]:
    if contents.document.strategy is not None:
        yield paragraph(
            f"The design was found by --strategy {contents.document.strategy.strategy}, which proves nothing; these "
            "are the claims of the certified search over the same space."
        )


def _funnel(found: Certificate) -> Html:
    """One row per step with what it took and what it left."""
    left = found.space_size
    rows: list[list[object]] = [["points of the space", "", f"{left:,}", _funnel_bar(left, found.space_size)]]
    steps = {"over_budget": found.over_budget} | {name: found.pruned_by[name] for name in _in_order(found)}
    for name, count in steps.items():
        left -= count
        words = "over a budget" if name == "over_budget" else _STAGES.get(name, fmt.label(name))
        rows.append([words, f"{count:,}", f"{left:,}", _funnel_bar(left, found.space_size)])
    rows.append(
        ["evaluated exactly", "", f"{found.evaluated:,}", _funnel_bar(found.evaluated, found.space_size)]
    )
    return table(("", "ruled out", "left", ""), rows, look="wide told")


def _in_order(found: Certificate) -> list[str]:
    """Stages where something fell, in the order of the search; what nobody knows comes last."""
    known = [name for name in _STAGES if found.pruned_by.get(name)]
    return known + [name for name, count in found.pruned_by.items() if count and name not in _STAGES]


def _funnel_bar(count: int, whole: int) -> Html:
    """Logarithmic: nothing for none, all of the width for the whole space."""
    return bars([Bar(math.log1p(count) / math.log1p(whole) if whole else 0.0, "c1")])


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
            "does not fit with less" if row.elasticity is None else fmt.signed(row.elasticity, 2),
            f"{fmt.signed(100 * row.gain, 1)} %",
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
