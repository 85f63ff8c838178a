"""The columns of the design table: what each holds and in which unit; figures here, hardware fields from their own
table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from phaze.document_names import DocumentName
from phaze.hardware.hardware_fields import FieldKind, field_table

DESIGNS_SCHEMA = DocumentName.DESIGNS.version(2)


class Content(StrEnum):
    """What a column holds, in the words of JSON Schema."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    STRING = "string"


@dataclass(frozen=True)
class Column:
    """One column. `unit` is 1 for counts and shares and empty for words; `written_by` names who has it."""

    name: str
    content: Content
    unit: str
    description: str
    written_by: str = "all"


PER_WORKLOAD = Column(
    "throughput_samples_per_s[WORKLOAD]", Content.NUMBER, "1/s", "Samples per second of one workload, all devices.",
    "several workloads",
)  # fmt: skip
_AXES = "dse sweep, dse run --axes"
FIGURES = (
    Column("id", Content.STRING, "", "Name of the architecture within its space, usable as RUN:ID."),
    Column("number", Content.INTEGER, "1", "Number of the architecture in the enumerated space.", "dse run"),
    Column("candidate", Content.INTEGER, "1", "Number of the architecture in the grid of the space.", "dse sweep"),
    Column("score", Content.NUMBER, "1", "Combined score of several workloads.", "several workloads"),
    Column("throughput_samples_per_s", Content.NUMBER, "1/s", "Samples per second, all devices.", "one workload"),
    Column("mfu", Content.NUMBER, "1", "Model FLOPs over those of all devices at their peak.", "one workload"),
    Column("tdp_w", Content.NUMBER, "W", "Power of one accelerator, margin included."),
    Column("area_mm2", Content.NUMBER, "mm2", "Silicon area of one accelerator."),
    Column("energy_per_sample_j", Content.NUMBER, "J", "Energy of a sample, all devices.", _AXES),
    Column("memory_bytes", Content.NUMBER, "byte", "Largest peak on one device.", _AXES),
    Column("price_usd", Content.NUMBER, "USD", "Cost of making one accelerator.", _AXES),
    Column("cost_per_sample_usd", Content.NUMBER, "USD", "Money for a sample, whole system.", _AXES),
    Column("cost_per_million_tokens_usd", Content.NUMBER, "USD", "The same for a million tokens.", _AXES),
    Column("carbon_per_sample_kg", Content.NUMBER, "kg", "CO2 equivalent of a sample, making included.", _AXES),
    Column("carbon_per_million_tokens_kg", Content.NUMBER, "kg", "The same for a million tokens.", _AXES),
    Column("microbatch_size", Content.INTEGER, "1", "Samples of a microbatch in its best point.", "one workload"),
    Column("tensor_parallel", Content.INTEGER, "1", "Tensor-parallel width in its best point.", "one workload"),
    Column("recompute", Content.STRING, "", "What its best point runs again: none, selective, full.", "one workload"),
    Column("sequence_parallel", Content.BOOLEAN, "", "Whether tensor ranks divide tokens in it.", "one workload"),
    Column("context_parallel", Content.INTEGER, "1", "Devices that share a sample in its best point.", "one workload"),
    Column("expert_parallel", Content.INTEGER, "1", "Devices that experts are divided among.", "one workload"),
    Column("grain", Content.STRING, "", "What its pipelines are cut into: block, or layer.", "--plans any, phaze"),
    Column("recipe", Content.STRING, "", "Few bits of its linear layers in its best point, or none.", "--recipe"),
)  # fmt: skip
_KINDS = {
    FieldKind.INTEGER: Content.INTEGER,
    FieldKind.NUMBER: Content.NUMBER,
    FieldKind.BOOLEAN: Content.BOOLEAN,
    FieldKind.CHOICE: Content.STRING,
}


def known_columns() -> dict[str, Column]:
    """Every column by name, but for those of single workloads: the figures, then the hardware fields that may vary."""
    fields = (
        Column(
            f.name,
            _KINDS[f.kind],
            "" if f.kind is FieldKind.CHOICE else f.unit,
            f.description,
            "where varied",
        )
        for f in field_table().values()
    )
    return {column.name: column for column in (*FIGURES, *fields)}


def column(name: str) -> Column | None:
    """Description of the column of that name; None where it is unknown."""
    if re.fullmatch(r"throughput_samples_per_s\[.+\]", name):
        return PER_WORKLOAD
    return known_columns().get(name)


def is_word(name: str) -> bool:
    """Whether the cells of a column are words."""
    known = column(name)
    return known is not None and known.content is Content.STRING


def designs_schema() -> dict[str, Any]:
    """JSON Schema of one row, with units."""
    return {
        "$id": DESIGNS_SCHEMA,
        "title": "Row of designs.csv",
        "type": "object",
        "properties": {name: _property(column) for name, column in known_columns().items()},
        "patternProperties": {r"^throughput_samples_per_s\[.+\]$": _property(PER_WORKLOAD)},
        "required": ["id", "tdp_w", "area_mm2"],
        "additionalProperties": False,
    }


def _property(column: Column) -> dict[str, str]:
    return {"type": column.content.value, "unit": column.unit, "description": column.description}


def reference_page() -> str:
    """The page of the columns as Markdown text."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Columns of the design table"
    yield ""
    yield "<!-- Generated from `phaze/runs/design_table.py`; change that, not this page. -->"
    yield ""
    yield f"The same as JSON: `dse schema --of designs`, `{DESIGNS_SCHEMA}`."
    yield "They are those of `designs.csv`. A frontier in Parquet (`dse pareto --format parquet`) has them, too,"
    yield "and tells unit and meaning in the metadata of each field."
    yield ""
    yield "| column | content | unit | meaning | in tables of |"
    yield "|---|---|---|---|---|"
    for one in (*FIGURES, PER_WORKLOAD):
        yield f"| `{one.name}` | {one.content} | {one.unit} | {one.description} | {one.written_by} |"
    yield ""
    yield "Then the [hardware fields](hardware-fields.md) that vary in the space, by their names and in their units."
