"""A fleet: pools of devices with their chips, networks, zones and prices, links between zones, and its YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, load_architecture
from phaze.hardware.cluster_network import Network, load_network
from phaze.parallel.cluster import MOST_DEVICES, check_count
from phaze.quantity import si_value
from phaze.ranges import Line
from phaze.yaml_file import checked, read_yaml

_Price = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
_Egress = Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)]
GB = 1e9


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _PoolFile(_Record):
    name: Line
    chip: Line
    devices: int
    network: Line = "default"
    zone: Line = "here"
    price: _Price | None = None
    available: bool = True
    source: str = ""


class _LinkFile(_Record):
    between: tuple[Line, Line]
    bandwidth: object
    latency: object
    egress_price: _Egress = 0.0
    source: str


class _FleetFile(_Record):
    schema_version: Literal[1]
    name: Line
    pools: Annotated[tuple[_PoolFile, ...], Field(min_length=1, max_length=16)]
    links: Annotated[tuple[_LinkFile, ...], Field(max_length=256)] = ()


@dataclass(frozen=True)
class Pool:
    """Devices of one chip on one network in a zone; `price_usd`: of one for an hour, where it has one."""

    name: str
    chip: Architecture
    devices: int
    network: Network
    zone: str
    price_usd: float | None = None


@dataclass(frozen=True)
class ZoneLink:
    """The path between two zones, each way, which all that goes between them shares; `egress_usd` per byte."""

    bytes_per_s: float
    latency_s: float
    egress_usd: float = 0.0

    def transfer_s(self, sent_bytes: float) -> float:
        """Seconds in which so many bytes are over."""
        return self.latency_s + sent_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Fleet:
    """Pools that are available, and links between their zones, both ways."""

    name: str
    pools: tuple[Pool, ...]
    links: dict[frozenset[str], ZoneLink]

    @property
    def devices(self) -> int:
        """Devices of all pools."""
        return sum(pool.devices for pool in self.pools)

    def link(self, one: Pool, other: Pool) -> ZoneLink | None:
        """The link that joins two pools; None inside a zone, where the slower of their networks does."""
        return None if one.zone == other.zone else self.links[frozenset({one.zone, other.zone})]


def load_fleet(path: str | Path) -> Fleet:
    """A fleet in a file. Raises InputError for what is unknown, and for zones without a link."""
    where = str(path)
    file = checked(_FleetFile, read_yaml(Path(path)), where)
    names = [pool.name for pool in file.pools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{where}: two pools are called {twice[0]}")
    pools = tuple(_pool(pool, f"{where}: pools.{i}") for i, pool in enumerate(file.pools) if pool.available)
    if not pools:
        raise InputError(f"{where}: none of the pools is available")
    links = _links(file, where)
    for one, other in combinations(sorted({pool.zone for pool in pools}), 2):
        if frozenset({one, other}) not in links:
            raise InputError(f"{where}: links: none joins the zones {one} and {other}")
    return Fleet(file.name, pools, links)


def _pool(file: _PoolFile, where: str) -> Pool:
    try:
        check_count(file.devices, MOST_DEVICES, "devices in a pool")
        chip, network = load_architecture(file.chip), load_network(file.network)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return Pool(file.name, chip, file.devices, network, file.zone, file.price)


def _links(file: _FleetFile, where: str) -> dict[frozenset[str], ZoneLink]:
    zones, found = {pool.zone for pool in file.pools}, dict[frozenset[str], ZoneLink]()
    for i, link in enumerate(file.links):
        here = f"{where}: links.{i}"
        for zone in link.between:
            if zone not in zones:
                raise InputError(
                    f"{here}: no pool is in a zone {zone}; there are: {', '.join(sorted(zones))}"
                )
        ends = frozenset(link.between)
        if len(ends) < 2 or ends in found:
            raise InputError(f"{here}: between takes two zones that no other link joins")
        rate, latency = si_value(link.bandwidth, "byte/s", here), si_value(link.latency, "s", here)
        if not 1 <= rate <= 1e18 or not 0 <= latency <= 1e6:
            raise InputError(f"{here}: a link has from 1B/s to 1e18B/s, and a latency from 0s to 1e6s")
        found[ends] = ZoneLink(rate, latency, link.egress_price / GB)
    return found
