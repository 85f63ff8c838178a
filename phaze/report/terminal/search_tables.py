"""Answers of searches, as text, from the documents alone; they fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.cost.software_losses import losses_told
from phaze.explore.documents.result_document import Certificate, ResultDocument
from phaze.explore.documents.strategy_report import StrategyReport
from phaze.report import number_format as fmt
from phaze.report.terminal.beside_tables import (
    comparison_notes,
    comparison_table,
    costs_beside,
    next_best_table,
)
from phaze.report.terminal.design_tables import blocks, plain_table
from phaze.report.terminal.frontier_tables import amount, frontier_of, frontier_state
from phaze.report.terminal.network_tables import network_blocks
from phaze.report.terminal.question_tables import common_answer, questions
from phaze.report.terminal.robustness_tables import robustness_blocks
from phaze.report.terminal.strategy_tables import course_table, strategy_table
from phaze.report.terminal.two_designs_tables import two_designs_blocks
from phaze.report.terminal.wham_tables import wham_blocks

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
        ("frontier complete", frontier_state(certificate, searched=searched)),
        ("holds within", "; ".join(certificate.scope)),
    ):
        table.add_row(name, escape(value))
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
            *comparison_notes(document.comparison),
            *([f"  {losses}"] if losses else []),
            *costs_beside(document),
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
