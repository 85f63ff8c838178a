"""Scenarios of the constants of the model, drawn together, within the error bars that `uncertainty.yaml` gives each of
them: a Latin hypercube in the logarithms of the factors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from phaze.arrays import Floats, Rows
from phaze.errors import InputError
from phaze.explore.evaluation.parameter_scaling import CHIP, NETWORK
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import power_parts_w
from phaze.yaml_file import checked, parse_yaml, read_yaml

GROUPS = ("chip", "network", "power", "area")
_POWER = ("mac", "operands", "vector", "buffer", "background", "leakage", "hbm", "hbm_background", "link")
_AREA = (
    *("mac", "lane", "int32", "fp64", "simt", "registers", "local", "global"),
    *("overhead", "hbm_phy", "link", "misc"),
)


class ConstantRange(BaseModel):
    """A constant times a factor between `low` and `high`, uniform in its logarithm."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    low: float = Field(gt=0, le=1e6, description="smallest factor")
    high: float = Field(gt=0, le=1e6, description="largest factor")
    source: str = Field(description="what the range rests on")
    parts: tuple[str, ...] = Field(default=(), description="parts of power or area it multiplies")


class Uncertainty(BaseModel):
    """Ranges by group. Chip and network: names of `scaling`; power and area: any names, each with its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    chip: Mapping[str, ConstantRange] = {}
    network: Mapping[str, ConstantRange] = {}
    power: Mapping[str, ConstantRange] = {}
    area: Mapping[str, ConstantRange] = {}

    def ranges(self) -> Iterator[tuple[str, str, ConstantRange]]:
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


NETWORKS = 8  # draws of the network


@dataclass(frozen=True)
class Scenarios:
    """Factors (N,) of every constant, by group and name; `network_of` (N,) tells which share a network."""

    uncertainty: Uncertainty
    factors: Mapping[tuple[str, str], Floats]
    network_of: NDArray[np.intp]

    @property
    def count(self) -> int:
        """How many scenarios."""
        return len(self.network_of)

    def of(self, group: str) -> dict[str, Floats]:
        """Factors of one group by name."""
        return {name: values for (part, name), values in self.factors.items() if part == group}

    def only(self, kept: Rows) -> Scenarios:
        """Some of them, by their numbers."""
        factors = {name: values[kept] for name, values in self.factors.items()}
        return Scenarios(self.uncertainty, factors, self.network_of[kept])

    def power_w(self, table: ArchitectureTable, margin: float) -> Floats:
        """TDP of every architecture in every scenario, (N, A) W, times `margin`."""
        return margin * self._total(power_parts_w(table), "power")

    def area_mm2(self, table: ArchitectureTable) -> Floats:
        """Area of every architecture in every scenario, (N, A) mm2."""
        return self._total(area_parts_mm2(table), "area")

    def _total(self, parts: Mapping[str, Floats], group: str) -> Floats:
        """Sum of parts (A,) each, times the factors of the constants that name them."""
        scale = {name: np.ones(self.count) for name in parts}
        ranges = getattr(self.uncertainty, group)
        for name, factor in self.of(group).items():
            for part in ranges[name].parts:
                scale[part] = scale[part] * factor
        total: Floats = sum(
            (scale[name][:, None] * part[None, :] for name, part in parts.items()), start=np.zeros((1, 1))
        )
        return total


def draw_scenarios(uncertainty: Uncertainty, count: int, seed: int) -> Scenarios:
    """`count` scenarios; the same seed draws the same ones."""
    random = np.random.default_rng(seed)
    networks = min(NETWORKS, count)
    network_of = np.arange(count) % networks
    factors = {}
    for group, name, range_ in uncertainty.ranges():
        slices = networks if group == "network" else count
        place = (random.permutation(slices) + random.random(slices)) / slices
        factor = range_.low * (range_.high / range_.low) ** place
        factors[group, name] = factor[network_of] if group == "network" else factor
    return Scenarios(uncertainty, factors, network_of)
