"""Answers of searches, as text, from the documents alone: the answer of `dse run`, its frontier on any axes,
a search without proof, how far the answer holds, and the frontier of a sweep; it fits 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from textwrap import wrap
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from phaze.cost.software_losses import losses_told
from phaze.explore.documents.result_document import (
    Certificate,
    Comparison,
    Design,
    FrontierPoint,
    ResultDocument,
)
from phaze.explore.documents.robustness_document import Robustness
from phaze.explore.documents.strategy_report import Distance, Improvement, Stop, StrategyReport
from phaze.explore.request.design_metrics import METRICS, Metric, metric
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import price_usd
from phaze.report import number_format as fmt
from phaze.report.cost_words import UnitCost
from phaze.report.terminal.design_tables import blocks, plain_table
from phaze.report.terminal.network_tables import network_blocks
from phaze.report.terminal.question_tables import common_answer, questions, useful_range, with_caption
from phaze.report.terminal.two_designs_tables import two_designs_blocks
from phaze.report.terminal.wham_tables import wham_blocks


def amount(name: str, value: float) -> str:
    """An objective's value in a certificate, with its unit: a minimised one is there as its reciprocal."""
    axis = METRICS[name]
    shown = value if axis.maximise else 1.0 / value
    return fmt.memory(shown) if axis.unit == "bytes" else f"{fmt.number(shown, 5)} {axis.unit}"


def axes_table(
    points: Sequence[FrontierPoint],
    names: Sequence[str],
    best: Design,
    most: int,
    *,
    complete: bool,
    economics: Economics,
) -> Table:
    """At most some `most` points by their first axis, the winner among them and marked.

    An architecture stands there once for every setting that is on the frontier.
    """
    axes = [metric(name) for name in names]
    throughput = next(iter(best.workloads.values())).throughput_samples_per_s
    useful, below = useful_range(points, lambda point: point.throughput_samples_per_s, throughput)
    priced = (_priced_row(point, economics) for point in useful)
    rows = sorted(priced, key=lambda row: (axes[0].value(row), row["id"]))
    winner = _winner_row(rows, best)
    at = sorted({*_even_places(len(rows), most), winner})
    title = f"Frontier on {', '.join(fmt.label(name) for name in names)}: {len(at)} of {len(points)} points"
    title += " (* the winner)" + ("" if complete else " (so far)")
    table = plain_table(title, "architecture", *(_heading(axis) for axis in axes))
    for i in at:
        mark = " *" if i == winner else ""
        figures = (_figure(axis, axis.value(rows[i])) for axis in axes)
        table.add_row(escape(rows[i]["id"]) + mark, *figures)
    return with_caption(table, below)


def _winner_row(rows: Sequence[Mapping[str, Any]], best: Design) -> int:
    """The row of the winner: its architecture, in the setting whose throughput is nearest to what is reported."""
    throughput = next(iter(best.workloads.values())).throughput_samples_per_s
    return min(
        range(len(rows)),
        key=lambda i: (rows[i]["id"] != best.id, abs(rows[i]["throughput_samples_per_s"] - throughput)),
    )


def _even_places(count: int, most: int) -> Iterator[int]:
    """At most so many of `count` places, evenly, both ends among them."""
    shown = min(most, count)
    return (round(i * (count - 1) / max(shown - 1, 1)) for i in range(shown))


def _priced_row(point: FrontierPoint, economics: Economics) -> dict[str, Any]:
    """A point with its price."""
    table = to_table([Architecture(name=point.id, fields=point.architecture)])
    price = price_usd(table, np.array([point.area_mm2]), economics)
    return {**point.model_dump(), "price_usd": float(price[0])}


def _heading(axis: Metric) -> str:
    if axis.name == "mfu":
        return "MFU"
    return "memory" if axis.unit == "bytes" else axis.unit


def _figure(axis: Metric, value: float) -> str:
    if axis.name == "mfu":
        return fmt.percent(value)
    return fmt.memory(value) if axis.unit == "bytes" else fmt.number(value)


