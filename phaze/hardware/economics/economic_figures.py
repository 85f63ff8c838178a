"""Figures behind money and carbon, by name: `economics.yaml` as shipped, overruled name by name by a file of a user.

A scalar is one number; a column has a number for each choice of a hardware field, or for each region.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import field_table
from phaze.hardware.physical_constants import Confidence
from phaze.yaml_file import checked, parse_yaml, read_yaml

FILE = "economics.yaml"
REGION = "region"
YEAR_S = 365.25 * 86400.0
_BY_REGION = "carbon_intensity_kg_per_kwh"  # ends names of scalars that take a region, too

Given = float | Mapping[str, float]


class _Described(BaseModel):
    """Meaning, source and range of a figure; without `least` it is greater than zero."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    about: str
    confidence: Confidence
    source: str
    least: float | None = None
    most: float = math.inf

    def within(self, value: object, where: str) -> float:
        """A number in range, also from a word such as 50e3. Raises InputError that tells what would be right."""
        number = _number(value)
        if number is None:
            raise InputError(f"{where}: {value!r} is not a number")
        enough = number > 0 if self.least is None else number >= self.least
        if not (enough and number <= self.most and math.isfinite(number)):
            raise InputError(f"{where}: {number:g} must be {self._range}")
        return number

    @property
    def _range(self) -> str:
        low = "greater than zero" if self.least is None else f"at least {self.least:g}"
        return low + (f" and at most {self.most:g}" if math.isfinite(self.most) else "")


class Scalar(_Described):
    """One number; its unit is the ending of its name. None: there is none unless it is given."""

    value: float | None


class Column(_Described):
    """A number for each choice of a field, or for each region."""

    values: Mapping[str, float]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    scalars: Mapping[str, Scalar]
    columns: Mapping[str, Mapping[str, Column]]


@dataclass(frozen=True)
class Figure:
    """One figure as it is explained: its name, what it is, its value as shipped, and where that is from."""

    name: str
    about: str
    value: str
    source: str

    @property
    def unit(self) -> str:
        """The unit that its name ends in; empty for shares and counts."""
        return next((unit for ending, unit in _UNITS.items() if self.name.endswith(ending)), "")


_UNITS = {
    "_usd_per_kwh": "USD/kWh",
    "_kg_per_kwh": "kg CO2e/kWh",
    "_usd_per_mm2": "USD/mm2",
    "_usd_per_gib": "USD/GiB",
    "_kg_per_gib": "kg CO2e/GiB",
    "_usd_per_gbyte_per_s": "USD per GB/s",
    "_w_per_gbyte_per_s": "W per GB/s",
    "_usd_per_device_hour": "USD/h",
    "_usd_per_w": "USD/W",
    "_kwh_per_cm2": "kWh/cm2",
    "_kg_per_cm2": "kg CO2e/cm2",
    "_per_cm2": "1/cm2",
    "_per_year": "1/year",
    "_years": "years",
    "_usd": "USD",
    "_kg": "kg CO2e",
    "_mm2": "mm2",
    "_mm": "mm",
    "_w": "W",
}


