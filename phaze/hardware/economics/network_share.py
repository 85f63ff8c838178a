"""A device's share of the network: what its links, switches and adapters cost and draw, from sourced figures.

Of every tier that the devices reach, per GB/s of a device's bandwidth. Direct links: switches in as many levels as the
domain needs, none where neighbours are wired to each other; copper inside a rack, optics beyond it. Adapters: a fat
tree of as many levels as reach all devices, one tree for each rail of an innermost domain, thinned by its
oversubscription above the first level; a tier beyond another one of adapters adds the levels that are missing to it.
What the chip's own link interfaces draw is in its TDP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.network_tiers import Medium, Tier, Topology

_GB = 1e9
_SWITCHED = (Topology.SWITCH, Topology.FAT_TREE)


def network_usd(table: ArchitectureTable, devices: int, network: Network, economics: Economics) -> Floats:
    """Price in USD of a device's share of the network, (A,), for so many devices of each architecture.

    Of networks of which an exchange may take any: the least.
    """
    e = economics
    rates = _PerGbyte(
        switch=e["scale_up_usd_per_gbyte_per_s"],
        cable=e["scale_up_cable_usd_per_gbyte_per_s"],
        far=e["optics_usd_per_gbyte_per_s"],
        adapter=e["adapter_usd_per_gbyte_per_s"],
        port=e["switch_usd_per_gbyte_per_s"],
        link=e["optics_usd_per_gbyte_per_s"],
    )
    return _least(table, devices, network, economics, rates)


def network_w(table: ArchitectureTable, devices: int, network: Network, economics: Economics) -> Floats:
    """Power in W of the same, (A,)."""
    e = economics
    rates = _PerGbyte(
        switch=e["scale_up_w_per_gbyte_per_s"],
        far=e["scale_up_optics_w_per_gbyte_per_s"],
        adapter=e["adapter_w_per_gbyte_per_s"],
        port=e["switch_w_per_gbyte_per_s"],
    )
    return _least(table, devices, network, economics, rates)


@dataclass(frozen=True)
class NetworkDraw:
    """What a device's share of a network draws beside the device, for so many devices."""

    devices: int
    network: Network
    economics: Economics

    def of(self, table: ArchitectureTable) -> Floats:
        """Power in W, (A,)."""
        return network_w(table, self.devices, self.network, self.economics)


@dataclass(frozen=True)
class _PerGbyte:
    """Figures per GB/s: a level of switches of direct links, their cables, what optics beyond a rack add; adapters,
    ports of network switches, links to and between them."""

    switch: float = 0.0
    cable: float = 0.0
    far: float = 0.0
    adapter: float = 0.0
    port: float = 0.0
    link: float = 0.0


def _least(
    table: ArchitectureTable, devices: int, network: Network, economics: Economics, rates: _PerGbyte
) -> Floats:
    each = [_Share(table, devices, one, economics, rates).total() for one in network.any_of or (network,)]
    least: Floats = np.min(each, axis=0)
    return least


@dataclass(frozen=True)
class _Share:
    table: ArchitectureTable
    devices: int
    network: Network
    economics: Economics
    rates: _PerGbyte

    def total(self) -> Floats:
        """Tier by tier as far as the devices reach, (A,)."""
        total, inside, adapters, levels = np.zeros(len(self.table)), 1, False, 0
        for tier in self.network.tiers:
            if self.devices > inside and _bought(tier):
                if tier.topology is Topology.DRAGONFLY:
                    through = self._between_groups(adapters=adapters)
                elif tier.medium is Medium.DIRECT:
                    through = self._direct(tier, inside)
                else:
                    through, levels = self._tree(tier, levels)
                total = total + self._bandwidth(tier) / _GB * through
            adapters |= tier.medium is Medium.ADAPTER
            inside = tier.devices or self.devices
        return total

    def _direct(self, tier: Tier, inside: int) -> float:
        """Per GB/s of direct links: switches have ports below and above on every level but the last."""
        r, rack = self.rates, self.economics["rack_devices"]
        reach = min(tier.devices or self.devices, self.devices)
        if tier.topology not in _SWITCHED:
            return r.cable + r.far * _beyond(tier, inside, reach, rack)
        levels = _levels(self.economics["scale_up_ports"], reach)
        # Within a rack a device's links are of copper; beyond it those to the upper levels are not.
        return (2 * levels - 1) * r.switch + r.cable + r.far * (levels if reach > rack else 0)

    def _between_groups(self, *, adapters: bool) -> float:
        """Per GB/s between groups of a dragonfly: ports and optics, and adapters where no tier has any yet."""
        r = self.rates
        return (0.0 if adapters else r.adapter) + r.port + r.link

    def _tree(self, tier: Tier, below: int) -> tuple[float, int]:
        """Per GB/s of an adapter with its share of a fat tree, what is above the first level maybe thinner; its levels.

        Of a tree that has levels `below` already, what comes on top of them.
        """
        r, reach = self.rates, min(tier.devices or self.devices, self.devices)
        levels = _levels(self.economics["switch_ports"], reach / self.network.scale_up_devices)
        thinned = max(levels - max(below, 1), 0) / tier.oversubscription
        above = 2 * thinned * r.port + thinned * r.link
        return (above if below else r.adapter + r.port + r.link + above), max(levels, below)

    def _bandwidth(self, tier: Tier) -> Floats:
        own = tier.bandwidth_bytes_per_s
        links = np.asarray(self.table["link_bandwidth_bytes_per_s"], dtype=np.float64)
        return links if own is None else np.full(len(self.table), own)


def _levels(ports: float, ends: float) -> int:
    """Levels of switches with so many ports that join so many ends: the first reaches as many, each other half."""
    levels, reached = 1, ports
    while reached < ends:
        levels, reached = levels + 1, reached * ports / 2.0
    return levels


def _beyond(tier: Tier, inside: int, reach: int, rack: float) -> float:
    """Share of a device's links that leave its rack where neighbours are wired to each other.

    Of a torus in D dimensions a cubic block of n members has one in n^(1/D) at its faces (TPU v4: 96 of 384, Jouppi et
    al., ISCA 2023); all others lead there where everyone is joined to everyone.
    """
    if reach <= rack:
        return 0.0
    if tier.topology in (Topology.RING, Topology.TORUS):
        return float((rack / inside) ** (-1.0 / max(1, len(tier.dims))))
    return 1.0 - rack / reach


def _bought(tier: Tier) -> bool:
    """Whether a tier costs anything of its own: paths through the host are in its price."""
    return tier.medium is not Medium.HOST and tier.topology is not Topology.SHARED
