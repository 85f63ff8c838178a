"""Why the winner of a run is what it is, as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.explanation_document import (
    Against,
    Binding,
    BudgetStep,
    Explanation,
    LayerBottleneck,
    Neighbour,
    Sensitivity,
)
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table

_LAYERS = 6  # passes shown; the others take next to no time
_UNITS = {"power": "W", "area": "mm2"}


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The sentence, then the tables in the order of their use."""
    for block in explanation_blocks(explanation):
        console.print(block, highlight=False)
        console.print()


def explanation_blocks(explanation: Explanation) -> Iterator[RenderableType]:
    """The sentence, then the tables in the order of their use."""
    yield escape(explanation.summary) + "."
    better = "faster" if explanation.objective == "throughput" else "better"
    if explanation.binding:
        yield binding_table(explanation.binding, better)
    yield neighbour_table(explanation.neighbours, better)
    yield layer_table(explanation.layers)
    yield sensitivity_table(explanation.sensitivity)
    if explanation.budgets:
        yield budget_table(explanation.budgets)
    if explanation.against:
        yield against_table(explanation.against)


def binding_table(rows: Sequence[Binding], better: str) -> Table:
    """Limits that stop a better neighbour, in the word for it."""
    table = plain_table(f"What stops a {better} design one step away", "limit", "at best", "along")
    table.columns[2].justify = "left"
    for row in rows:
        name = row.limit if row.alone else f"{row.limit} (with others)"
        table.add_row(name, fmt.gain(row.best_gain), escape(", ".join(_axis(axis) for axis in row.axes)))
    return table


def neighbour_table(rows: Sequence[Neighbour], better: str) -> Table:
    """One step along every axis, both ways."""
    table = plain_table("One step along each axis", "to", "samples/s", better, "W", "mm2", "forbidden by")
    table.columns[5].justify = "left"
    for row in rows:
        throughput = row.throughput_samples_per_s
        table.add_row(
            escape(_values(row)),
            "-" if throughput is None else fmt.number(throughput),
            "-" if row.gain is None else fmt.gain(row.gain),
            fmt.number(row.tdp_w),
            fmt.number(row.area_mm2),
            escape(", ".join(_limit(name, row) for name in row.forbidden_by)),
        )
    return table


def layer_table(rows: Sequence[LayerBottleneck]) -> Table:
    """Bottlenecks of the layers: shares of their time by resource."""
    shown = rows[:_LAYERS]
    title = "What the layers wait for" + (f", {len(shown)} of {len(rows)} passes" if rows[_LAYERS:] else "")
    table = plain_table(
        title, "layer", "times", "each", "of all", "compute", "buffer", "HBM", "link", "fill", "waits"
    )
    table.caption = "waits: beyond the critical path, for cores or memory that other operators hold"
    table.caption_justify = "left"
    for row in shown:
        shares = (row.compute, row.global_buffer, row.hbm, row.link, row.fill, row.waiting)
        table.add_row(
            escape(f"{row.layer} {row.direction}"),
            str(row.count),
            fmt.duration(row.time_s),
            *(_share(share) for share in (row.share_of_layers, *shares)),
        )
    return table


def sensitivity_table(rows: Sequence[Sensitivity]) -> Table:
    """Sensitivity of throughput to each parameter, budgets aside."""
    table = plain_table(
        "What each parameter is worth to throughput, budgets aside",
        "parameter",
        "elasticity",
        f"{fmt.gain(rows[0].step)} of it",
    )
    for row in rows:
        steepness = "needed" if row.elasticity is None else fmt.signed(row.elasticity, 3).removeprefix("+")
        table.add_row(escape(row.description), steepness, fmt.gain(row.gain))
    return table


def budget_table(rows: Sequence[BudgetStep]) -> Table:
    """Throughput (samples/s) under other budgets, and the change against the run's."""
    table = plain_table(
        "What other budgets would change", "budget", "samples/s", "change", "proven to", "with"
    )
    table.columns[4].justify = "left"
    for row in rows:
        table.add_row(
            f"{row.budget} {fmt.number(row.limit, 4)} {_UNITS[row.budget]} ({row.change:+.4g})",
            fmt.number(row.throughput_samples_per_s),
            fmt.gain(row.gain),
            "-" if row.proven_gap is None else f"{100 * row.proven_gap:.3g} %",
            escape(row.id),
        )
    return table


def against_table(rows: Sequence[Against]) -> Table:
    """The ratios of throughput as products, one column per chip."""
    table = plain_table(
        "The winner over known chips: factors that multiply", "", *(escape(r.name) for r in rows)
    )
    for factors in zip(*(row.factors for row in rows), strict=True):
        table.add_row(factors[0].name, *(f"x {factor.ratio:.3f}" for factor in factors))
    table.add_row("throughput", *(f"x {row.ratio:.3f}" for row in rows), style="bold")
    return table


def _values(row: Neighbour) -> str:
    """For instance `tensor cores 8`; a step outside the space in brackets."""
    told = " ".join(fmt.field(name, value) for name, value in row.values.items())
    text = f"{_axis(row.axis)} {told}" if len(row.values) == 1 else told
    return text if row.in_space else f"({text})"


def _limit(name: str, row: Neighbour) -> str:
    if name == "power":
        return f"power +{fmt.number(row.over_power_w)} W"
    if name == "area":
        return f"area +{fmt.number(row.over_area_mm2)} mm2"
    return name


def _axis(name: str) -> str:
    return ", ".join(fmt.label(field) for field in name.split("+"))


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"
