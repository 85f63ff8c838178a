"""Tables of how near-optimal designs do if constants of the model are wrong."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.robustness_document import Robustness
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table

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
