"""A design space: ranges of hardware fields over a base architecture, enumerated block by block."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, from_table
from phaze.hardware.area import area_mm2
from phaze.hardware.fields import FieldValue, field_named, field_table
from phaze.hardware.table import ArchitectureTable

Rows = NDArray[np.int64]

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


@dataclass(frozen=True)
class Axis:
    """Fields that vary together: `options[k][j]` is the value of field j in option k."""

    fields: tuple[str, ...]
    options: tuple[tuple[FieldValue, ...], ...]


@dataclass(frozen=True)
class AreaFilter:
    """PHAZE's filter: at most `limit_mm2`, and at least `floor` of it unless one kind of core is single."""

    limit_mm2: float
    floor: float

    def keeps(self, table: ArchitectureTable) -> NDArray[np.bool_]:
        """Which architectures pass. The tolerance keeps the machine that sets the limit."""
        area = area_mm2(table)
        single = (table["tensor_cores"] == 1) | (table["vector_cores"] == 1)
        large = area >= self.floor * self.limit_mm2 * (1.0 - 1e-12)
        return np.asarray((area <= self.limit_mm2 * (1.0 + 1e-12)) & (large | single))


@dataclass(frozen=True)
class DesignSpace:
    """The architectures of a space, numbered from 0 in lexicographic order, the last axis fastest.

    `ties` maps a field to the field whose value it takes. `kept` lists the numbers in the full grid that pass
    the area filter (None: all). `hbm_capacities_bytes` are memory sizes to search beside the architecture;
    empty: the architecture's own.
    """

    name: str
    base: Architecture
    axes: tuple[Axis, ...]
    ties: Mapping[str, str]
    area_filter: AreaFilter | None = None
    hbm_capacities_bytes: tuple[float, ...] = ()
    kept: Rows | None = None
    description: str = ""

    @property
    def size(self) -> int:
        """Number of architectures."""
        return self._grid_size if self.kept is None else len(self.kept)

    @property
    def fields_varied(self) -> tuple[str, ...]:
        """Fields that differ between architectures, tied ones included."""
        return tuple(name for axis in self.axes for name in axis.fields) + tuple(self.ties)

    def table(self, rows: slice | Iterable[int] | None = None) -> ArchitectureTable:
        """The architectures with the given numbers; all of them by default. Constant columns share memory."""
        return self._grid_table(self._grid_rows(rows))

    def blocks(self, rows: int = 1 << 18) -> Iterator[tuple[int, ArchitectureTable]]:
        """The whole space in tables of at most `rows` architectures, each with the number of its first."""
        for start in range(0, self.size, rows):
            yield start, self.table(slice(start, start + rows))

    def architecture(self, row: int) -> Architecture:
        """One architecture by number, named by its id."""
        table = self.table([row])
        return from_table(table, 0, architecture_id(table, 0, self.fields_varied))

    def architecture_id(self, row: int) -> str:
        """Short name, distinct within the space and the same in every process."""
        return architecture_id(self.table([row]), 0, self.fields_varied)

    def fixed(self, **fields: FieldValue) -> DesignSpace:
        """The space with some base fields changed. Raises InputError where the space varies one of them."""
        varied = set(fields) & set(self.fields_varied)
        if varied:
            raise InputError(
                f"space {self.name}: it varies {', '.join(sorted(varied))}; a fixed value conflicts"
            )
        return filtered(dataclasses.replace(self, base=self.base.replace(self.base.name, **fields)))

    @property
    def _grid_size(self) -> int:
        return math.prod(len(axis.options) for axis in self.axes)

    def _grid_rows(self, rows: slice | Iterable[int] | None) -> Rows:
        """Numbers in the full grid of some numbers in the space."""
        if rows is None or isinstance(rows, slice):
            numbers = np.arange(*(rows or slice(None)).indices(self.size), dtype=np.int64)
        else:
            numbers = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.int64)
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self.size):
                msg = f"space {self.name} has the architectures 0 to {self.size - 1}"
                raise IndexError(msg)
        return numbers if self.kept is None else self.kept[numbers]

    def _grid_table(self, numbers: Rows) -> ArchitectureTable:
        columns: dict[str, NDArray[Any]] = {}
        for axis, choice in zip(self.axes, self._choices(numbers), strict=True):
            for j, name in enumerate(axis.fields):
                columns[name] = _cells(name, [option[j] for option in axis.options])[choice]
        columns |= {name: columns[source] for name, source in self.ties.items()}
        for name in field_table():
            if name not in columns:
                columns[name] = np.broadcast_to(_cells(name, [self.base.fields.get(name)]), len(numbers))
        return ArchitectureTable({name: columns[name] for name in field_table()})

    def _choices(self, numbers: Rows) -> list[Rows]:
        """Position on every axis: the digits of a mixed-radix number."""
        digits = []
        for axis in reversed(self.axes):
            numbers, digit = np.divmod(numbers, len(axis.options))
            digits.append(digit)
        return digits[::-1]


def filtered(space: DesignSpace) -> DesignSpace:
    """The space with `kept` worked out from its area filter."""
    if space.area_filter is None:
        return dataclasses.replace(space, kept=None)
    grid = dataclasses.replace(space, kept=None)
    passed = [start + np.flatnonzero(space.area_filter.keeps(table)) for start, table in grid.blocks()]
    return dataclasses.replace(space, kept=np.concatenate(passed))


def architecture_id(table: ArchitectureTable, row: int, fields: Iterable[str] = ()) -> str:
    """Short name such as `tc8x128x128-vc4x256-gb128MiB-hbm3x6`; other `fields` given are appended."""
    value = {name: field_named(name, "id").decode(table[name][row]) for name in (*_IN_EVERY_ID, *fields)}
    parts = [
        f"tc{value['tensor_cores']}x{value['tensor_core_rows']}x{value['tensor_core_columns']}",
        f"vc{value['vector_cores']}x{value['vector_core_alus']}",
        f"gb{_binary(int(table['global_buffer_bytes'][row]))}",
        f"{str(value['hbm_generation']).lower()}x{value['hbm_stacks']}",
    ]
    return "-".join(parts + [_named(name, value[name]) for name in fields if name not in _IN_EVERY_ID])


def _named(field: str, value: FieldValue | None) -> str:
    """A field that not every id shows, by name; sizes in binary units where they come out even."""
    if value is not None and field_table()[field].unit == "byte":
        return f"{field.removesuffix('_bytes')}={_binary(int(value))}"
    if field == "clock_hz" and value is not None:
        return f"{float(value) / 1e6:g}MHz"
    return f"{field}={value}"


def _cells(name: str, values: list[Any]) -> NDArray[Any]:
    field = field_table()[name]
    return np.array([field.encode(value) for value in values], dtype=field.dtype)


def _binary(size_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes and size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return f"{size_bytes}B"