COURSE_ROWS = 8  # improvements shown
_STOPPED = {
    Stop.CONVERGED: "its own rule",
    Stop.EVALUATIONS: "the budget of evaluations",
    Stop.TIME: "the time limit",
    Stop.EXHAUSTED: "nothing was left to try",
}


def strategy_table(report: StrategyReport, objective: Callable[[float], str]) -> Table:
    """Course, cost and best of a search, and its distance; `objective` writes a value with its unit."""
    table = plain_table(f"Search without proof: --strategy {escape(report.strategy)}", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    table.add_row("evaluated", f"{report.evaluations:,} architectures in {fmt.duration(report.runtime_s)}")
    table.add_row("stopped by", _STOPPED[report.stopped])
    if report.best_value is not None:
        table.add_row("best found", escape(objective(report.best_value)))
    if report.distance is not None:
        certified = objective(report.distance.certified)
        kind = "proven optimum" if report.distance.proven else "certified search"
        table.add_row(kind, escape(certified))
        table.add_row("distance", escape(distance_words(report.distance)))
    for name, figure in report.figures.items():
        if name != "per_stage_value":  # told in a table of its own
            table.add_row(fmt.label(name), f"{figure:,.0f}" if figure % 1 == 0 else fmt.number(figure))
    return table


def course_table(report: StrategyReport, objective: Callable[[float], str]) -> Table:
    """The improvements, thinned to some eight rows: the first, the last, and even steps between."""
    shown = thinned(report.history, COURSE_ROWS)
    table = plain_table(
        f"Its improvements, {len(shown)} of {len(report.history)}", "after evaluation", "seconds", "objective"
    )
    for step in shown:
        table.add_row(f"{step.evaluation:,}", fmt.number(step.elapsed_s), escape(objective(step.value)))
    return table


def distance_words(found: Distance) -> str:
    """How far a search ended from what the certified one knows, in words."""
    if found.share == 0:
        what = "none: the same as the certified search"
    elif found.share < 0:
        what = f"{fmt.percent(-found.share)} better than the certified search, which ran out of time"
    else:
        what = f"misses {fmt.percent(found.share)} of it"
    if found.proven:
        return what
    return f"{what}; not proven, at most {fmt.number(found.upper_bound, 5)}"


def thinned(steps: Sequence[Improvement], rows: int) -> list[Improvement]:
    """At most so many of the steps, evenly, both ends among them."""
    if len(steps) <= rows:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (rows - 1))] for i in range(rows)]


_DESIGN_ROWS = 12  # designs shown


def print_robustness(robustness: Robustness, console: Console) -> None:
    """The sentence, the designs, and what was varied."""
    for block in robustness_blocks(robustness):
        console.print(block, highlight=False)
        console.print()


def robustness_blocks(robustness: Robustness) -> tuple[RenderableType, ...]:
    """The same, to be printed one below the other."""
    return escape(robustness.summary) + ".", design_table(robustness), constant_table(robustness)


def design_table(robustness: Robustness) -> Table:
    """The designs compared, best first; marked: the smallest worst regret, the best worst case."""
    shown = robustness.designs[:_DESIGN_ROWS]
    table = plain_table(
        f"Within {100 * robustness.slack:g} % of the best, {len(shown)} of {len(robustness.designs)} kinds",
        *("design", "price", "best in", "regret", "W 5-95 %", "over W"),
    )
    marks = {robustness.least_regret: " r", robustness.best_worst_case: " w"}
    if robustness.least_regret == robustness.best_worst_case:
        marks = {robustness.least_regret: " rw"}
    for design in shown:
        low, high = design.tdp_range_w
        over = design.over_power_probability
        table.add_row(
            escape(design.id) + marks.get(design.id, ""),
            fmt.percent(design.price),
            _whole_percent(design.best_probability),
            fmt.percent(design.worst_regret),
            f"{fmt.number(low)}-{fmt.number(high)}",
            "-" if over is None else _whole_percent(over),
        )
    found = f"{robustness.near_optimal:,} architectures" + ("" if robustness.complete else " (time was over)")
    table.caption = (
        f"{found}, {robustness.scenarios} scenarios; Kendall's tau {robustness.rank_correlation:.2f} on average, "
        f"{robustness.least_rank_correlation:.2f} at least. regret: the worst; r: smallest, w: best worst case"
    )
    table.caption_justify = "left"
    return table


