"""Two jobs on one device as a table: how each slows the other down."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.plan_document import PlanColocation, PlanDocument, WhatIfDocument
from phaze.report import number_format as fmt
from phaze.report.plan_words import summary
from phaze.report.terminal.design_tables import plain_table


def print_colocation(document: WhatIfDocument, console: Console) -> None:
    """The plan in a line, and a row for every job that would share its device."""
    for block in colocation_blocks(document):
        console.print(block)


def colocation_blocks(document: WhatIfDocument) -> Iterator[RenderableType]:
    """The plan, the jobs beside it, and why others do not fit."""
    plans = [point.plan for point in document.points if point.plan]
    if plans:
        yield _line(plans[0])
        yield ""
    if told := [plan.best.colocation for plan in plans if plan.best.colocation]:
        yield _table(told)
        yield (
            "Slower by, training and the other job. Side by side: kernels lie on the device together and contend for "
            "what both ask for. In turns: a kernel waits where the other one keeps its cores busy. Real software is "
            "between."
        )
    yield from (f"{escape(one.value)}: {escape(one.reason)}" for one in document.points if one.reason)


def _line(plan: PlanDocument) -> str:
    best = plan.best
    return escape(
        f"{summary(best.strategy)}: {fmt.duration(best.iteration_time_s)}, MFU {fmt.percent(best.mfu)}"
    )


def _table(told: list[PlanColocation]) -> Table:
    figures = "a pass alone", "side by side", "devices' worth", "in turns", "devices' worth", "contend for"
    table = plain_table("Beside it", "job", *figures, "memory of both")
    for one in told:
        table.add_row(
            escape(f"{one.workload}, batch {one.batch:,}"),
            fmt.duration(one.pass_alone_s),
            f"{one.plan_slowdown_together:.2f} x, {one.other_slowdown_together:.2f} x",
            fmt.number(one.devices_worth_together),
            f"{one.plan_slowdown_by_cores:.2f} x, {one.other_slowdown_by_cores:.2f} x",
            fmt.number(one.devices_worth_by_cores),
            one.contended or "-",
            fmt.memory(one.memory_bytes),
        )
    return table
