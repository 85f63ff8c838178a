"""The templates and the networks that stand for the chips and the systems measurements were taken on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from phaze.hardware.architecture import Architecture, load_architecture
from phaze.hardware.cluster_network import Network, list_networks, load_network
from phaze.quantity import parse_rate, parse_time
from phaze.yaml_file import parse_yaml


class _ChipPattern(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    chip: str


@lru_cache(maxsize=1)
def _chip_patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    file = resources.files("phaze.validation").joinpath("chips.yaml")
    content = parse_yaml(file.read_text(encoding="utf-8"), "validation/chips.yaml")
    return tuple(
        (re.compile(p.name), p.chip) for p in TypeAdapter(list[_ChipPattern]).validate_python(content)
    )


@lru_cache(maxsize=256)
def chip_of(name: str) -> Architecture | None:
    """Template of the chip that a data set calls `name`; None where there is none."""
    plain = re.sub(r"[\s_-]+", " ", name).upper()
    return next(
        (load_architecture(chip) for pattern, chip in _chip_patterns() if pattern.search(plain)), None
    )


class _SystemPattern(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    network: str
    family: str
    host: str | None = None
    memory: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """A measured system: its network, whose constants its links have, and how it was measured.

    `host_s`: what timing on the host adds; `memory_bytes_per_s`: of a device, where a collective copies between
    a list of tensors and a buffer.
    """

    network: Network
    family: str
    host_s: float
    memory_bytes_per_s: float | None


@lru_cache(maxsize=1)
def _system_patterns() -> tuple[_SystemPattern, ...]:
    text = resources.files("phaze.validation").joinpath("systems.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[_SystemPattern, ...]).validate_python(
        parse_yaml(text, "validation/systems.yaml")
    )


@lru_cache(maxsize=256)
def system_of(name: str) -> System | None:
    """The system whose name and interconnect a data set gives; None where it is not known."""
    for pattern in _system_patterns():
        if re.search(pattern.name, name):
            memory = None if pattern.memory is None else parse_rate(pattern.memory)
            host_s = 0.0 if pattern.host is None else parse_time(pattern.host)
            return System(network_of(pattern.network), pattern.family, host_s, memory)
    return None


def network_of(name: str) -> Network:
    """A packaged network, or one of those that only measurements were taken on."""
    if name in list_networks():
        return load_network(name)
    return load_network(Path(str(resources.files("phaze.validation"))) / "networks" / f"{name}.yaml")