def constant_table(robustness: Robustness) -> Table:
    """Constants that were varied, with the ranges of their factors."""
    table = plain_table("Constants that were varied together", "constant", "of", "from", "to")
    table.columns[1].justify = "left"
    for constant in robustness.constants:
        table.add_row(
            escape(fmt.label(constant.name)), constant.group, f"x {constant.low:g}", f"x {constant.high:g}"
        )
    return table


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


_SWEEP_ROWS = 20


def sweep_table(
    designs: Sequence[Mapping[str, Any]], objectives: Sequence[Metric], trials: int, infeasible: int
) -> Group:
    """The non-dominated rows of a design table, best on the first objective first; at most twenty."""
    first = objectives[0]
    sign = -1 if first.maximise else 1
    rows = sorted(designs, key=lambda row: sign * first.value(row))
    title = f"{len(rows)} non-dominated designs of {trials} trials ({infeasible} infeasible)"
    if len(rows) > _SWEEP_ROWS:
        title += f", {_SWEEP_ROWS} shown"
    table = plain_table("", "architecture", *(f"{m.name}\n{m.unit}" for m in objectives))
    for row in rows[:_SWEEP_ROWS]:
        table.add_row(escape(str(row["id"])), *(fmt.number(metric.value(row)) for metric in objectives))
    return Group(f"[bold]{title}[/bold]", table)


FRONTIER_ROWS = 10
_BY_OBJECTIVE = {
    "throughput": "",
    "throughput_per_tdp": " by throughput per watt",
    "tdp": " by least power",
    "area": " by least area",
    "energy_per_sample": " by least energy per sample",
    "memory": " by least memory",
    "cost_per_chip": " by least cost per chip",
    "cost_per_sample": " by least cost per sample",
    "cost_per_million_tokens": " by least cost per token",
    "carbon_per_sample": " by least carbon per sample",
    "carbon_per_million_tokens": " by least carbon per token",
    "score": "",
    "score_per_tdp": " by combined score per watt",
}
NEXT_BEST_ROWS = 3
_OPTIMAL = "provably the best design in this space, according to the model"


def print_result(document: ResultDocument, console: Console) -> None:
    """The whole answer, most important first."""
    console.print(answer_sentence(document), highlight=False)
    if remark := budget_remark(document):
        console.print(remark, highlight=False)
    console.print()
    for block in _blocks(document):
        console.print(block, highlight=False)
        console.print()


def answer_sentence(document: ResultDocument) -> str:
    """The answer in one sentence (rich markup)."""
    best, certificate = document.best, document.certificate
    names = ", ".join(best.workloads)
    devices = next(iter(best.workloads.values())).devices
    plural = "" if devices == 1 else "s"
    figures = "; ".join(_reached(document, name) for name in best.workloads)
    task = f"for [bold]{escape(names)}[/bold] on {devices:,} device{plural}{_BY_OBJECTIVE[certificate.objective]}"
    design = f"[bold]{escape(best.id)}[/bold]"
    proof = _proof(certificate)
    if document.strategy is not None:
        told = f"--strategy {escape(document.strategy.strategy)} found {design} {task}"
        proof = _behind(document.strategy, certificate)
    elif certificate.optimal:
        told = f"The best accelerator {task} is {design}"
    else:
        told = f"The best accelerator found {task} is {design}"
    return f"{told}: {figures}, with {fmt.number(best.area_mm2)} mm2 and {_power(document)}; {proof}."


