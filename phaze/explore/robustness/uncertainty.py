"""The error bars of the model: a range for each constant, with what it rests on, read from `uncertainty.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InputError
from phaze.explore.scaling import CHIP, NETWORK
from phaze.yaml_file import checked, parse_yaml, read_yaml

GROUPS = ("chip", "network", "power", "area")
_POWER = ("mac", "operands", "vector", "background", "leakage", "hbm", "hbm_background", "link")
_AREA = (
    *("mac", "lane", "int32", "fp64", "simt", "registers", "local", "global"),
    *("overhead", "hbm_phy", "link", "misc"),
)


class Range(BaseModel):
    """A constant times a factor between `low` and `high`, uniform in its logarithm."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float = Field(gt=0, le=1e6, description="smallest factor")
    high: float = Field(gt=0, le=1e6, description="largest factor")
    source: str = Field(description="what the range rests on")
    parts: tuple[str, ...] = Field(default=(), description="parts of power or area it multiplies")


class Uncertainty(BaseModel):
    """Ranges by group. Chip and network: names of `scaling`; power and area: any names, each with its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chip: Mapping[str, Range] = {}
    network: Mapping[str, Range] = {}
    power: Mapping[str, Range] = {}
    area: Mapping[str, Range] = {}

    def ranges(self) -> Iterator[tuple[str, str, Range]]:
        """(group, name, range) of every constant, in a fixed order."""
        for group in GROUPS:
            for name, range_ in getattr(self, group).items():
                yield group, name, range_


def load_uncertainty(path: Path | None = None) -> Uncertainty:
    """The ranges in a file, by default those that come with the model. Raises InputError."""
    if path is None:
        text = files("phaze.explore.robustness").joinpath("uncertainty.yaml").read_text(encoding="utf-8")
        return _checked(parse_yaml(text, "uncertainty.yaml"), "uncertainty.yaml")
    return _checked(read_yaml(path), str(path))


def _checked(content: object, where: str) -> Uncertainty:
    found = checked(Uncertainty, content, where)
    for group, name, range_ in found.ranges():
        place = f"{where}: {group}.{name}"
        if range_.low > range_.high:
            raise InputError(f"{place}: low {range_.low:g} is above high {range_.high:g}")
        if group in ("chip", "network"):
            _known([name], CHIP if group == "chip" else NETWORK, place)
        else:
            _known(range_.parts, _POWER if group == "power" else _AREA, f"{place}.parts")
    return found


def _known(names: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{where}: {name!r} is not one of {', '.join(known)}")
