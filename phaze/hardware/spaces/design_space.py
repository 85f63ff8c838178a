"""A design space: ranges of hardware fields over a base architecture, enumerated in blocks, under constraints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Integers
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, from_table
from phaze.hardware.architecture_naming import architecture_id
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import FieldKind, FieldValue, field_table, grown, scaled
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.spaces.network_axes import NetworkAxes
from phaze.hardware.spaces.space_axis import Axis, Cells, Condition, Override, cells
from phaze.hardware.spaces.space_constraint import Constraint

_CHUNK = 1 << 12  # numbers whose bits are unpacked at once
_BLOCK = 1 << 18  # numbers tested at once
_CLOCK = "clock_hz"


@dataclass(frozen=True)
class KeptNumbers:
    """A set of numbers from 0, in an eighth of a byte each plus one counter for every `_CHUNK` of them.

    `bits[c]` holds the packed bits of chunk c, `before[c]` how many are kept before it; the last entry is all.
    """

    bits: NDArray[np.uint8]
    before: Integers

    @classmethod
    def of(cls, size: int, keeps: Callable[[Integers], Flags]) -> KeptNumbers:
        """Numbers below `size` that `keeps` keeps; it is asked for one block at a time."""
        chunks = -(-size // _CHUNK)
        bits = np.zeros((chunks, _CHUNK // 8), dtype=np.uint8)
        counts = np.zeros(chunks + 1, dtype=np.int64)
        for start in range(0, size, _BLOCK):
            mask = keeps(np.arange(start, min(start + _BLOCK, size), dtype=np.int64))
            padded = np.zeros(-(-len(mask) // _CHUNK) * _CHUNK, dtype=np.bool_)
            padded[: len(mask)] = mask
            rows = slice(start // _CHUNK, start // _CHUNK + len(padded) // _CHUNK)
            bits[rows] = np.packbits(padded).reshape(-1, _CHUNK // 8)
            counts[1:][rows] = padded.reshape(-1, _CHUNK).sum(axis=1)
        return cls(bits, np.cumsum(counts))

    def __len__(self) -> int:
        """Count of the numbers that are kept."""
        return int(self.before[-1])

    def numbers(self, ranks: Integers) -> Integers:
        """The kept numbers at the given positions among all that are kept, each position below the length."""
        chunk = np.searchsorted(self.before, ranks, side="right") - 1
        order = np.argsort(chunk, kind="stable")
        found = np.empty(len(ranks), dtype=np.int64)
        borders = np.flatnonzero(np.diff(chunk[order])) + 1
        for rows in np.split(order, borders) if len(order) else ():
            c = chunk[rows[0]]
            found[rows] = c * _CHUNK + np.flatnonzero(self._mask(c))[ranks[rows] - self.before[c]]
        return found

    def rank(self, number: int) -> int | None:
        """The position of a number among those kept; None where it is not."""
        rank = int(self.ranks(np.array([number]))[0])
        return None if rank < 0 else rank

    def ranks(self, numbers: Integers) -> Integers:
        """Ranks of many numbers, -1 where one is not kept."""
        chunk, place = np.divmod(numbers, _CHUNK)
        order = np.argsort(chunk, kind="stable")
        found = np.full(len(numbers), -1, dtype=np.int64)
        borders = np.flatnonzero(np.diff(chunk[order])) + 1
        for rows in np.split(order, borders) if len(order) else ():
            mask = self._mask(int(chunk[rows[0]]))
            ranks = self.before[chunk[rows]] + np.cumsum(mask)[place[rows]] - 1
            found[rows] = np.where(mask[place[rows]], ranks, -1)
        return found

    def _mask(self, chunk: int) -> Flags:
        return np.unpackbits(self.bits[chunk]).astype(np.bool_)


@dataclass(frozen=True)
class AreaFilter:
    """Area limit: at most `limit_mm2`, and at least `floor` of it unless one kind of core is single."""

    limit_mm2: float
    floor: float

    def keeps(self, table: ArchitectureTable) -> NDArray[np.bool_]:
        """Architectures that pass. The tolerance keeps the machine that sets the limit."""
        area = area_mm2(table)
        single = (table["tensor_cores"] == 1) | (table["vector_cores"] == 1)
        large = area >= self.floor * self.limit_mm2 * (1.0 - 1e-12)
        return np.asarray((area <= self.limit_mm2 * (1.0 + 1e-12)) & (large | single))


__all__ = ["DesignSpace", "architecture_id"]


@dataclass(frozen=True)
class DesignSpace:
    """The architectures of a space, numbered from 0 in lexicographic order, the last axis fastest.

    The grid is the product of all axes. An architecture of the grid belongs to the space where its `constraints`,
    `pins` (fields held at a value) and the area filter allow it; where a conditional axis does not vary, the
    first of its options stands for the one architecture there is. Numbers count what is kept.

    `ties` maps a field to the field whose value it takes, times `multiples` where it stands there.
    `hbm_capacities_bytes` are memory sizes to search beside the architecture; empty: the architecture's own.
    `heterogeneous`: every pipeline stage may have a design of its own. `overrides`: figures of the base chip that hold
    for the points that are like it, and for no others. `network_axes`: networks to search beside the architecture.
    """

    name: str
    base: Architecture
    axes: tuple[Axis, ...]
    ties: Mapping[str, str]
    area_filter: AreaFilter | None = None
    hbm_capacities_bytes: tuple[float, ...] = ()
    description: str = ""
    multiples: Mapping[str, float] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    pins: tuple[Condition, ...] = ()
    heterogeneous: bool = False
    overrides: tuple[Override, ...] = ()
    network_axes: NetworkAxes | None = None

    @property
    def size(self) -> int:
        """Number of architectures."""
        return self.grid_size if self._kept is None else len(self._kept)

    @property
    def grid_size(self) -> int:
        """Number of combinations of the axes' options, before conditions, constraints and the area filter."""
        return math.prod(len(axis.options) for axis in self.axes)

    @property
    def is_filtered(self) -> bool:
        """Whether some combinations of the grid do not belong to the space."""
        conditional = any(axis.when for axis in self.axes)
        return conditional or bool(self.constraints or self.pins or self.area_filter)

    @property
    def fields_varied(self) -> tuple[str, ...]:
        """Fields that differ between architectures, tied ones included."""
        return tuple(name for axis in self.axes for name in axis.fields) + tuple(self.ties)

    @property
    def grown_fields(self) -> tuple[str, ...]:
        """Totals of the base chip that differ between architectures because counts that they are made of do."""
        varied = set(self.fields_varied)
        return tuple(
            name
            for name, total in field_table().items()
            if varied & set(total.grows_with) and name not in varied and self.base.fields.get(name)
        )

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

    def number(self, fields: Mapping[str, FieldValue]) -> int:
        """The number of the architecture with these values of the varied fields; others are not looked at.

        Raises InputError where the space does not have it.
        """
        grid = 0
        for axis in self.axes:
            option = tuple(fields.get(name) for name in axis.fields)
            offered = axis.options if axis.varies_for(fields) else (axis.otherwise,)
            if option not in offered:
                raise InputError(f"space {self.name} does not offer {', '.join(axis.fields)} = {option}")
            grid = grid * len(axis.options) + offered.index(option)
        for name, value in self.settled(fields).items():
            if fields.get(name) != value:
                raise InputError(f"space {self.name} has {name} = {value} there, not {fields.get(name)}")
        number = grid if self._kept is None else self._kept.rank(grid)
        if number is None:
            raise InputError(f"the constraints of space {self.name} rule this architecture out")
        return number

    def slowest(self, numbers: Integers) -> Integers | None:
        """Numbers of the architectures that differ from some, (N,), in the clock alone, and have the lowest on offer.

        None where the clock is no axis of its own, other fields follow it, or numbers do not tell it: those of a
        filtered grid.
        """
        at = next((i for i, axis in enumerate(self.axes) if axis.fields == (_CLOCK,)), None)
        follow = [*self.ties.values(), *(c.field for figure in self.overrides for c in figure.where)]
        if at is None or self.is_filtered or _CLOCK in follow:
            return None
        clocks = [float(hz or 0.0) for (hz,) in self.axes[at].options]
        below = math.prod(len(axis.options) for axis in self.axes[at + 1 :])
        mine = numbers // below % len(clocks)
        return numbers + (clocks.index(min(clocks)) - mine) * below

    @property
    def unconstrained(self) -> DesignSpace:
        """Every architecture that the axes describe; without conditional axes its numbers are those of the grid."""
        return dataclasses.replace(self, area_filter=None, constraints=(), pins=())

    def collapsed(self, grid: Integers) -> Integers:
        """Combinations of the grid, (N,), with the first option of every axis that does not vary there."""
        columns, numbers = self._grid_table(grid).columns, np.zeros_like(grid)
        for axis, choice in zip(self.axes, self._choices(grid), strict=True):
            stands = np.where(axis.varies(columns), choice, 0) if axis.when else choice
            numbers = numbers * len(axis.options) + stands
        return numbers

    def numbers(self, grid: Integers) -> Integers:
        """Numbers of combinations of the grid, (N,); -1 where the space does not have one."""
        return grid if self._kept is None else self._kept.ranks(grid)

    def settled(self, fields: Mapping[str, FieldValue | None]) -> dict[str, FieldValue | None]:
        """All varied fields from an option of every axis: ties follow, and conditional axes where they do not vary.

        The fields of an axis that does not vary may be left out.
        """
        chosen: dict[str, FieldValue | None] = {}
        for axis in self.axes:
            varies = axis.varies_for(chosen)
            option = tuple(fields[name] for name in axis.fields) if varies else axis.otherwise
            chosen |= zip(axis.fields, option, strict=True)
        for name, source in self.ties.items():
            chosen[name] = self.tied_value(name, chosen[source])
        return chosen

    def completed(self, varied: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
        """All fields of an architecture from those that vary: the others are the base chip's."""
        fields = {**self.base.fields, **varied}
        fields |= grown(self.base.fields, fields, varied)
        figures = {o.field: o.value_for(fields) for o in self.overrides if o.holds_for(fields)}
        return {name: value for name, value in figures.items() if value is not None} | fields

    def tied_value(self, name: str, value: FieldValue | None) -> FieldValue | None:
        """The value of a tied field where its source has this one."""
        column = self._tied(name, cells(self.ties[name], [value]))
        return field_table()[name].decode(column[0])

    def keeps(self, table: ArchitectureTable) -> Flags:
        """Architectures that the constraints, pins and area filter of the space allow."""
        kept = np.ones(len(table), dtype=np.bool_)
        for constraint in self.constraints:
            kept &= constraint.keeps(table)
        for pin in self.pins:
            kept &= pin.holds(table.columns)
        return kept if self.area_filter is None else kept & self.area_filter.keeps(table)

    def fixed(self, **fields: FieldValue) -> DesignSpace:
        """The space with some base fields changed. Raises InputError where the space varies one of them."""
        varied = set(fields) & set(self.fields_varied)
        if varied:
            raise InputError(
                f"space {self.name}: it varies {', '.join(sorted(varied))}; a fixed value conflicts"
            )
        return dataclasses.replace(self, base=self.base.replace(self.base.name, **fields))

    @cached_property
    def _kept(self) -> KeptNumbers | None:
        """Numbers of the grid that belong to the space; None: all of them."""
        if not self.is_filtered:
            return None
        kept = KeptNumbers.of(self.grid_size, self._keeps_grid)
        if not len(kept):
            raise InputError(f"space {self.name}: its constraints and fixed fields leave no architecture")
        return kept

    def _keeps_grid(self, numbers: Integers) -> Flags:
        table = self._grid_table(numbers)
        kept = self.keeps(table)
        for axis, choice in zip(self.axes, self._choices(numbers), strict=True):
            if axis.when:
                kept &= axis.varies(table.columns) | (choice == 0)
        return kept

    def _grid_rows(self, rows: slice | Iterable[int] | None) -> Integers:
        """Numbers in the full grid of some numbers in the space."""
        if rows is None or isinstance(rows, slice):
            numbers = np.arange(*(rows or slice(None)).indices(self.size), dtype=np.int64)
        else:
            numbers = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.int64)
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self.size):
                msg = f"space {self.name} has the architectures 0 to {self.size - 1}"
                raise IndexError(msg)
        return numbers if self._kept is None else self._kept.numbers(numbers)

    def _grid_table(self, numbers: Integers) -> ArchitectureTable:
        columns: dict[str, Cells] = {}
        for axis, choice in zip(self.axes, self._choices(numbers), strict=True):
            columns |= axis.columns(choice, columns)
        columns |= {name: self._tied(name, columns[source]) for name, source in self.ties.items()}
        for name in field_table():
            if name not in columns:
                columns[name] = np.broadcast_to(cells(name, [self.base.fields.get(name)]), len(numbers))
        columns |= {name: self._grown(name, columns) for name in self.grown_fields}
        columns |= {o.field: o.column(columns, len(numbers)) for o in self.overrides}
        return ArchitectureTable({name: columns[name] for name in field_table()})

    def _grown(self, name: str, columns: Mapping[str, Cells]) -> Cells:
        """The column of a total of the base chip, from those of the counts that it is made of."""
        own = self.base.fields
        return scaled(name, own[name], field_table()[name].counts(own), columns)

    def _tied(self, name: str, source: Cells) -> Cells:
        """The column of a tied field from that of its source."""
        tied = field_table()[name]
        value = source * self.multiples[name] if name in self.multiples else source
        whole = np.rint(value) if tied.kind is FieldKind.INTEGER else value
        return whole.astype(tied.dtype, copy=False)

    def _choices(self, numbers: Integers) -> list[Integers]:
        """Position on every axis: the digits of a mixed-radix number."""
        digits = []
        for axis in reversed(self.axes):
            numbers, digit = np.divmod(numbers, len(axis.options))
            digits.append(digit)
        return digits[::-1]