def _power(document: ResultDocument) -> str:
    """Power of the winner: at full load, and first what is drawn where the budget is one of that."""
    load = f"{fmt.number(document.best.tdp_w)} W"
    if document.request.get("power_means") != "sustained":
        return load
    drawn_w = max(result.drawn_w for result in document.best.workloads.values())
    return f"{fmt.number(drawn_w)} W drawn, {load} at full load"


def _reached(document: ResultDocument, name: str) -> str:
    """What the winner does on a workload; of several also its regret, against the best design for that one alone."""
    result = document.best.workloads[name]
    told = f"{fmt.number(result.throughput_samples_per_s)} samples/s at {fmt.percent(result.mfu)} MFU"
    if len(document.best.workloads) == 1:
        return told
    if document.portfolio is None:
        return f"{told} on {escape(name)}"
    return f"{told} on {escape(name)}, {_beside_own(document.portfolio.workloads[name].regret)}"


def _beside_own(regret: float) -> str:
    """How far a common design is from the best one for a workload alone, which a search that was cut short may miss."""
    away = fmt.percent(abs(regret))
    if away == "0.0 %":
        return "as its own best"
    return f"{away} {'below its own best' if regret > 0 else 'above the best that the time for it alone has found'}"


def budget_remark(document: ResultDocument) -> str | None:
    """What limits the design where no budget does: without a word the largest chip would look like the best one."""
    limits = [document.request.get(name) for name in ("power_w", "area_mm2", "power_density_w_per_mm2")]
    if document.certificate.objective not in _GROWING or any(limits) or document.cluster is not None:
        return None
    return (
        "No budget was given: the largest chips of the space compete, each die within the reticle of 858 mm2. "
        "--power 400W or --area 600mm2 ask for the best within a budget."
    )


_GROWING = ("throughput", "score")  # objectives that a larger chip serves


def _frontier_state(certificate: Certificate, *, searched: bool) -> str:
    """Whether the frontier is proven, in words."""
    if certificate.frontier_complete:
        return "yes"
    return "no: it holds what the strategy evaluated" if searched else "no: it may miss designs"


def certificate_table(certificate: Certificate, *, searched: bool = False) -> Table:
    """Proof of a search: the bound on its objective, its gap in percent, and its points by outcome.

    `searched`: what is told was found by a search without proof.
    """
    table = plain_table("Certificate", "", "")
    table.show_header = False
    table.columns[1].justify = "left"
    undecided = certificate.pruned_by.get("open", 0)
    by = ", ".join(
        f"{count:,} {fmt.label(stage)}"
        for stage, count in certificate.pruned_by.items()
        if count and stage != "open"
    )
    plans = certificate.plans_per_architecture
    reached, bound = (
        amount(certificate.objective, v) for v in (certificate.objective_value, certificate.upper_bound)
    )
    for name, value in (
        ("objective", f"{fmt.label(certificate.objective)}: {reached}"),
        ("no point is better than", f"{bound.strip()} (gap {100 * certificate.gap:.3g} %)"),
        ("points of the space", f"{certificate.space_size:,}"),
        *((("  plans of each architecture", f"{plans:,}"),) if plans else ()),
        ("  over budget", f"{certificate.over_budget:,}"),
        ("  pruned by a bound", f"{certificate.pruned - undecided:,}" + (f" ({by})" if by else "")),
        *((("  not decided", f"{undecided:,}"),) if undecided else ()),
        ("  evaluated", f"{certificate.evaluated:,}"),
        ("frontier complete", _frontier_state(certificate, searched=searched)),
        ("holds within", "; ".join(certificate.scope)),
    ):
        table.add_row(name, escape(value))
    return table


