"""Network of a design as axes of its space: scale-up domains, their topology, adapters, how thin the tree above is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InputError
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import Tier, Topology
from phaze.quantity import si_value
from phaze.ranges import Members, Stretch

MOST_NETWORKS = 512
"""Networks of a space at most: each may need a search of its own."""

OFFERED = (Topology.SWITCH, Topology.TORUS, Topology.RING, Topology.FULLY_CONNECTED)
"""Topologies of a scale-up domain that a number of devices is enough to build."""

_SHORTEST = 4  # members of a ring of a torus: two or three are wired as well without a dimension of their own
_DIMENSIONS = 3


class NetworkFile(BaseModel):
    """Axes of the network in a space file; what is left out is that of the network the space is searched on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale_up_devices: Annotated[tuple[Members, ...], Field(min_length=1)] | None = None
    scale_up_topology: Annotated[tuple[Topology, ...], Field(min_length=1)] | None = None
    scale_out_bandwidth: Annotated[tuple[object, ...], Field(min_length=1)] | None = None
    oversubscription: Annotated[tuple[Stretch, ...], Field(min_length=1)] | None = None


NetworkValue = int | float | str


@dataclass(frozen=True)
class SpaceNetwork:
    """One network of a space: its values on the axes, in the order in which a search divides them, and the network."""

    values: Mapping[str, NetworkValue]
    network: Network


@dataclass(frozen=True)
class NetworkAxes:
    """Axes of the network of a space, each a field of `NetworkFile` with its values; the last varies fastest."""

    axes: Mapping[str, tuple[NetworkValue, ...]]

    def networks(self, base: Network, devices: int) -> tuple[SpaceNetwork, ...]:
        """Every network for so many devices, over a base that has what is no axis, each once.

        Domains of more devices than there are count as one of all; there adapters reach nothing, and their first value
        stands for all. Raises InputError where the base has no switched domains with a tier around them.
        """
        found: dict[tuple[NetworkValue, ...], SpaceNetwork] = {}
        for values in product(*self.axes.values()):
            told = dict(zip(self.axes, values, strict=True))
            size = min(int(told.get("scale_up_devices", base.scale_up_devices)), devices)
            if "scale_up_devices" in told:
                told["scale_up_devices"] = size
            if size >= devices:
                told |= {name: self.axes[name][0] for name in _OUTER if name in told}
            key = tuple(told.values())
            if key not in found:
                found[key] = SpaceNetwork(told, _built(base, size, told))
        return tuple(found.values())


_OUTER = ("scale_out_bandwidth", "oversubscription")


def read_network_axes(file: NetworkFile, where: str) -> NetworkAxes:
    """The axes of a space file, checked. Raises InputError that names the axis and its value."""
    axes: dict[str, tuple[NetworkValue, ...]] = {}
    for name, given in file:
        if given is None:
            continue
        place = f"{where}.{name}"
        values: tuple[NetworkValue, ...] = tuple(
            _rate(value, f"{place}.{k}")
            if name == "scale_out_bandwidth"
            else _topology(value, f"{place}.{k}")
            if name == "scale_up_topology"
            else value
            for k, value in enumerate(given)
        )
        if len(set(values)) < len(values):
            raise InputError(f"{place}: a value is given twice")
        axes[name] = values
    if not axes:
        raise InputError(f"{where}: give one axis or more of {', '.join(NetworkFile.model_fields)}")
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_NETWORKS:
        raise InputError(f"{where}: {count} networks are more than the {MOST_NETWORKS} that can be searched")
    # Adapters divide first: they differ most in power and price.
    order = sorted(axes, key=lambda name: (name not in _OUTER, list(NetworkFile.model_fields).index(name)))
    return NetworkAxes({name: axes[name] for name in order})


def _rate(value: object, where: str) -> float:
    number = si_value(value, "byte/s", where)
    if not 1 <= number <= 1e18:
        raise InputError(f"{where}: {value!r} is not from 1B/s to 1e18B/s")
    return number


def _topology(value: Topology, where: str) -> str:
    if value not in OFFERED:
        raise InputError(f"{where}: {value.value} is not one of {', '.join(OFFERED)}")
    return value.value


def _built(base: Network, size: int, values: Mapping[str, NetworkValue]) -> Network:
    """The base with domains of some size, and what else the values say."""
    inner, *middle, outer = base.in_domains(size).tiers
    topology = Topology(str(values.get("scale_up_topology", inner.topology)))
    inner = inner.model_copy(update={"topology": topology, "dims": torus_of(size, topology)})
    if "scale_out_bandwidth" in values:
        outer = outer.changed(bandwidth_bytes_per_s=float(values["scale_out_bandwidth"]))
    if "oversubscription" in values:
        thin = float(values["oversubscription"])
        outer = outer.model_copy(update={"topology": Topology.FAT_TREE, "oversubscription": thin})
    tiers = (inner, *middle, outer)
    return base.model_copy(update={"name": _name(inner, outer), "tiers": tiers})


def _name(inner: Tier, outer: Tier) -> str:
    wide = outer.bandwidth_bytes_per_s
    name = f"{inner.topology}-{inner.devices}"
    name += "" if wide is None else f"-{wide / 1e9:g}GBps"
    return name if outer.oversubscription == 1.0 else f"{name}-thin-{outer.oversubscription:g}"


def torus_of(members: int, topology: Topology = Topology.TORUS) -> tuple[int, ...]:
    """Extents of the torus of so many members that is nearest a cube, longest first; none for other topologies.

    As many dimensions, up to three, as leave rings of four or more; one ring where no such division exists.
    """
    if topology is not Topology.TORUS:
        return ()
    for dimensions in range(_DIMENSIONS, 1, -1):
        found = [dims for dims in _divisions(members, dimensions, members) if dims[-1] >= _SHORTEST]
        if found:
            return min(found, key=lambda dims: dims[0] / dims[-1])
    return (members,)


def _divisions(members: int, dimensions: int, most: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many factors, falling."""
    if dimensions == 1:
        if members <= most:
            yield (members,)
        return
    for first in range(min(members, most), 0, -1):
        if members % first == 0:
            for rest in _divisions(members // first, dimensions - 1, first):
                yield (first, *rest)
