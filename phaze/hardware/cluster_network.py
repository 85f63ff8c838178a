"""The network between accelerators: tiers from the inside out (scale-up domains, scale-out), and its files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from phaze.errors import InputError
from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.hardware.network_tiers import NAMED, Algorithm, LinkLaw, Medium, OneKernel, Tier, Topology
from phaze.quantity import si_value
from phaze.ranges import Factor, Line, Members, Portion, Stretch
from phaze.text_file import shortened
from phaze.yaml_file import checked, read_yaml


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _OuterFile(_Record):
    bandwidth: object = None
    latency: object
    source: str


class _InnerFile(_OuterFile):
    devices: Members


class _TwoTierFile(_Record):
    """Version 1; bandwidths and latencies are quantities or plain SI numbers."""

    schema_version: Literal[1]
    name: Line
    scale_up: _InnerFile
    scale_out: _OuterFile


_Member = Annotated[int, Field(ge=0, le=10**6)]
_Link = tuple[_Member, _Member, Members]


class _TierFile(_Record):
    topology: Topology
    devices: Members | None
    medium: Medium = Medium.DIRECT
    bandwidth: object = None
    latency: object
    dims: tuple[Members, ...] = ()
    cube: Annotated[int, Field(ge=2)] | None = None
    links: tuple[_Link, ...] = ()
    oversubscription: Stretch = 1.0
    in_network: bool = False
    adapters: Members | None = None
    launch: object = 0.0
    ramp: object = 0.0
    efficiency: Portion = 1.0
    gamma: Factor = 0.0
    delta: Factor = 0.0
    epsilon: Factor = 0.0
    fan_in: Factor = 1.0
    memory: Factor = 0.0
    in_network_efficiency: Portion = 1.0
    in_network_start: object = 0.0
    source: str


class _TiersFile(_Record):
    schema_version: Literal[2]
    name: Line
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = NAMED
    tiers: Annotated[tuple[_TierFile, ...], Field(min_length=1, max_length=16)]


def read_network(path: Path) -> tuple[str, tuple[Tier, ...], tuple[Algorithm, ...]]:
    """Name, tiers and algorithms of a network file. Raises InputError."""
    content = read_yaml(path)
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > 1:
        file = checked(_TiersFile, content, str(path))
        tiers = tuple(_tier(tier, f"{path}: tiers.{i}") for i, tier in enumerate(file.tiers))
        _check_order(tiers, str(path))
        return file.name, tiers, file.algorithms
    two = checked(_TwoTierFile, content, str(path))
    return two.name, _two(two, str(path)), NAMED


def _two(file: _TwoTierFile, where: str) -> tuple[Tier, Tier]:
    """Tiers of version 1."""
    up, out = file.scale_up, file.scale_out
    inner = _bandwidth(up.bandwidth, f"{where}: scale_up.bandwidth")
    _require(out.bandwidth is not None, f"{where}: scale_out.bandwidth", None, "a quantity")
    outer = _bandwidth(out.bandwidth, f"{where}: scale_out.bandwidth")
    up_s, out_s = (
        _time(up.latency, f"{where}: scale_up.latency"),
        _time(out.latency, f"{where}: scale_out.latency"),
    )
    return (
        Tier(devices=up.devices, bandwidth_bytes_per_s=inner, law=LinkLaw(step_s=up_s), source=up.source),
        Tier(
            devices=None,
            medium=Medium.ADAPTER,
            bandwidth_bytes_per_s=outer,
            law=LinkLaw(step_s=out_s),
            source=out.source,
        ),
    )


def _tier(file: _TierFile, where: str) -> Tier:
    """A tier of version 2."""
    _check_shape(file, where)
    law = LinkLaw(
        launch_s=_time(file.launch, f"{where}.launch"),
        step_s=_time(file.latency, f"{where}.latency"),
        efficiency=file.efficiency,
        gamma=file.gamma,
        delta=file.delta,
        epsilon=file.epsilon,
        fan_in=file.fan_in,
        memory=file.memory,
        ramp_s=_time(file.ramp, f"{where}.ramp"),
        in_network=file.in_network_efficiency,
        in_network_s=_time(file.in_network_start, f"{where}.in_network_start"),
    )
    kept = {"topology", "devices", "medium", "dims", "cube", "links", "oversubscription"}
    kept |= {"in_network", "adapters", "source"}
    wide = _bandwidth(file.bandwidth, f"{where}.bandwidth")
    return Tier(law=law, bandwidth_bytes_per_s=wide, **file.model_dump(include=kept))


def _check_shape(file: _TierFile, where: str) -> None:
    """Dimensions for a torus and links for a mesh, and only there."""
    torus, mesh = file.topology is Topology.TORUS, file.topology is Topology.MESH
    _require(bool(file.dims) == torus, f"{where}.dims", file.dims, "what only a torus has, and every torus")
    _require(bool(file.links) == mesh, f"{where}.links", file.links, "what only a mesh has, and every mesh")
    whole = torus and all(side % (file.cube or 1) == 0 for side in file.dims)
    _require(file.cube is None or whole, f"{where}.cube", file.cube, "a divisor of every extent of a torus")
    for link in file.links:
        _require(link[0] != link[1], f"{where}.links", link, "two different members and a number of links")
    switched = file.topology in (Topology.SWITCH, Topology.FAT_TREE)
    _require(switched or not file.in_network, f"{where}.in_network", True, f"possible on a {file.topology}")
    _require(switched or file.devices is not None, f"{where}.devices", None, f"the size of a {file.topology}")


def _check_order(tiers: tuple[Tier, ...], where: str) -> None:
    """Domains grow outwards by whole numbers of those inside."""
    inside = 1
    for i, tier in enumerate(tiers):
        here = f"{where}: tiers.{i}"
        if tier.devices is None:
            _require(
                i == len(tiers) - 1,
                f"{here}.devices",
                None,
                "right inside another tier; only the last has no end",
            )
            continue
        whole = tier.devices >= inside and tier.devices % inside == 0
        _require(whole, f"{here}.devices", tier.devices, f"a multiple of the {inside} devices inside")
        members = tier.devices // inside
        if tier.dims:
            _require(
                math.prod(tier.dims) == members, f"{here}.dims", tier.dims, f"a torus of {members} members"
            )
        inside = tier.devices


def _require(holds: bool, where: str, value: object, right: str) -> None:
    if not holds:
        raise InputError(f"{where}: {shortened(repr(value), 60)} is not {right}")


def _bandwidth(value: object, where: str) -> float | None:
    """None stays None: the chip's own links."""
    if value is None:
        return None
    number = si_value(value, "byte/s", where)
    _require(1 <= number <= 1e18, where, value, "from 1B/s to 1e18B/s")
    return number