def frontier_table(frontier: Sequence[FrontierPoint], best_id: str, state: str = "") -> Table:
    """Throughput against power, some ten rows; the winner is among them and marked; `state` ends the title."""
    winner = next((p.throughput_samples_per_s for p in frontier if p.id == best_id), math.inf)
    useful, below = useful_range(frontier, lambda point: point.throughput_samples_per_s, winner)
    shown = thin(useful, FRONTIER_ROWS, best_id)
    title = f"Frontier of throughput against power, {len(shown)} of {len(frontier)} points"
    title += (" (* the winner)" if best_id in {p.id for p in shown} else "") + state
    table = plain_table(title, "architecture", "W", "mm2", "samples/s", "MFU", "J/sample")
    for point in shown:
        table.add_row(
            escape(point.id) + (" *" if point.id == best_id else ""),
            fmt.number(point.tdp_w),
            fmt.number(point.area_mm2),
            fmt.number(point.throughput_samples_per_s),
            fmt.percent(point.mfu),
            fmt.number(point.energy_per_sample_j),
        )
    return with_caption(table, below)


def thin(points: Sequence[FrontierPoint], rows: int, keep_id: str = "") -> list[FrontierPoint]:
    """At most `rows` points at even steps of throughput, both ends among them, and the one to keep."""
    ordered = sorted(points, key=lambda point: (point.throughput_samples_per_s, point.tdp_w))
    if len(ordered) <= rows:
        return ordered
    low, high = (ordered[end].throughput_samples_per_s for end in (0, -1))
    kept = {i for i, point in enumerate(ordered) if point.id == keep_id}
    for step in range(rows):
        wanted = low + (high - low) * step / (rows - 1)
        kept.add(min(range(len(ordered)), key=lambda i: abs(ordered[i].throughput_samples_per_s - wanted)))
    return [ordered[i] for i in sorted(kept)]


def next_best_table(designs: Sequence[Design], best: Design) -> Table:
    """The best evaluated architectures after the winner."""
    table = plain_table("Next best of other kinds", "architecture", "W", "mm2", "samples/s", "of the winner")
    for design in designs[:NEXT_BEST_ROWS]:
        ratio = throughput_ratio(design, best)
        table.add_row(
            escape(design.id),
            fmt.number(design.tdp_w),
            fmt.number(design.area_mm2),
            " / ".join(fmt.number(r.throughput_samples_per_s) for r in design.workloads.values()),
            fmt.percent(ratio),
        )
    return table


def comparison_table(rows: Sequence[Comparison], best: Design) -> Table:
    """Known chips and plans beside the winner, each figure that of the model; TDP as published.

    `W`: at full load, the worst case; `drawn`: while the plan runs. The budget limits one of them.
    """
    table = plain_table(
        "Known chips beside the winner",
        *("", "node", "W", "drawn", "TDP", "mm2", "GHz", "samples/s", "MFU", "winner is"),
    )
    reference = next(iter(best.workloads.values())).throughput_samples_per_s
    for row in rows:
        result = row.result
        figures = (
            (
                fmt.number(result.throughput_samples_per_s),
                fmt.percent(result.mfu),
                f"{fmt.number(reference / result.throughput_samples_per_s)} x as fast",
            )
            if result
            else ("-", "-", "-")
        )
        table.add_row(
            escape(row.name),
            row.node,
            fmt.number(row.tdp_w),
            "-" if result is None else fmt.number(result.drawn_w),
            "-" if row.published_tdp_w is None else fmt.number(row.published_tdp_w),
            fmt.number(row.area_mm2),
            fmt.number(row.clock_hz / 1e9),
            *figures,
        )
    return table


