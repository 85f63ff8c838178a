"""The answer of `dse run` as text, from the result document alone; it fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import (
    Certificate,
    Comparison,
    Design,
    FrontierPoint,
    ResultDocument,
)
from phaze.explore.documents.strategy_report import StrategyReport
from phaze.report import format as fmt
from phaze.report.axes import amount, axes_table
from phaze.report.design import blocks, plain_table
from phaze.report.questions import questions
from phaze.report.robustness import robustness_blocks
from phaze.report.strategy import course_table, strategy_table
from phaze.report.wham import wham_blocks

FRONTIER_ROWS = 10
_BY = {
    "throughput": "",
    "throughput_per_tdp": " by throughput per watt",
    "tdp": " by least power",
    "area": " by least area",
    "energy_per_sample": " by least energy per sample",
    "memory": " by least memory",
    "cost_per_chip": " by least cost per chip",
    "score": "",
    "score_per_tdp": " by combined score per watt",
}
NEXT_BEST_ROWS = 3
_OPTIMAL = "no other point of the space is better within the model"


def print_result(document: ResultDocument, console: Console) -> None:
    """The whole answer, most important first."""
    console.print(answer(document), highlight=False)
    console.print()
    for block in _blocks(document):
        console.print(block, highlight=False)
        console.print()


def answer(document: ResultDocument) -> str:
    """The answer in one sentence (rich markup)."""
    best, certificate = document.best, document.certificate
    names = ", ".join(best.workloads)
    devices = next(iter(best.workloads.values())).devices
    plural = "" if devices == 1 else "s"
    figures = "; ".join(
        f"{fmt.number(r.throughput_samples_per_s)} samples/s at {fmt.percent(r.mfu)} MFU"
        + (f" on {escape(name)}" if len(best.workloads) > 1 else "")
        for name, r in best.workloads.items()
    )
    task = f"for [bold]{escape(names)}[/bold] on {devices:,} device{plural}{_BY[certificate.objective]}"
    design = f"[bold]{escape(best.id)}[/bold]"
    proof = _proof(certificate)
    if document.strategy is not None:
        told = f"--strategy {escape(document.strategy.strategy)} found {design} {task}"
        proof = _behind(document.strategy, certificate)
    elif certificate.optimal:
        told = f"The best accelerator {task} is {design}"
    else:
        told = f"The best accelerator found {task} is {design}"
    return f"{told}: {figures}, with {fmt.number(best.area_mm2)} mm2 and {fmt.number(best.tdp_w)} W; {proof}."


def certificate_table(certificate: Certificate) -> Table:
    """What is proven, and over which points."""
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
        ("no point is better than", f"{bound} (gap {100 * certificate.gap:.3g} %)"),
        ("points of the space", f"{certificate.space_size:,}"),
        *((("  plans of each architecture", f"{plans:,}"),) if plans else ()),
        ("  over budget", f"{certificate.over_budget:,}"),
        ("  pruned by a bound", f"{certificate.pruned - undecided:,}" + (f" ({by})" if by else "")),
        *((("  not decided", f"{undecided:,}"),) if undecided else ()),
        ("  evaluated", f"{certificate.evaluated:,}"),
        ("frontier complete", "yes" if certificate.frontier_complete else "no"),
        ("holds within", "; ".join(certificate.scope)),
    ):
        table.add_row(name, escape(value))
    return table


def frontier_table(frontier: Sequence[FrontierPoint], best_id: str, state: str = "") -> Table:
    """Throughput against power, some ten rows; the winner is among them and marked; `state` ends the title."""
    shown = thin(frontier, FRONTIER_ROWS, best_id)
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
    return table


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
    table = plain_table("Next best", "architecture", "W", "mm2", "samples/s", "of the winner")
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
    """Known chips and plans beside the winner, each figure that of the model."""
    table = plain_table(
        "Known chips beside the winner", "", "W", "mm2", "GHz", "samples/s", "MFU", "winner is"
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
            fmt.number(row.tdp_w),
            fmt.number(row.area_mm2),
            fmt.number(row.clock_hz / 1e9),
            *figures,
        )
    return table


def _blocks(document: ResultDocument) -> Iterator[RenderableType]:
    yield from blocks(document.best)
    yield certificate_table(document.certificate)
    yield from _search(document)
    yield from questions(document)
    if document.frontier:
        yield frontier_of(document)
    if document.next_best:
        yield next_best_table(document.next_best, document.best)
    if document.comparison:
        yield Group(comparison_table(document.comparison, document.best), *_notes(document.comparison))
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
        return axes_table(document.frontier, axes, document.best, FRONTIER_ROWS, complete=complete)
    state = "" if complete else " (of what was found)" if document.strategy else " (so far)"
    return frontier_table(document.frontier, document.best.id, state)


def _notes(rows: Sequence[Comparison]) -> Iterator[str]:
    """What was changed, alike notes on one line; the clock has a column of its own."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        note = row.note.removeprefix(f"at {row.clock_hz / 1e9:.2f} GHz, ")
        alike.setdefault(note, []).append(row.name)
    for note, names in alike.items():
        if note:
            yield escape(f"  {', '.join(names)}: {note}")


def _proof(certificate: Certificate) -> str:
    if certificate.optimal:
        return _OPTIMAL
    return f"no other point can be better by more than {fmt.percent(certificate.gap)} within the model"


def _behind(report: StrategyReport, certificate: Certificate) -> str:
    """What the certified search says of a design that a strategy found."""
    away = report.distance
    if away is not None and away.proven and away.share == 0:
        return _OPTIMAL
    if away is None or away.share <= 0:
        return _proof(certificate)
    better = fmt.percent(away.share / (1.0 - away.share))
    if away.proven:
        return f"the certified optimum is {better} better"
    return f"the certified search found one that is {better} better, and {_proof(certificate)}"


def throughput_ratio(design: Design, best: Design) -> float:
    """Geometric mean of the throughput ratios over the workloads both have."""
    product, count = 1.0, 0
    for name, result in design.workloads.items():
        if name in best.workloads:
            product *= result.throughput_samples_per_s / best.workloads[name].throughput_samples_per_s
            count += 1
    return product ** (1 / count) if count else 0.0
