"""What failures leave of plans, as tables: of one plan, and by the size of scale-up domains."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.plan_document import PlanGoodput, WhatIfDocument
from phaze.report import number_format as fmt
from phaze.report.plan_words import summary
from phaze.report.terminal.design_tables import plain_table


def goodput_table(found: PlanGoodput) -> Table:
    """Where the time goes, and how many replicas have their devices."""
    table = plain_table("Under failures", "", "")
    table.show_header = False
    interval = found.checkpoint_interval_s
    for label, value in (
        ("goodput", f"{fmt.number(found.goodput_samples_per_s)} samples/s, {fmt.percent(found.share)}"),
        ("interruptions per day", fmt.number(found.interruptions_per_day)),
        ("checkpoint after", "never" if interval is None else f"{fmt.duration(interval)} of work"),
        ("a checkpoint takes", fmt.duration(found.checkpoint_s)),
        ("time at work", fmt.percent(found.working_share)),
        ("  writing checkpoints", fmt.percent(found.checkpoint_share)),
        ("  doing lost work again", fmt.percent(found.lost_share)),
        ("  restarting", fmt.percent(found.restart_share)),
        ("  planned interruptions", fmt.percent(found.planned_share)),
        ("replicas that run", fmt.percent(found.replicas_kept)),
        ("devices under repair", f"{100 * found.devices_out:.2f} %"),
        (f"whole domains of {found.domain_devices:,}", fmt.percent(found.whole_domains)),
        ("spares for 99 % of the time", f"{found.spare_devices:,} devices"),
    ):
        table.add_row(label, value)
    return table


_COLUMNS = (
    "of it: goodput over samples/s; at work: time not lost to failures; whole: domains without a failed device; "
    "replicas: those that run; spares: devices that keep the plan whole for 99 % of the time"
)


def print_failures(document: WhatIfDocument, console: Console) -> None:
    """One line per size of domains, then the plans."""
    for block in failure_blocks(document):
        console.print(block)


def failure_blocks(document: WhatIfDocument) -> Iterator[RenderableType]:
    """The table, one line per size, then a line for every plan."""
    figures = "samples/s", "goodput", "of it", "at work", "whole", "replicas", "spares"
    table = plain_table("", "domain", *figures)
    for point in document.points:
        if point.plan is None or (kept := point.plan.best.goodput) is None:
            table.add_row(escape(point.value), "does not fit", *[""] * (len(figures) - 1))
            continue
        table.add_row(
            escape(point.value),
            fmt.number(point.plan.best.throughput_samples_per_s),
            fmt.number(kept.goodput_samples_per_s),
            fmt.percent(kept.share),
            fmt.percent(kept.working_share),
            fmt.percent(kept.whole_domains),
            fmt.percent(kept.replicas_kept),
            f"{kept.spare_devices:,}",
        )
    table.caption, table.caption_justify = _COLUMNS, "left"
    yield table
    yield ""
    for point in document.points:
        told = summary(point.plan.best.strategy) if point.plan else point.reason or ""
        yield f"[bold]domain {escape(point.value)}[/bold]: {escape(told)}"