def _blocks(document: ResultDocument) -> Iterator[RenderableType]:
    yield from common_answer(document)
    yield from blocks(document.best)
    yield certificate_table(document.certificate, searched=document.strategy is not None)
    yield from _search(document)
    if document.networks is not None:
        yield from network_blocks(document.networks, partial(amount, document.certificate.objective))
    yield from questions(document)
    if document.frontier:
        yield frontier_of(document)
    if document.next_best:
        yield next_best_table(document.next_best, document.best)
    if document.comparison:
        losses = losses_told(document.request.get("rung"))
        notes: list[RenderableType] = [
            *_notes(document.comparison),
            *([f"  {losses}"] if losses else []),
            *_costs(document),
        ]
        if document.request.get("power_means") == "sustained":
            notes.append("  --power limits what is drawn on this workload (--power-means sustained), not W")
        yield Group(comparison_table(document.comparison, document.best), *notes)
    if document.two_designs is not None:
        yield from two_designs_blocks(document.two_designs, partial(amount, document.certificate.objective))
    if document.robustness is not None:
        yield from robustness_blocks(document.robustness)
    elif document.request.get("robust"):
        yield "--robust: there was no time to evaluate a design near the best; raise --time-limit"


def _search(document: ResultDocument) -> Iterator[RenderableType]:
    """How a search without proof went, if one was asked for."""
    if document.strategy is not None:
        objective = partial(amount, document.certificate.objective)
        yield strategy_table(document.strategy, objective)
        yield course_table(document.strategy, objective)
        if document.wham is not None:
            yield from wham_blocks(document.wham, objective)


def frontier_of(document: ResultDocument) -> Table:
    """The frontier on whatever axes it has."""
    complete = document.certificate.frontier_complete
    if axes := document.request.get("axes"):
        figures = Economics(document.request.get("economics", {}))
        return axes_table(
            document.frontier, axes, document.best, FRONTIER_ROWS, complete=complete, economics=figures
        )
    state = "" if complete else " (of what was found)" if document.strategy else " (so far)"
    return frontier_table(document.frontier, document.best.id, state)


def _notes(rows: Sequence[Comparison]) -> Iterator[Padding]:
    """Changes of the rows, alike notes on one line; the clock has a column of its own."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        note = row.note.removeprefix(f"at {row.clock_hz / 1e9:.2f} GHz, ")
        alike.setdefault(note, []).append(row.name)
    for note, names in alike.items():
        if note:
            yield Padding(escape(f"{', '.join(names)}: {note}"), (0, 0, 0, 2), expand=False)


_WIDTH = 80


def _costs(document: ResultDocument) -> Iterator[str]:
    """Money of the winner and of what stands beside it, in a line."""
    rows = {"winner": next(iter(document.best.workloads.values()))}
    rows |= {row.name: row.result for row in document.comparison if row.result is not None}
    told = {name: UnitCost.of(result.cost) for name, result in rows.items() if result.cost is not None}
    if told:
        unit = next(iter(told.values())).unit
        listed = ", ".join(f"{name} {fmt.number(cost.usd)}" for name, cost in told.items())
        line = f"USD per {unit}: {listed}"
        yield from map(escape, wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="    "))


def _proof(certificate: Certificate) -> str:
    if certificate.optimal:
        return _OPTIMAL
    most = fmt.percent(certificate.gap)
    return f"no other design in this space is better by more than {most}, according to the model"


def _behind(report: StrategyReport, certificate: Certificate) -> str:
    """Verdict of the certified search on a design that a strategy found."""
    away = report.distance
    if away is None:
        return _proof(certificate)
    if away.proven and away.share == 0:
        return "the certified search proves that no design in this space is better, according to the model"
    if away.share <= 0:
        return f"the certified search proves that {_proof(certificate)}"
    better = fmt.percent(away.share / (1.0 - away.share))
    if away.proven:
        return f"the certified optimum is {better} better"
    return f"the certified search found one that is {better} better, and proves that {_proof(certificate)}"


def throughput_ratio(design: Design, best: Design) -> float:
    """Geometric mean of the throughput ratios over the workloads both have."""
    product, count = 1.0, 0
    for name, result in design.workloads.items():
        if name in best.workloads:
            product *= result.throughput_samples_per_s / best.workloads[name].throughput_samples_per_s
            count += 1
    return product ** (1 / count) if count else 0.0