def _time(value: object, where: str) -> float:
    number = si_value(value, "s", where)
    _require(0 <= number <= 1e6, where, value, "from 0s to 1e6s")
    return number


def network_yaml(name: str, tiers: tuple[Tier, ...], algorithms: tuple[Algorithm, ...]) -> str:
    """A network as the text of a version 2 file."""
    content = {
        "schema_version": 2,
        "name": name,
        "algorithms": [str(algorithm) for algorithm in algorithms],
        "tiers": [_fields(tier) for tier in tiers],
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


def _fields(tier: Tier) -> dict[str, object]:
    """A tier as fields of version 2, those at their defaults left out."""
    law, defaults = tier.law, _TierFile.model_fields
    values = {
        "topology": str(tier.topology),
        "devices": tier.devices,
        "medium": str(tier.medium),
        "bandwidth": tier.bandwidth_bytes_per_s,
        "latency": law.step_s,
        "dims": list(tier.dims),
        "cube": tier.cube,
        "links": [list(link) for link in tier.links],
        "oversubscription": tier.oversubscription,
        "in_network": tier.in_network,
        "adapters": tier.adapters,
        "launch": law.launch_s,
        "ramp": law.ramp_s,
        "efficiency": law.efficiency,
        "gamma": law.gamma,
        "delta": law.delta,
        "epsilon": law.epsilon,
        "fan_in": law.fan_in,
        "memory": law.memory,
        "in_network_efficiency": law.in_network,
        "in_network_start": law.in_network_s,
        "source": tier.source,
    }
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in values.items()
        if defaults[key].is_required() or value not in (defaults[key].default, [])
    }


