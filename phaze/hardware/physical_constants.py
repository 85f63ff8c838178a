"""Physical constants of the area and power model, read from `constants.yaml`, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import field_table
from phaze.yaml_file import checked, parse_yaml

Confidence = Literal["H", "M", "L"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Constant(_Record):
    """One number; its unit is the ending of its name."""

    value: float
    source: str
    confidence: Confidence


class ConstantTable(_Record):
    """Numbers that belong to the choices of a field."""

    source: str
    confidence: Confidence
    rows: Mapping[str, Mapping[str, float]]


class PhazeLaw(_Record):
    """Areas of PHAZE's components in um2."""

    source: str
    mac_um2: float
    alu_um2: float
    scratchpad_um2_by_kib: Mapping[int, float]
    global_buffer_um2_by_mib: Mapping[int, float]


class ConstantFile(_Record):
    """A file of constants: single ones by name, and tables with a row for each choice of a field."""

    file: ClassVar[str]

    scalars: Mapping[str, Constant]
    tables: Mapping[str, ConstantTable]

    def __getitem__(self, name: str) -> float:
        """One scalar. Raises InputError where it is missing: a missing constant is never 0."""
        if name not in self.scalars:
            raise InputError(f"{self.file}: the constant {name!r} is missing")
        return self.scalars[name].value

    def column(self, table: ArchitectureTable, field: str, quantity: str) -> NDArray[np.float64]:
        """A number that belongs to the choice each architecture has made, one per architecture."""
        values, choice = self._by_choice(field, quantity), table[field]
        if choice.strides == (0,) and len(choice):  # all have made one choice, as nearly all of a space have
            return np.broadcast_to(values[choice[0]], len(choice))
        return values[choice]

    def _by_choice(self, field: str, quantity: str) -> NDArray[np.float64]:
        rows = self.tables[field].rows
        try:
            values = [rows[choice][quantity] for choice in field_table()[field].choices]
        except KeyError as error:
            raise InputError(f"{self.file}: {field} lacks {error} (for {quantity!r})") from error
        return np.array(values)


File = TypeVar("File", bound=ConstantFile)


class Constants(ConstantFile):
    """The content of `constants.yaml`."""

    file = "constants.yaml"

    phaze: PhazeLaw


@cache
def constants() -> Constants:
    """All physical constants."""
    return read_constants(Constants)


def read_constants(kind: type[File]) -> File:
    """A packaged file of constants. Raises InputError where it is faulty."""
    text = files("phaze.hardware").joinpath(kind.file).read_text(encoding="utf-8")
    return checked(kind, parse_yaml(text, kind.file), kind.file)


def lookup(known: Mapping[int, float], size: NDArray[Any], what: str) -> NDArray[np.float64]:
    """Values of a table with integer keys. Raises InputError for sizes the table does not list."""
    keys = np.array(sorted(known))
    at = np.minimum(np.searchsorted(keys, size), len(keys) - 1)
    wrong = keys[at] != size
    if wrong.any():
        raise InputError(f"{what} has no area for {size[wrong][0]:g}; it lists {', '.join(map(str, keys))}")
    return np.array([known[int(key)] for key in keys])[at]