@dataclass(frozen=True)
class Economics:
    """All figures, those in `given` instead of the shipped ones; they were checked when they were read."""

    given: Mapping[str, Given] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """One scalar. Raises InputError where it is missing: a missing figure is never 0."""
        value = self.maybe(name)
        if value is None:
            raise InputError(f"{FILE}: the figure {name!r} is missing")
        return value

    def maybe(self, name: str) -> float | None:
        """One scalar, or None where there is none unless it is given."""
        own = self.given.get(name)
        if isinstance(own, float):
            return own
        if name not in shipped().scalars:
            raise InputError(f"{FILE}: the figure {name!r} is missing")
        return shipped().scalars[name].value

    def column(self, table: ArchitectureTable, name: str) -> Floats:
        """A column's number for the choice that each architecture has made, (A,)."""
        of, values = self.values(name)
        try:
            by_choice = [values[choice] for choice in field_table()[of].choices]
        except KeyError as error:
            raise InputError(f"{FILE}: {name} lacks {error}") from error
        return np.array(by_choice)[table[of]]

    def values(self, name: str) -> tuple[str, Mapping[str, float]]:
        """The field (or `region`) that a column belongs to, and its numbers."""
        of, column = _columns()[name]
        own = self.given.get(name, {})
        return of, {**column.values, **(own if isinstance(own, Mapping) else {})}

    def changed(self, **given: object) -> Economics:
        """The same with some figures given, None left alone. Raises InputError for what is out of range."""
        found = self
        for name, value in given.items():
            found = found if value is None else found.replaced(name, value, name)
        return found

    def replaced(self, name: str, value: object, where: str) -> Economics:
        """The same with one figure given; `where` names it in errors. Raises InputError."""
        return Economics({**self.given, name: self._read(name, value, where)})

    def _read(self, name: str, value: object, where: str) -> Given:
        if name in _columns():
            return {**_mapping(self.given.get(name, {})), **_column(name, value, where)}
        scalar = shipped().scalars.get(name)
        if scalar is None:
            known = [*shipped().scalars, *_columns()]
            near = get_close_matches(name, known, n=3, cutoff=0.4) or known
            raise InputError(f"{where}: no such figure (nearest: {', '.join(near)})")
        if name.endswith(_BY_REGION) and isinstance(value, str) and _number(value) is None:
            return self.region_kg_per_kwh(value, where)
        return scalar.within(value, where)

    def region_kg_per_kwh(self, region: str, where: str) -> float:
        """Emissions of a region's electricity. Raises InputError with the regions there are."""
        known = self.values("grid_kg_per_kwh")[1]
        if region.strip().lower() not in known:
            raise InputError(f"{where}: {region!r} is neither a number nor one of {', '.join(known)}")
        return known[region.strip().lower()]

    def after(self, path: Path) -> Economics:
        """The same with the figures of a YAML file given. Raises InputError that names file, figure and value."""
        content = read_yaml(path)
        if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
            raise InputError(f"{path}: not a mapping of figures, for instance volume_chips: 50000")
        found = self
        for name, value in content.items():
            found = found.replaced(name, value, f"{path}: {name}")
        return found


@cache
def shipped() -> _File:
    """The figures of the package."""
    text = files("phaze.hardware.economics").joinpath(FILE).read_text(encoding="utf-8")
    return checked(_File, parse_yaml(text, FILE), FILE)


@cache
def _columns() -> dict[str, tuple[str, Column]]:
    """Every column by name, with the field it belongs to."""
    return {name: (of, column) for of, some in shipped().columns.items() for name, column in some.items()}


def figures() -> Iterator[Figure]:
    """Every figure, to be explained."""
    for name, scalar in shipped().scalars.items():
        yield Figure(
            name, scalar.about, "none" if scalar.value is None else f"{scalar.value:g}", scalar.source
        )
    for name, (of, column) in _columns().items():
        each = ", ".join(f"{choice} {value:g}" for choice, value in column.values.items())
        yield Figure(name, f"{column.about}, by {of}", each, column.source)


def _column(name: str, value: object, where: str) -> dict[str, float]:
    """Numbers of some choices of a column. Raises InputError."""
    of, column = _columns()[name]
    if not isinstance(value, Mapping):
        raise InputError(
            f"{where}: {value!r} is not a mapping of {of} to numbers, for instance {_example(column)}"
        )
    found = {}
    for choice, number in value.items():
        if choice not in column.values and of != REGION:
            raise InputError(f"{where}: {choice!r} is not one of {', '.join(column.values)}")
        found[str(choice)] = column.within(number, f"{where}.{choice}")
    return found


def _example(column: Column) -> str:
    choice, value = next(iter(column.values.items()))
    return f"{{{choice}: {value:g}}}"


def _mapping(value: Given) -> Mapping[str, float]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    """A number, also one that YAML takes for a word (50e3); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