class Network(BaseModel):
    """Tiers, each of larger domains than the one inside; `scale_up` is the first of them, `scale_out` the last.

    `algorithms`: what the communication library chooses from. `one_kernel`: all-reduces of an engine beside them.
    `merges_copies`: whether a row of an all-to-all that several members of a domain are sent goes there once and is
    handed on inside (DeepEP; DeepSeek-V3, arXiv 2412.19437, section 3.2.2).
    `any_of`: networks each of which an exchange may take as it likes, a bound on all of them; tiers are then those of
    the one with the largest innermost domains.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    tiers: tuple[Tier, ...]
    algorithms: tuple[Algorithm, ...] = NAMED
    one_kernel: OneKernel | None = Field(default=None, exclude=True)
    merges_copies: bool = Field(default=False, exclude=True)
    any_of: tuple[Network, ...] = Field(default=(), exclude=True)

    @property
    def source(self) -> str:
        """Source of the figures, tier by tier."""
        return "; ".join(tier.source for tier in self.tiers)

    @property
    def scale_up_devices(self) -> int:
        """Devices of the innermost domain."""
        inner = self.tiers[0].devices
        return 1 << 30 if inner is None else inner

    @property
    def scale_up_bandwidth_bytes_per_s(self) -> float | None:
        """Bandwidth of the innermost tier; None, the chip's own links."""
        return self.tiers[0].bandwidth_bytes_per_s

    @property
    def scale_up_latency_s(self) -> float:
        """Latency of a message inside the innermost domain."""
        return self.tiers[0].law.step_s

    @property
    def scale_out_bandwidth_bytes_per_s(self) -> float | None:
        """Bandwidth of the outermost tier."""
        return self.tiers[-1].bandwidth_bytes_per_s

    @property
    def scale_out_latency_s(self) -> float:
        """Latency of a message over the outermost tier."""
        return self.tiers[-1].law.step_s

    def spanned(self, span: int) -> int:
        """Position of the innermost tier whose domains have `span` devices; the outermost where none has."""
        return next((i for i, tier in enumerate(self.tiers) if tier.holds(span)), len(self.tiers) - 1)

    def alone(self, together: int) -> Network:
        """The network to a group of `together` devices of each node that nothing runs beside, as measured ones."""
        inside, tiers = 1, []
        for tier in self.tiers:
            tiers.append(tier.alone(inside, together))
            inside = tier.devices or inside
        return self.model_copy(update={"tiers": tuple(tiers)})

    def in_domains(self, devices: int) -> Network:
        """The network with scale-up domains of another size. Raises InputError where links are not switched."""
        inner, *outer = self.tiers
        if inner.topology not in (Topology.SWITCH, Topology.FAT_TREE) or not outer:
            raise InputError(
                f"network {self.name} has no domains of any size: its innermost tier of {len(self.tiers)} is a "
                f"{inner.topology}"
            )
        kept = [t for t in outer if t.devices is None or (t.devices > devices and t.devices % devices == 0)]
        tiers = (inner.model_copy(update={"devices": devices}), *(kept or outer[-1:]))
        return self.model_copy(update={"name": f"{self.name} in domains of {devices}", "tiers": tiers})

    def ideal(self) -> Network:
        """The same domains on switches as fast as the chips' own links, without latency."""
        tiers = tuple(Tier(devices=tier.devices) for tier in self.tiers)
        return self.model_copy(update={"tiers": tiers, "any_of": ()})

    def changed(
        self,
        scale_up_bandwidth_bytes_per_s: float | None = None,
        scale_up_latency_s: float | None = None,
        scale_out_bandwidth_bytes_per_s: float | None = None,
        scale_out_latency_s: float | None = None,
    ) -> Network:
        """The network with bandwidth or latency of its first or last tier replaced."""
        tiers = list(self.tiers)
        tiers[-1] = tiers[-1].changed(scale_out_bandwidth_bytes_per_s, scale_out_latency_s)
        tiers[0] = tiers[0].changed(scale_up_bandwidth_bytes_per_s, scale_up_latency_s)
        return self.model_copy(update={"tiers": tuple(tiers)})


def best_of(networks: Sequence[Network]) -> Network:
    """A network on which every exchange is as fast as on the fastest of some for it; one stays as it is.

    No plan is slower on it than on any of them, and it has every plan that one of them has.
    """
    if len(networks) == 1:
        return networks[0]
    widest = max(networks, key=lambda network: network.scale_up_devices)
    name = f"the best of {len(networks)} networks"
    return widest.model_copy(update={"name": name, "any_of": tuple(networks)})


def two_tiers(
    scale_up_devices: int,
    scale_up_bandwidth_bytes_per_s: float | None,
    scale_up_latency_s: float,
    scale_out_bandwidth_bytes_per_s: float,
    scale_out_latency_s: float,
) -> Network:
    """Switches inside domains and between them, bandwidth and latency alone."""
    inner = Tier(
        devices=scale_up_devices,
        bandwidth_bytes_per_s=scale_up_bandwidth_bytes_per_s,
        law=LinkLaw(step_s=scale_up_latency_s),
    )
    outer = Tier(
        devices=None,
        bandwidth_bytes_per_s=scale_out_bandwidth_bytes_per_s,
        law=LinkLaw(step_s=scale_out_latency_s),
    )
    return Network(name="two tiers", tiers=(inner, outer))


def list_networks() -> tuple[str, ...]:
    """Names of the packaged networks."""
    return tuple(packaged(Catalogue.NETWORK))


def load_network(name_or_path: str | Path = "default") -> Network:
    """A network by packaged name or file. Raises InputError."""
    path = find(Catalogue.NETWORK, name_or_path)
    name, tiers, algorithms = read_network(path)
    return Network(name=name, tiers=tiers, algorithms=algorithms)
