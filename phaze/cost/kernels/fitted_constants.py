"""Constants of the laws, one YAML file per law, with what they were fitted on and how well, and a user's own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from phaze.errors import InputError
from phaze.ranges import Factor, Line
from phaze.yaml_file import checked, parse_yaml, read_yaml

GENERIC = "generic"
"""The family whose constants the analytic fidelity takes: one set for all chips."""

L = TypeVar("L")


class Fitted(BaseModel, Generic[L]):
    """Constants of one law for one chip family.

    `error_pct`: mean absolute percentage error on all published rows of a data set, by data set. What is left out of
    the fit in turn is worked out by `dse validate --leave-out`, never written down.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    family: str
    fitted_on: str
    error_pct: Mapping[str, float]
    law: L


def fitted_constants(kind: type[L], file: str) -> Mapping[str, Fitted[L]]:
    """All constants of a law shipped with the model, by family."""
    found: Mapping[str, Fitted[L]] = _read(cast("Hashable", kind), file)
    return found


@cache
def _read(kind: Hashable, file: str) -> Mapping[str, Any]:
    text = files("phaze.cost.kernels").joinpath(file).read_text(encoding="utf-8")
    content = parse_yaml(text, f"cost/kernels/{file}")
    sets = TypeAdapter(tuple[Fitted[kind], ...]).validate_python(content)  # type: ignore[valid-type]
    return MappingProxyType({one.family: one for one in sets})


OwnConstants = Mapping[str, Mapping[str, float]]
"""A user's own constants, by the name of the law's file (`FAMILY/FILE`: for chips of a family alone) and their own."""

NO_OWN: OwnConstants = MappingProxyType({})


@dataclass(frozen=True)
class Constants:
    """Constants that laws take: those of `family`, some of them replaced by a user's own."""

    family: str
    own: OwnConstants = field(default_factory=lambda: NO_OWN)

    def law(self, kind: type[L], file: str) -> L | None:
        """Constants of a law; None where there are none. Raises InputError for own ones that the law does not have."""
        law = law_of(kind, file, self.family)
        own = self.own.get(f"{self.family}/{file}", self.own.get(file))
        if law is None or own is None:
            return law
        try:
            return replace(law, **own)  # type: ignore[type-var]
        except TypeError as error:
            raise InputError(f"calibration, {file}: {', '.join(own)} are not the law's constants") from error


def law_of(kind: type[L], file: str, family: str) -> L | None:
    """Constants of a family, those of the generic one where it has none; None where both are missing."""
    known = fitted_constants(kind, file)
    found = known.get(family) or known.get(GENERIC)
    return None if found is None else found.law


class CalibrationFile(BaseModel):
    """Constants of laws, by the law's file and their own name, of one chip; the others are those of `family`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_version: Literal[1] = 1
    chip: Line
    family: str
    laws: Mapping[str, Mapping[str, Factor]]

    def text(self) -> str:
        """The file's content."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    @property
    def of_family(self) -> OwnConstants:
        """The constants by `FAMILY/FILE`: chips of other families keep those of their own."""
        return {f"{self.family}/{file}": law for file, law in self.laws.items()}


def load_calibration(path: Path) -> CalibrationFile:
    """Read a calibration. Raises InputError naming what is wrong."""
    return checked(CalibrationFile, read_yaml(path), str(path))
