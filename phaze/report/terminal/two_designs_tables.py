"""What a second design for the stages of a pipeline buys, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.markup import escape

from phaze.explore.documents.two_designs_report import TwoDesigns
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table
from phaze.report.terminal.wham_tables import pipeline_table


def two_designs_blocks(told: TwoDesigns, objective: Callable[[float], str]) -> Iterator[RenderableType]:
    """The sentence, and where there is a pair, its designs and the pipeline."""
    yield _sentence(told)
    if told.pipeline is None:
        return
    table = plain_table("Two designs", "stages", "devices", "TDP", "area")
    for design in told.designs:
        table.add_row(
            escape(design.id),
            f"{design.stages}",
            f"{design.devices:,}",
            f"{design.tdp_w:.0f} W",
            f"{design.area_mm2:.0f} mm2",
        )
    yield table
    yield pipeline_table(told.pipeline, objective)


def _sentence(told: TwoDesigns) -> str:
    most = "proven" if told.optimal else f"no two designs buy more than {_percent(told, told.upper_bound)} %"
    work = f"{told.designs_worked_out:,} designs worked out, {told.pairs_searched:,} pairs searched"
    if told.pipeline is None:
        return f"A second design for some stages buys nothing ({most}; {work})"
    return f"A second design for some stages buys {fmt.number(100 * told.gain, 3)} % ({most}; {work})"


def _percent(told: TwoDesigns, reached: float) -> str:
    common = told.throughput_samples_per_s / (1 + told.gain)
    return fmt.number(100 * (reached / common - 1), 3)
