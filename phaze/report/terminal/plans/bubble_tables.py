"""Bubbles of a plan as tables: stage by stage, and what other work would recover of them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.plan_document import PlanBubbles, WhatIfDocument
from phaze.report import number_format as fmt
from phaze.report.plan_words import summary
from phaze.report.terminal.design_tables import plain_table


def print_bubbles(document: WhatIfDocument, console: Console) -> None:
    """The plan, its bubbles, and a line for everything that would fill them."""
    for block in bubble_blocks(document):
        console.print(block)


def bubble_blocks(document: WhatIfDocument) -> Iterator[RenderableType]:
    """The plan in a line, bubbles by stage, the work that fills them."""
    told = [(p.plan.best, p.plan.best.bubbles) for p in document.points if p.plan and p.plan.best.bubbles]
    if not told:
        yield "\n".join(point.reason or "" for point in document.points)
        return
    best, bubbles = told[0]
    yield escape(
        f"{summary(best.strategy)}: {fmt.duration(best.iteration_time_s)}, MFU {fmt.percent(best.mfu)}"
    )
    yield ""
    if not bubbles.share:
        yield "No device waits for another one: there are no bubbles to fill."
        return
    yield _by_stage(bubbles)
    yield _shares(bubbles)
    if filled := [one.fill for _, one in told if one.fill]:
        yield ""
        table = plain_table(
            "Filled", "with", "samples/s", "per device", "of the bubbles", "devices' worth", "utilisation"
        )
        for fill in filled:
            worth = fill.device_equivalents
            table.add_row(
                escape(fill.workload),
                fmt.number(fill.samples_per_s),
                fmt.decimal(fill.recovered_flops_per_s, "FLOP/s"),
                fmt.percent(fill.filled_share),
                "-" if worth is None else fmt.number(worth),
                fmt.percent(fill.utilisation),
            )
        yield table


def _by_stage(bubbles: PlanBubbles) -> Table:
    figures = "fill-drain", "forward-backward", "scattered", "longest", "free memory", "drained"
    table = plain_table("Bubbles of an iteration", "stage", *figures)
    for one in bubbles.stages:
        table.add_row(
            str(one.stage),
            *map(fmt.duration, (one.fill_drain_s, one.forward_backward_s, one.scattered_s, one.longest_s)),
            fmt.memory(one.free_bytes),
            fmt.memory(one.free_drained_bytes),
        )
    return table


def _shares(bubbles: PlanBubbles) -> str:
    parts = (
        (bubbles.fill_drain_share, "while the pipeline fills and drains"),
        (bubbles.forward_backward_share, "between forward and backward"),
        (bubbles.scattered_share, "between other passes"),
    )
    each = ", ".join(f"{fmt.percent(share)} {words}" for share, words in parts if share > 0)
    return f"Devices wait {fmt.percent(bubbles.share)} of the iteration: {each}."
