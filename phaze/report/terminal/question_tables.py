"""Tables for several workloads, a budget for the cluster, and a whole training run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import (
    ClusterReport,
    FrontierPoint,
    PortfolioReport,
    ResultDocument,
    ScorePoint,
    Share,
    TrainingRun,
)
from phaze.report import number_format as fmt
from phaze.report.cost_words import grouped_kg, grouped_usd
from phaze.report.terminal.design_tables import plain_table

Point = TypeVar("Point", FrontierPoint, ScorePoint)

FRONTIER_ROWS = 10
DAY_S, MWH_J, TONNE_KG = 86400.0, 3.6e9, 1000.0


def common_answer(document: ResultDocument) -> Iterator[RenderableType]:
    """What one design for several workloads costs each of them: the answer, so it stands first."""
    if document.portfolio is not None:
        yield regret_table(document.portfolio)
        yield cross_table(document.portfolio)


def questions(document: ResultDocument) -> Iterator[RenderableType]:
    """Tables of a result beyond one workload on a given number of devices."""
    if document.portfolio is not None:
        yield score_table(document.portfolio, document.best.id)
    if document.cluster is not None:
        yield cluster_table(document.cluster)
    if document.training_run is not None:
        yield training_table(document.training_run)


def regret_table(report: PortfolioReport) -> Table:
    """Regret of each workload against its own best design."""
    table = plain_table(
        f"One design for all ({escape(report.combine)})",
        "workload",
        "weight",
        "samples/s",
        "alone",
        "regret",
        "",
    )
    for name, share in report.workloads.items():
        table.add_row(
            escape(name),
            fmt.number(share.weight),
            fmt.number(share.throughput_samples_per_s),
            fmt.number(share.own.throughput_samples_per_s),
            fmt.regret(share.regret),
            _left_open(share),
        )
    return table


def _left_open(share: Share) -> str:
    """What a search for the best design of a workload alone leaves open, where it was cut short."""
    if share.own.gap == 0:
        return ""
    most = f"alone at most {fmt.percent(share.own.gap)} more"
    return f"{most}; the time for it alone found less than all together" if share.regret < 0 else most


def cross_table(report: PortfolioReport) -> Table:
    """The common design and every workload's own best, each on all workloads."""
    names = list(report.workloads)
    table = plain_table("On each workload, samples/s", "best for", "score", *map(escape, names))
    for row in report.cross:
        table.add_row(
            escape(", ".join(row.winner_for) or "all together"),
            fmt.number(row.score),
            *(fmt.number(row.throughputs_samples_per_s[name]) for name in names),
        )
    return table


_USEFUL = 0.1  # of the best throughput: what lies below is told in a line


def useful_range(
    points: Sequence[Point], reached: Callable[[Point], float], winner: float
) -> tuple[list[Point], str]:
    """Points from a tenth of the best throughput on, or from the winner's where that is less; a line on the others."""
    floor = min(_USEFUL * max(map(reached, points), default=0.0), winner)
    useful = [point for point in points if reached(point) >= floor]
    if not (left := len(points) - len(useful)):
        return useful, ""
    powers = [point.tdp_w for point in points if reached(point) < floor]
    span = " to ".join(dict.fromkeys(f"{fmt.number(end)} W" for end in (min(powers), max(powers))))
    told = "1 point more is" if left == 1 else f"{left} points more are"
    return useful, f"{told} below a tenth of the best throughput ({span}); --json and frontier.csv have all"


def with_caption(table: Table, text: str) -> Table:
    """The table with a line below it, if there is one."""
    if text:
        table.caption, table.caption_justify = text, "left"
    return table


