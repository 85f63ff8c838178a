"""Tables of one design: architecture, area, power, placement, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import Breakdown, Design, Placement, Stage, WorkloadResult
from phaze.report import number_format as fmt
from phaze.report.cost_words import cost_rows, counted
from phaze.report.part_words import AREA, POWER
from phaze.report.plan_words import TIMES, summary

_PARTS = 5  # of area and power that are named; the rest is one row
_GAP = (0, 3)  # between tables side by side
# Fields that are said only where they are unusual.
_USUAL: Mapping[str, object] = {
    "n_dies": 1,
    "enabled_fraction": 1.0,
    "area_law": "silicon",
    "tensor_cores_per_local_buffer": 1,
    "family": "generic",
    "fp32_sum_share": 1.0,
}


def plain_table(title: str, *columns: str) -> Table:
    """A table without vertical rules, the first column left and the others right aligned."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    return table


def architecture(design: Design) -> Table:
    """Every hardware field that is not zero, off or as always, two to a line."""
    table = plain_table("Architecture", "", "", "", "")
    table.show_header = False
    pairs = shown_fields(design.architecture)
    half = (len(pairs) + 1) // 2
    for left, right in zip(pairs[:half], [*pairs[half:], ("", "")], strict=False):
        table.add_row(*(escape(text) for text in (*left, *right)))
    table.columns[2].justify = "left"
    return table


def shown_fields(fields: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and values, as a person reads them, of all fields that are not zero, off or as always."""
    return [(fmt.label(k), fmt.field(k, v)) for k, v in fields.items() if v and _USUAL.get(k) != v]


def parts(
    title: str, values: Mapping[str, float], unit: str, total: float, names: Mapping[str, str]
) -> Table:
    """The largest parts of area or power, their share of `total`, and what is left as one row."""
    table = plain_table(title, "", unit, "share")
    told = ((value, names.get(name, fmt.label(name))) for name, value in values.items() if value)
    ordered = sorted(told, key=lambda part: -part[0])
    rows = ordered[:_PARTS]
    if rest := ordered[_PARTS:]:
        rows.append((sum(value for value, _ in rest), f"{len(rest)} others" if rest[1:] else rest[0][1]))
    for value, name in rows:
        table.add_row(escape(name), fmt.number(value), fmt.percent(value / total))
    table.add_row("total", fmt.number(total), "", style="bold")
    return table


def performance(name: str, result: WorkloadResult) -> Table:
    """Throughput, utilisation, memory and energy of one workload."""
    table = plain_table(f"Performance on {escape(name)}", "", "")
    table.show_header = False
    energy = result.energy_per_iteration_j / result.global_batch
    tokens = result.throughput_tokens_per_s
    for label, value in (
        ("throughput", f"{fmt.number(result.throughput_samples_per_s)} samples/s"),
        *([("tokens", f"{fmt.number(tokens)} tokens/s")] if tokens is not None else []),
        ("iteration time", fmt.duration(result.iteration_time_s)),
        ("model FLOPs utilisation", fmt.percent(result.mfu)),
        ("global batch", f"{result.global_batch:,} samples"),
        ("devices used", f"{result.devices_used:,} of {result.devices:,}"),
        ("cost model", f"rung {result.rung.value}"),
        ("largest peak memory of a device", fmt.memory(result.memory_bytes)),
        ("energy per sample, all devices", fmt.decimal(energy, "J")),
        ("power drawn, mean of a device", f"{fmt.number(result.drawn_w)} W"),
        *(cost_rows(result.cost) if result.cost else ()),
    ):
        table.add_row(label, value)
    return table


def placement(name: str, plan: Placement) -> RenderableType:
    """The parallel degrees and the pipeline stages, alike stages on one line."""
    degrees = (
        summary(plan.plan)
        if plan.plan
        else f"data {plan.data_parallel} x tensor {plan.tensor_parallel} x pipeline {plan.pipeline_parallel}, "
        f"microbatch {plan.microbatch_size}, recompute {plan.recompute}"
    )
    head = f"[bold]Placement of {escape(name)}[/bold]\n{escape(degrees)}" + (
        f", linear layers in {plan.recipe}" if plan.recipe else ""
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


def time_breakdown(result: WorkloadResult) -> Table:
    """The parts of one iteration; by cause, those that take time, where they are recorded so."""
    table = plain_table("Where the time goes", "", "time", "share")
    for part, seconds in spent(result.breakdown):
        table.add_row(part, fmt.duration(seconds), fmt.percent(seconds / result.iteration_time_s))
    table.add_row("iteration", fmt.duration(result.iteration_time_s), "", style="bold")
    for part, seconds in waits(result.breakdown):
        table.add_row(part, fmt.duration(seconds), fmt.percent(seconds / result.iteration_time_s))
    return table


def waits(breakdown: Breakdown) -> list[tuple[str, float]]:
    """What kernels wait for while they run, beside the parts by cause, which hold it."""
    if breakdown.parts is None:
        return []
    told = {"  waits for global buffer": breakdown.global_buffer_s, "  waits for HBM": breakdown.memory_s}
    return [(name, seconds) for name, seconds in told.items() if seconds > 0]


def spent(breakdown: Breakdown) -> list[tuple[str, float]]:
    """Parts of an iteration in words, and their seconds."""
    if breakdown.parts is None:
        return [(fmt.label(part), seconds) for part, seconds in breakdown.spent.items()]
    causes = breakdown.parts.model_dump()
    return [(name, causes[part]) for part, name in TIMES.items() if causes[part] > 0]


def print_design(design: Design, console: Console) -> None:
    """Everything there is to say about one design."""
    for block in blocks(design):
        console.print(block)
        console.print()


def blocks(design: Design) -> Iterator[RenderableType]:
    """The tables of one design, in reading order."""
    yield architecture(design)
    area = parts("Area", design.area_parts_mm2, "mm2", design.area_mm2, AREA)
    power = parts("Power (worst case)", design.power_parts_w, "W", design.tdp_w, POWER)
    yield Columns([area, power], padding=_GAP)
    for name, result in design.workloads.items():
        yield Columns([performance(name, result), time_breakdown(result)], padding=_GAP)
        if result.cost is not None:
            yield counted(result.cost)
        yield placement(name, result.placement)


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
