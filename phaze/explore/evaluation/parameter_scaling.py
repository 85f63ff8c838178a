"""The physical parameters of the model that can be scaled: what each means in terms of fields.

Sensitivity asks what 10 % more of one buys; the robust answer asks what becomes of the ranking when all are
uncertain at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, hbm_capacity_bytes

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Scaled:
    """A parameter of the chip: `columns(table, factor)` are the fields that change where it is scaled by (A,)."""

    description: str
    columns: Callable[[ArchitectureTable, Floats], Columns]


def _field(name: str) -> Callable[[ArchitectureTable, Floats], Columns]:
    return lambda table, factor: {name: table[name] * factor}


def _mac_rate(table: ArchitectureTable, factor: Floats) -> Columns:
    """A faster clock, at which vector cores and the global buffer do as much per second as before."""
    return {
        "clock_hz": table["clock_hz"] * factor,
        "vector_core_alus": table["vector_core_alus"] / factor,
        "global_buffer_bytes_per_cycle": table["global_buffer_bytes_per_cycle"] / factor,
    }


CHIP: Mapping[str, Scaled] = {
    "clock_hz": Scaled("clock: tensor cores, vector cores and global buffer together", _field("clock_hz")),
    "mac_rate": Scaled("rate of the tensor cores; vector cores and global buffer held", _mac_rate),
    "vector_rate": Scaled("rate of the vector cores", _field("vector_core_alus")),
    "hbm_bandwidth_bytes_per_s": Scaled(
        "HBM bandwidth",
        lambda table, factor: {"hbm_bandwidth_bytes_per_s": hbm_bandwidth_bytes_per_s(table) * factor},
    ),
    "hbm_capacity_bytes": Scaled(
        "HBM capacity", lambda table, factor: {"hbm_capacity_bytes": hbm_capacity_bytes(table) * factor}
    ),
    "global_buffer_bandwidth": Scaled(
        "bandwidth between global buffer and cores", _field("global_buffer_bytes_per_cycle")
    ),
    "global_buffer_bytes": Scaled("size of the global buffer", _field("global_buffer_bytes")),
    "link_bandwidth_bytes_per_s": Scaled(
        "bandwidth of the chip's links", _field("link_bandwidth_bytes_per_s")
    ),
}
"""Parameters of the chip by name; those that are fields carry the field's name."""

NETWORK: Mapping[str, str] = {
    "scale_up_bandwidth_bytes_per_s": "bandwidth inside a scale-up domain that has links of its own",
    "scale_out_bandwidth_bytes_per_s": "bandwidth between scale-up domains",
    "scale_up_latency_s": "latency inside a scale-up domain",
    "scale_out_latency_s": "latency between scale-up domains",
}
"""Parameters of the network: its fields."""


def scaled_chips(table: ArchitectureTable, factors: Mapping[str, Floats]) -> ArchitectureTable:
    """The architectures with parameters of `CHIP` scaled, one factor per architecture each."""
    for name, factor in factors.items():
        table = table.replace(**CHIP[name].columns(table, factor))
    return table


def network_parameters(network: Network) -> dict[str, float]:
    """The parameters that a network has, with their values."""
    values = {name: getattr(network, name) for name in NETWORK}
    return {name: value for name, value in values.items() if value is not None}


def scaled_network(network: Network, factors: Mapping[str, float]) -> Network:
    """The network with fields of `NETWORK` scaled, as far as it has them."""
    return network.changed(
        **{name: value * factors.get(name, 1.0) for name, value in network_parameters(network).items()}
    )
