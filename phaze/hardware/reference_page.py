"""The reference page of the hardware fields and constants, generated from the field table."""

from __future__ import annotations

from phaze.hardware.hardware_fields import Field, field_table
from phaze.hardware.physical_constants import constants

_HEAD = """# Hardware fields and constants

<!-- Generated from `phaze/hardware/fields.yaml` and `constants.yaml`; change those, not this page. -->
"""


def reference_page() -> str:
    """The page as Markdown text."""
    return "\n".join([_HEAD, *_fields(), "", *_scalars(), "", *_tables(), "", *_phaze()]) + "\n"


def _fields() -> list[str]:
    rows = [
        f"| `{f.name}` | {f.unit} | {_default(f)} | {_values(f)} | {_meaning(f)} | {f.source} |"
        for f in field_table().values()
    ]
    head = ["## Fields", "", "| field | unit | default | values | meaning | source of the default |"]
    return [*head, "|---|---|---|---|---|---|", *rows]


def _meaning(field: Field) -> str:
    overruled = ", ".join(f"`{name}`" for name in field.overrules)
    grown = ", ".join(f"`{name}`" for name in field.grows_with)
    return (
        field.description
        + (
            f" Not inherited by a chip that changes {overruled} of the one it is built on."
            if overruled
            else ""
        )
        + (" No axis of a space: it costs nothing." if field.fact else "")
        + (f" Of a chip built on another one it grows with {grown} unless it is given, too." if grown else "")
    )


def _scalars() -> list[str]:
    rows = [f"| `{n}` | {c.value:g} | {c.confidence} | {c.source} |" for n, c in constants().scalars.items()]
    text = "The name ends in the unit. Confidence: H several sources, M one or derived, L assumed or tuned."
    head = ["## Constants", "", text, "", "| constant | value | confidence | source |"]
    return [*head, "|---|---|---|---|", *rows]


def _tables() -> list[str]:
    lines = []
    for name, table in constants().tables.items():
        columns = list(next(iter(table.rows.values())))
        lines += [
            f"## Constants by `{name}`",
            "",
            f"Confidence {table.confidence}. Source: {table.source}.",
            "",
        ]
        lines += ["| " + " | ".join([name, *columns]) + " |", "|---" * (len(columns) + 1) + "|"]
        for choice, row in table.rows.items():
            lines.append("| " + " | ".join([choice, *(f"{row[column]:g}" for column in columns)]) + " |")
        lines.append("")
    return lines[:-1]


def _phaze() -> list[str]:
    law = constants().phaze
    scratchpads = ", ".join(f"{kib} KiB {area:g}" for kib, area in law.scratchpad_um2_by_kib.items())
    buffers = ", ".join(f"{mib} MiB {area:g}" for mib, area in law.global_buffer_um2_by_mib.items())
    return [
        "## PHAZE's area law",
        "",
        f"In um2: {law.mac_um2} per MAC, {law.alu_um2} per vector ALU.",
        f"Scratchpad of a core: {scratchpads}.",
        f"Global buffer: {buffers}.",
        f"Source: {law.source}.",
    ]


def _default(field: Field) -> str:
    return "-" if field.default is None else f"{field.default}"


def _values(field: Field) -> str:
    if field.choices:
        return ", ".join(field.choices)
    if field.kind.value == "boolean":
        return "true, false"
    upper = "" if field.maximum == float("inf") else f" to {field.maximum:g}"
    return f"{field.kind.value}, from {field.minimum:g}{upper}"
