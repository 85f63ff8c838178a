"""Names of architectures, and values of hardware fields as a person writes them: 64MiB, 450GB/s, HBM3."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import FieldValue, field_named, field_table

_IN_EVERY_ID = (
    "tensor_cores",
    "tensor_core_rows",
    "tensor_core_columns",
    "vector_cores",
    "vector_core_alus",
    "global_buffer_bytes",
    "hbm_generation",
    "hbm_stacks",
)


def architecture_id(table: ArchitectureTable, row: int, fields: Iterable[str] = ()) -> str:
    """Short name such as `tc8x128x128-vc4x256-gb128MiB-hbm3x6`; other `fields` given are appended."""
    return architecture_ids(table.take([row]), fields)[0]


def architecture_ids(table: ArchitectureTable, fields: Iterable[str] = ()) -> list[str]:
    """The same for every architecture of a table."""
    value = {name: decoded(table, name) for name in _IN_EVERY_ID}
    sizes = {size: value_text("global_buffer_bytes", size) for size in set(value["global_buffer_bytes"])}
    ids = [
        f"tc{cores}x{rows}x{columns}-vc{vectors}x{alus}-gb{sizes[size]}-{str(generation).lower()}x{stacks}"
        for cores, rows, columns, vectors, alus, size, generation, stacks in zip(*value.values(), strict=True)
    ]
    for name in fields:
        if name not in _IN_EVERY_ID:
            cells = decoded(table, name)
            texts = {cell: _named(name, cell) for cell in set(cells)}
            ids = [f"{id_}-{texts[cell]}" for id_, cell in zip(ids, cells, strict=True)]
    return ids


_PARTS = (
    (r"tc(\d+)x(\d+)x(\d+)", "{0} tensor core{s} of {1} x {2} multiply-accumulate units (rows x columns)"),
    (r"vc(\d+)x(\d+)", "{0} vector core{s} of {1} fp32 units"),
    (r"gb([\d.]+[KMG]?i?B)", "a global buffer of {0}"),
    (r"port([\d.]+[KMG]?i?B)", "a port of the global buffer that gives {0} in a cycle"),
    (r"(hbm\d+e?)x(\d+)", "{1} stack{s} of {0}"),
    (r"([\d.]+MHz)", "a clock of {0}"),
    (r"([a-z_0-9]+)=(.+)", "{0} = {1}"),
)


def in_words(name: str) -> str | None:
    """What a design has by its name, or by a part of it: `port4KiB`; None for what is no such name."""
    told = [_part_in_words(part) for part in name.split("-")]
    return ", ".join(part for part in told if part) if all(told) else None


def _part_in_words(part: str) -> str | None:
    for pattern, words in _PARTS:
        if found := re.fullmatch(pattern, part, re.IGNORECASE):
            groups = [
                group.upper().replace("E", "e") if "hbm" in pattern else group for group in found.groups()
            ]
            number = groups[1] if "hbm" in pattern else groups[0]
            return words.format(*groups, s="" if number == "1" else "s")
    return None


def decoded(table: ArchitectureTable, field: str) -> list[FieldValue | None]:
    """Values of a column as they stand in files, None where absent."""
    cells, place = np.unique(table[field], return_inverse=True)
    values = [field_named(field, "table").decode(cell) for cell in cells]
    return [values[i] for i in place.tolist()]


def _named(field: str, value: FieldValue | None) -> str:
    """A field that not every id shows, by name; rates in plain digits, as an id holds no slash."""
    if field == "clock_hz":
        return value_text(field, value)
    if field == "global_buffer_bytes_per_cycle":
        return f"port{value_text(field, value)}"
    text = str(value) if field_table()[field].unit == "byte/s" else value_text(field, value)
    return f"{field.removesuffix('_bytes')}={text}"


def value_text(field: str, value: FieldValue | None) -> str:
    """Sizes in binary units, rates in GB/s, frequencies in MHz; anything else as it stands."""
    unit = field_table()[field].unit
    if unit == "byte" and value is not None and float(value).is_integer():
        return _binary(int(value))
    if unit == "Hz" and value is not None:
        return f"{float(value) / 1e6:.12g}MHz"
    if unit == "byte/s" and value is not None:
        return f"{float(value) / 1e9:.12g}GB/s"
    return str(value)


def _binary(size_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes and size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return f"{size_bytes}B"
