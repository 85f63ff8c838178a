"""Tables of one design: architecture, area, power, placement, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.document import Design, Placement, Stage, WorkloadResult
from phaze.report import format as fmt

_BAR = 24


def plain_table(title: str, *columns: str) -> Table:
    """A table without vertical rules, the first column left and the others right aligned."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    return table


def architecture(design: Design) -> Table:
    """Every hardware field that is not zero or off, two to a line."""
    table = plain_table("Architecture", "", "", "", "")
    table.show_header = False
    pairs = [(fmt.label(k), fmt.field(k, v)) for k, v in design.architecture.items() if v]
    half = (len(pairs) + 1) // 2
    for left, right in zip(pairs[:half], [*pairs[half:], ("", "")], strict=False):
        table.add_row(*(escape(text) for text in (*left, *right)))
    table.columns[2].justify = "left"
    return table


def parts(title: str, values: Mapping[str, float], unit: str, total: float) -> Table:
    """The parts of area or power, largest first, with their share of `total`."""
    table = plain_table(title, "", unit, "share")
    for name, value in sorted(values.items(), key=lambda item: -item[1]):
        if value:
            table.add_row(escape(fmt.label(name)), fmt.number(value), fmt.percent(value / total))
    table.add_row("total", fmt.number(total), "", style="bold")
    return table


def performance(name: str, result: WorkloadResult) -> Table:
    """Throughput, utilisation, memory and energy of one workload."""
    table = plain_table(f"Performance on {escape(name)}", "", "")
    table.show_header = False
    energy = result.energy_per_iteration_j / result.global_batch
    for label, value in (
        ("throughput", f"{fmt.number(result.throughput_samples_per_s)} samples/s"),
        ("iteration time", fmt.duration(result.iteration_time_s)),
        ("model FLOPs utilisation", fmt.percent(result.mfu)),
        ("global batch", f"{result.global_batch:,} samples"),
        ("devices used", f"{result.devices_used:,} of {result.devices:,}"),
        ("largest peak memory of a device", fmt.memory(result.memory_bytes)),
        ("energy per sample, all devices", fmt.decimal(energy, "J")),
    ):
        table.add_row(label, value)
    return table


def placement(name: str, plan: Placement) -> RenderableType:
    """The parallel degrees and the pipeline stages, alike stages on one line."""
    head = (
        f"[bold]Placement of {escape(name)}[/bold]\n"
        f"data {plan.data_parallel} x tensor {plan.tensor_parallel} x pipeline {plan.pipeline_parallel}, "
        f"microbatch {plan.microbatch_size}, recompute {escape(plan.recompute)}"
    )
    table = plain_table("", "stages", "layers", "devices", "time/microbatch", "peak memory")
    table.columns[1].justify = "left"
    for first, last, stages in _alike(plan.stages):
        table.add_row(
            str(first) if first == last else f"{first}-{last}",
            escape(_layers(stages)),
            str(stages[0].devices),
            fmt.duration(max(stage.load_s for stage in stages)),
            fmt.memory(max(stage.memory_bytes for stage in stages)),
        )
    return Group(head, table)


def time_breakdown(name: str, result: WorkloadResult) -> Table:
    """The parts of one iteration with a bar each."""
    table = plain_table(f"Where the time of {escape(name)} goes", "", "time", "share", "")
    table.columns[3].justify = "left"
    for part, seconds in result.breakdown.model_dump().items():
        share = seconds / result.iteration_time_s
        table.add_row(
            fmt.label(part), fmt.duration(seconds), fmt.percent(share), "#" * round(_BAR * share), style=None
        )
    table.add_row("iteration", fmt.duration(result.iteration_time_s), "", "", style="bold")
    return table


def print_design(design: Design, console: Console) -> None:
    """Everything there is to say about one design."""
    for block in blocks(design):
        console.print(block)
        console.print()


def blocks(design: Design) -> Iterator[RenderableType]:
    """The tables of one design, in reading order."""
    yield architecture(design)
    yield parts("Area", design.area_parts_mm2, "mm2", design.area_mm2)
    yield parts("Power (peak)", design.power_parts_w, "W", design.tdp_w)
    for name, result in design.workloads.items():
        yield performance(name, result)
        yield placement(name, result.placement)
        yield time_breakdown(name, result)


def _alike(stages: Iterable[Stage]) -> Iterator[tuple[int, int, list[Stage]]]:
    """Runs of neighbouring stages with as many layers and devices: (first, last, stages), from 1."""
    first = 1
    for _, run in groupby(stages, key=lambda stage: (len(stage.layers), stage.devices)):
        group = list(run)
        yield first, first + len(group) - 1, group
        first += len(group)


def _layers(stages: list[Stage]) -> str:
    count, each = len(stages[0].layers), " each" if len(stages) > 1 else ""
    ends = stages[0].layers[0], stages[-1].layers[-1]
    span = ends[0] if ends[0] == ends[1] else f"{ends[0]} .. {ends[1]}"
    return f"{count}{each}: {span}"
