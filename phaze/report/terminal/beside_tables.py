"""Tables of designs and known chips beside the winner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from phaze.explore.documents.result_document import Comparison, Design, ResultDocument
from phaze.report import number_format as fmt
from phaze.report.cost_words import UnitCost
from phaze.report.terminal.design_tables import plain_table

NEXT_BEST_ROWS = 3


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


def comparison_notes(rows: Sequence[Comparison]) -> Iterator[Padding]:
    """Changes of the rows, alike notes on one line; the clock has a column of its own."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        note = row.note.removeprefix(f"at {row.clock_hz / 1e9:.2f} GHz, ")
        alike.setdefault(note, []).append(row.name)
    for note, names in alike.items():
        if note:
            yield Padding(escape(f"{', '.join(names)}: {note}"), (0, 0, 0, 2), expand=False)


_WIDTH = 80


def costs_beside(document: ResultDocument) -> Iterator[str]:
    """Money of the winner and of what stands beside it, in a line."""
    rows = {"winner": next(iter(document.best.workloads.values()))}
    rows |= {row.name: row.result for row in document.comparison if row.result is not None}
    told = {name: UnitCost.of(result.cost) for name, result in rows.items() if result.cost is not None}
    if told:
        unit = next(iter(told.values())).unit
        listed = ", ".join(f"{name} {fmt.number(cost.usd)}" for name, cost in told.items())
        line = f"USD per {unit}: {listed}"
        yield from map(escape, wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="    "))


def throughput_ratio(design: Design, best: Design) -> float:
    """Geometric mean of the throughput ratios over the workloads both have."""
    product, count = 1.0, 0
    for name, result in design.workloads.items():
        if name in best.workloads:
            product *= result.throughput_samples_per_s / best.workloads[name].throughput_samples_per_s
            count += 1
    return product ** (1 / count) if count else 0.0
