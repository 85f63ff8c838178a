"""A user's own constants in a file: what `dse calibrate` writes and `--calibration` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture
from phaze.ranges import Factor, Line
from phaze.yaml_file import checked, read_yaml


class CalibrationFile(BaseModel):
    """Constants of laws, by the law's file and their own name, of one chip; the others are those of `family`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    chip: Line
    family: str
    laws: Mapping[str, Mapping[str, Factor]]

    def text(self) -> str:
        """The file's content."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def check(self, chip: Architecture) -> None:
        """Raise InputError for another chip than the one that was measured."""
        if chip.name != self.chip or chip.value("family") != self.family:
            raise InputError(f"the calibration is one of {self.chip} ({self.family}), not of {chip.name}")


def load_calibration(path: Path) -> CalibrationFile:
    """Read a calibration. Raises InputError naming what is wrong."""
    return checked(CalibrationFile, read_yaml(path), str(path))
