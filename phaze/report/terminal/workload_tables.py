"""A workload's figures as tables and as a JSON document; the tables fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table
from phaze.workload.workload import Workload
from phaze.workload.workload_overview import Overview, Totals

_COLUMNS = ("parameters", "FLOPs", "bytes", "FLOP/byte", "vector cycles")


def overview_tables(workload: Workload, figures: Overview) -> Iterator[Table]:
    """The whole model, then its operator kinds, then its layer kinds."""
    yield _whole(workload, figures)
    operators = plain_table(
        "Operators, fused ones under what they are fused into", "kind", "count", *_COLUMNS
    )
    for kind, totals in figures.operator_kinds.items():
        operators.add_row(escape(kind), f"{totals.operators:,}", *_cells(totals))
    yield operators
    layers = plain_table("Layers", "kind", "count", *_COLUMNS[:-1], "kept")
    for kind, group in figures.layer_kinds.items():
        count = f"{group.layers:,}" + (f" ({group.unlike} unlike)" if group.unlike > 1 else "")
        layers.add_row(escape(kind), count, *_cells(group.totals)[:-1], fmt.memory(group.saved_bytes))
    yield layers


def overview_document(workload: Workload, figures: Overview) -> dict[str, Any]:
    """The same figures for `--json`; units are in the keys."""
    return {
        "workload": workload.name,
        "mode": workload.mode.value,
        "sequence_length": workload.sequence_length,
        "microbatch_size": figures.microbatch,
        "layers": figures.layers,
        **_fields(figures.whole),
        "operator_kinds": {kind: _fields(totals) for kind, totals in figures.operator_kinds.items()},
        "layer_kinds": {
            kind: {
                "layers": group.layers,
                "unlike_layers": group.unlike,
                **_fields(group.totals),
                "saved_bytes": group.saved_bytes,
            }
            for kind, group in figures.layer_kinds.items()
        },
    }


def _whole(workload: Workload, figures: Overview) -> Table:
    one = "" if figures.microbatch == 1 else "s"
    table = plain_table(
        f"{escape(workload.name)}, {workload.mode.value} of {figures.microbatch} sample{one}", "", ""
    )
    table.show_header = False
    rows: Mapping[str, str] = {
        "parameters": f"{figures.whole.parameters:,}",
        "sequence length": f"{workload.sequence_length:,}" if workload.sequence_length else "",
        "parts to cut into stages": f"{figures.layers:,}",
        "operators": f"{figures.whole.operators:,}",
        "FLOPs": fmt.decimal(figures.whole.flops, "FLOP"),
        "bytes": fmt.memory(figures.whole.bytes),
        "arithmetic intensity": f"{_intensity(figures.whole)} FLOP/byte",
    }
    for label, value in rows.items():
        if value:
            table.add_row(label, value)
    return table


def _cells(totals: Totals) -> tuple[str, ...]:
    """The columns that operators and layers share."""
    return (
        fmt.decimal(totals.parameters, "") if totals.parameters else "-",
        fmt.decimal(totals.flops, "") if totals.flops else "-",
        fmt.memory(totals.bytes),
        _intensity(totals) if totals.flops else "-",
        fmt.decimal(totals.vector_cycles, "") if totals.vector_cycles else "-",
    )


def _intensity(totals: Totals) -> str:
    value = totals.arithmetic_intensity
    return "-" if value is None else fmt.number(value)


def _fields(totals: Totals) -> dict[str, Any]:
    return {**asdict(totals), "arithmetic_intensity_flop_per_byte": totals.arithmetic_intensity}
