"""Architectures side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console, RenderableType
from rich.markup import escape

from phaze.explore.documents.result_document import Design
from phaze.report import format as fmt
from phaze.report.design import plain_table


def print_comparison(rows: Mapping[str, Design | str], console: Console) -> None:
    """One table per workload, the fastest first; below it, why an architecture is missing."""
    for block in comparison_blocks(rows):
        console.print(block)
        if not isinstance(block, str):
            console.print()


def comparison_blocks(rows: Mapping[str, Design | str]) -> Iterator[RenderableType]:
    """The same as tables and sentences."""
    designs = {name: row for name, row in rows.items() if not isinstance(row, str)}
    for workload in next(iter(designs.values())).workloads if designs else ():
        table = plain_table(
            escape(workload), "architecture", "samples/s", "MFU", "W", "mm2", "J/sample", "placement"
        )
        table.caption = "placement: data x tensor x pipeline parallel"
        table.caption_justify = "left"
        ordered = sorted(
            designs.items(), key=lambda item: -item[1].workloads[workload].throughput_samples_per_s
        )
        for name, design in ordered:
            result = design.workloads[workload]
            plan = result.placement
            table.add_row(
                escape(name),
                fmt.number(result.throughput_samples_per_s),
                fmt.percent(result.mfu),
                fmt.number(design.tdp_w),
                fmt.number(design.area_mm2),
                fmt.number(result.energy_per_iteration_j / result.global_batch),
                f"{plan.data_parallel}x{plan.tensor_parallel}x{plan.pipeline_parallel}",
            )
        yield table
    for name, reason in rows.items():
        if isinstance(reason, str):
            yield f"{escape(name)}: {escape(reason.removeprefix(f'{name}: '))}"
