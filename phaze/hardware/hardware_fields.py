"""The hardware field table: names, units, defaults, bounds and sources, read from `fields.yaml`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.quantity import si_value
from phaze.yaml_file import checked, parse_yaml

FieldValue = bool | int | float | str
"""Value of a field outside tables, in SI units; a choice is its word."""


class FieldKind(StrEnum):
    """Kind of values that a field takes."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"


class Field(BaseModel):
    """One hardware field. Without default it is optional, and a table holds NaN where it is absent.

    `overrules`: fields from which a rule would work it out; its value holds for their values alone. `grows_with`:
    counts that it is a total of; a chip with twice as many has twice of it, where nothing else is given. `fact`: what
    somebody has measured or built; it costs neither area nor power, so that no space may choose it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    kind: FieldKind
    unit: str
    default: FieldValue | None = None
    minimum: float = -np.inf
    maximum: float = np.inf
    choices: tuple[str, ...] = ()
    overrules: tuple[str, ...] = ()
    grows_with: tuple[str, ...] = ()
    fact: bool = False
    description: str
    source: str

    @property
    def dtype(self) -> type[np.generic]:
        """Type of the field's table column."""
        if self.default is None:
            return np.float64  # the only one that can say "absent"
        kinds: dict[FieldKind, type[np.generic]] = {
            FieldKind.INTEGER: np.int64,
            FieldKind.NUMBER: np.float64,
            FieldKind.BOOLEAN: np.bool_,
            FieldKind.CHOICE: np.int8,
        }
        return kinds[self.kind]

    def counts(self, values: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
        """A chip's counts of what the field is a total of."""
        return {count: values[count] for count in self.grows_with}

    def parse(self, value: object, where: str) -> FieldValue:
        """A value from a file, checked. Raises InputError that tells what would be right."""
        if self.kind is FieldKind.CHOICE:
            return self._parse_choice(value, where)
        if self.kind is FieldKind.BOOLEAN:
            if not isinstance(value, bool):
                raise InputError(f"{where}: {value!r} is not true or false")
            return value
        number = si_value(value, self.unit, where)
        if not self.minimum <= number <= self.maximum:
            bounds = f"from {self.minimum:.10g}" + (
                f" to {self.maximum:.10g}" if np.isfinite(self.maximum) else ""
            )
            unit = "" if self.unit == "1" else f" {self.unit}"
            raise InputError(f"{where}: {value!r} is out of range; {self.name} takes {bounds}{unit}")
        if self.kind is FieldKind.INTEGER:
            if number != round(number):
                raise InputError(f"{where}: {value!r} is not a whole number")
            return round(number)
        return number

    def _parse_choice(self, value: object, where: str) -> str:
        if value not in self.choices:
            raise InputError(f"{where}: {value!r} is not one of {', '.join(self.choices)}")
        return str(value)

    def encode(self, value: FieldValue | None) -> float | int | bool:
        """Value as it stands in a table column; None is "absent"."""
        if value is None:
            return np.nan
        return self.choices.index(str(value)) if self.kind is FieldKind.CHOICE else float_or_int(value)

    def decode(self, cell: np.generic | float) -> FieldValue | None:
        """Value of a table cell, None where absent."""
        if self.kind is FieldKind.CHOICE:
            return self.choices[int(cell)]
        if self.kind is FieldKind.BOOLEAN:
            return bool(cell)
        if np.isnan(cell):
            return None
        return int(cell) if self.kind is FieldKind.INTEGER else float(cell)


class _FieldFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    fields: tuple[Field, ...]


def float_or_int(value: FieldValue) -> float | int | bool:
    """A numeric field value, unchanged; a word is a programming error."""
    if isinstance(value, str):
        msg = f"{value!r} is a word where a number belongs"
        raise TypeError(msg)
    return value


@cache
def field_table() -> Mapping[str, Field]:
    """All hardware fields by name, in the order of the file."""
    text = files("phaze.hardware").joinpath("fields.yaml").read_text(encoding="utf-8")
    content = checked(_FieldFile, parse_yaml(text, "fields.yaml"), "fields.yaml")
    return MappingProxyType({field.name: field for field in content.fields})


def field_named(name: str, where: str) -> Field:
    """One field. Raises InputError with the nearest names."""
    fields = field_table()
    if name in fields:
        return fields[name]
    near = difflib.get_close_matches(name, fields, n=3, cutoff=0.5)
    told = f"near: {', '.join(near)}" if near else "dse archs show h100 lists those of a chip"
    raise InputError(f"{where}: no hardware field is named {name!r}; {told}")


def default_values() -> dict[str, FieldValue]:
    """Defaults of all fields that have one."""
    return {name: field.default for name, field in field_table().items() if field.default is not None}


def still_valid(values: Mapping[str, FieldValue], changed: Collection[str]) -> dict[str, FieldValue]:
    """Values of a chip without those that overrule one of the fields that have changed."""
    table = field_table()
    return {name: value for name, value in values.items() if not set(table[name].overrules) & set(changed)}


def grown(
    values: Mapping[str, FieldValue], new: Mapping[str, FieldValue], given: Collection[str]
) -> dict[str, FieldValue]:
    """Totals of a chip for other counts of what they are made of, those that differ.

    `new`: the fields of the chip as changed; totals that are `given` with the change stay.
    """
    found: dict[str, FieldValue] = {}
    for name, field in field_table().items():
        if field.grows_with and name not in given and name in values:
            total = field.decode(float(scaled(name, values[name], field.counts(values), new)))
            if total is not None and total != values[name]:
                found[name] = total
    return found


def scaled(
    name: str, value: FieldValue, made_of: Mapping[str, FieldValue], counts: Mapping[str, Any]
) -> NDArray[Any]:
    """Total of a chip that is made of these counts, for others, numbers or (A,): value x count / own count of each."""
    field, total = field_table()[name], np.asarray(value, dtype=np.float64)
    for count, own in made_of.items():
        total = total * (np.asarray(counts[count], dtype=np.float64) / float_or_int(own))
    if field.kind is FieldKind.INTEGER:
        total = np.where(total > 0, np.maximum(np.rint(total), 1), 0)
    return np.asarray(total).astype(field.dtype)


def code(field: str, choice: str) -> int:
    """Number that stands for a choice in a table column, for example `code("precision", "bf16")`."""
    return field_table()[field].choices.index(choice)


def given_or(table: ArchitectureTable, field: str, otherwise: NDArray[Any]) -> NDArray[np.float64]:
    """An optional column with its absent cells filled from `otherwise`, one per architecture."""
    column = table[field]
    if column.strides == (0,) and len(column) and len(column) == len(otherwise):
        return np.asarray(otherwise if np.isnan(column[0]) else column, dtype=np.float64)
    return np.where(np.isnan(column), otherwise, column)