def score_table(report: PortfolioReport, best_id: str) -> Table:
    """The frontier of score against power, at even steps, the winner among them and marked."""
    winner = next((p.score for p in report.frontier if p.id == best_id), math.inf)
    steps, below = useful_range(report.frontier, lambda point: point.score, winner)
    count = min(FRONTIER_ROWS, len(steps))
    at = {round(i * (len(steps) - 1) / max(count - 1, 1)) for i in range(count)}
    shown = [p for i, p in enumerate(steps) if i in at or p.id == best_id]
    table = plain_table(
        f"Frontier of score against power, {len(shown)} of {len(report.frontier)} points",
        "architecture",
        "W",
        "mm2",
        "score",
    )
    for point in shown:
        table.add_row(
            escape(point.id) + (" *" if point.id == best_id else ""),
            fmt.number(point.tdp_w),
            fmt.number(point.area_mm2),
            fmt.number(point.score),
        )
    return with_caption(table, below)


def cluster_table(report: ClusterReport) -> Table:
    """Every number of devices that was looked at."""
    budgets = (
        (report.power_budget_w, "W", "power_per_device_w"),
        (report.cost_budget_usd, "USD", "price_per_device_usd"),
    )
    given = [(budget, unit, share) for budget, unit, share in budgets if budget is not None]
    table = plain_table(
        f"Devices within {' and '.join(fmt.decimal(budget, unit) for budget, unit, _ in given)}",
        "devices",
        *(f"{unit} each" for _, unit, _ in given),
        "samples/s",
        "at most",
        "",
    )
    for choice in report.choices:
        reached = choice.throughput_samples_per_s
        table.add_row(
            f"{choice.devices:,}" + (" *" if choice.devices == report.devices else ""),
            *(fmt.number(getattr(choice, share)) for _, _, share in given),
            "-" if reached is None else fmt.number(reached),
            fmt.number(choice.upper_bound_samples_per_s),
            choice.status,
        )
    return table


def training_table(run: TrainingRun) -> Table:
    """Days, energy, money and carbon of a training run, by part, with what they rest on."""
    table = plain_table("Training run", "", "")
    table.show_header = False
    length = fmt.decimal(run.samples, "samples")
    for label, value in (
        ("length", length if run.tokens is None else f"{length}, {fmt.decimal(run.tokens, 'tokens')}"),
        ("duration", f"{fmt.number(run.duration_s / DAY_S)} days"),
        ("energy of the site", f"{fmt.number(run.facility_energy_j / MWH_J)} MWh"),
        *_money(run),
        *_carbon(run),
    ):
        table.add_row(label, value)
    table.caption = _rests_on(run)
    table.caption_justify = "left"
    return table


def _money(run: TrainingRun) -> Iterator[tuple[str, str]]:
    """The cost by part; of documents of before, manufacturing cost and electricity."""
    before = {"making the chips": run.chips_usd, "electricity": run.electricity_usd}
    yield "cost", fmt.decimal(run.total_usd, "USD")
    for name, usd in _indented(grouped_usd(run.cost_parts_usd) or before).items():
        yield name, fmt.decimal(usd, "USD")


def _carbon(run: TrainingRun) -> Iterator[tuple[str, str]]:
    if run.carbon_kg is not None:
        scale, unit = (1.0, "kg") if run.carbon_kg < TONNE_KG else (TONNE_KG, "t")
        for name, kg in {"carbon": run.carbon_kg, **_indented(grouped_kg(run.carbon_parts_kg))}.items():
            yield name, f"{fmt.number(kg / scale)} {unit} CO2e"


def _indented(parts: Mapping[str, float]) -> dict[str, float]:
    return {f"  {name}": part for name, part in parts.items()}


def _rests_on(run: TrainingRun) -> str:
    """What money rests on, and what is not in it."""
    years = run.lifetime_s / DAY_S / 365.25
    if "rent" in run.cost_parts_usd:
        return "rent alone: no storage, no staff"
    system = "" if run.device_usd is None else f", {fmt.decimal(run.device_usd, 'USD')} with its system"
    out = "staff, software and storage" if run.cost_parts_usd else "hosts, network, building and staff"
    return (
        f"{fmt.number(run.usd_per_kwh)} USD/kWh, PUE {fmt.number(run.power_usage_effectiveness)}; a chip costs "
        f"{fmt.decimal(run.chip_usd, 'USD')} to make{system}, over {fmt.number(years)} years; {out} are not in it"
    )
