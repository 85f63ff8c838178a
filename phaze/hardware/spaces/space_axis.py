"""One axis of a design space: fields that vary together, perhaps only where an earlier axis says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags
from phaze.hardware.hardware_fields import FieldValue, field_table, scaled

Cells = NDArray[Any]
Option = tuple[FieldValue | None, ...]
"""One value for each field of an axis; None where an optional field is absent."""


@dataclass(frozen=True)
class Condition:
    """A field has one of some values."""

    field: str
    values: Option

    def holds(self, columns: Mapping[str, Cells]) -> Flags:
        """Where it holds, one answer per row of the columns."""
        return np.isin(columns[self.field], cells(self.field, self.values))

    def holds_for(self, fields: Mapping[str, FieldValue | None]) -> bool:
        """Whether it holds for the fields of one architecture."""
        return fields.get(self.field) in self.values


@dataclass(frozen=True)
class Override:
    """A figure of the base chip: it stands for the rule where one is like that chip, and is absent elsewhere.

    `where`: the base chip's own values of the fields that the figure overrules; `made_of`: its counts of what the
    figure is a total of, with which it grows.
    """

    field: str
    value: FieldValue
    where: tuple[Condition, ...]
    made_of: Mapping[str, FieldValue]

    def column(self, columns: Mapping[str, Cells], rows: int) -> Cells:
        """The figure or absent, one per row of the columns."""
        like: Flags = np.ones(rows, dtype=np.bool_)
        for condition in self.where:
            like &= condition.holds(columns)
        return np.where(
            like, scaled(self.field, self.value, self.made_of, columns), cells(self.field, [None])
        )

    def value_for(self, fields: Mapping[str, FieldValue]) -> FieldValue | None:
        """The figure for one architecture for whose fields it holds."""
        return field_table()[self.field].decode(float(scaled(self.field, self.value, self.made_of, fields)))

    def holds_for(self, fields: Mapping[str, FieldValue | None]) -> bool:
        """Whether it holds for the fields of one architecture."""
        return all(condition.holds_for(fields) for condition in self.where)


@dataclass(frozen=True)
class Axis:
    """Fields that vary together: `options[k][j]` is the value of field j in option k.

    With `when` the axis varies only where every condition on earlier axes holds; elsewhere its fields take
    `otherwise`, and the architecture counts once.
    """

    fields: tuple[str, ...]
    options: tuple[Option, ...]
    when: tuple[Condition, ...] = ()
    otherwise: Option = ()

    @property
    def every_option(self) -> tuple[Option, ...]:
        """All the values its fields can have together."""
        return (*self.options, self.otherwise) if self.when else self.options

    def varies(self, columns: Mapping[str, Cells]) -> Flags:
        """Where a conditional axis varies, one answer per row of the columns of the axes before it."""
        met: Flags = np.logical_and.reduce([condition.holds(columns) for condition in self.when])
        return met

    def varies_for(self, fields: Mapping[str, FieldValue | None]) -> bool:
        """Whether the axis varies where the earlier fields are these."""
        return all(condition.holds_for(fields) for condition in self.when)

    def columns(self, choice: NDArray[np.int64], earlier: Mapping[str, Cells]) -> dict[str, Cells]:
        """The columns of its fields for one option per row, given those of the axes before it."""
        chosen = {
            name: cells(name, [option[j] for option in self.options])[choice]
            for j, name in enumerate(self.fields)
        }
        if not self.when:
            return chosen
        met = self.varies(earlier)
        fixed = zip(self.fields, self.otherwise, strict=True)
        return {name: np.where(met, chosen[name], cells(name, [value])) for name, value in fixed}


def cells(name: str, values: Sequence[FieldValue | None]) -> Cells:
    """Values of a field as they stand in a table column."""
    field = field_table()[name]
    return np.array([field.encode(value) for value in values], dtype=field.dtype)
