"""Network files: version 1, a scale-up and a scale-out tier; version 2, any tiers with the constants of their links."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.tiers import Algorithm, LinkLaw, Medium, Tier, Topology
from phaze.quantity import si_value
from phaze.yaml_file import checked, read_yaml


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _OuterFile(_Record):
    bandwidth: object = None
    latency: object
    source: str


class _InnerFile(_OuterFile):
    devices: int


class _TwoTierFile(_Record):
    """Version 1; bandwidths and latencies are quantities or plain SI numbers."""

    schema_version: Literal[1]
    name: str
    scale_up: _InnerFile
    scale_out: _OuterFile


class _TierFile(_Record):
    topology: Topology
    devices: int | None
    medium: Medium = Medium.DIRECT
    bandwidth: object = None
    latency: object
    dims: tuple[int, ...] = ()
    links: tuple[tuple[int, int, int], ...] = ()
    oversubscription: float = 1.0
    in_network: bool = False
    launch: object = 0.0
    ramp: object = 0.0
    efficiency: float = 1.0
    gamma: float = 0.0
    delta: float = 0.0
    epsilon: float = 0.0
    fan_in: float = 1.0
    in_network_efficiency: float = 1.0
    in_network_start: object = 0.0
    source: str


class _TiersFile(_Record):
    schema_version: Literal[2]
    name: str
    algorithms: tuple[Algorithm, ...] = tuple(Algorithm)
    tiers: tuple[_TierFile, ...]


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
    return two.name, _two(two, str(path)), tuple(Algorithm)


def _two(file: _TwoTierFile, where: str) -> tuple[Tier, Tier]:
    """Tiers of version 1."""
    up, out = file.scale_up, file.scale_out
    _require(up.devices >= 1, f"{where}: scale_up.devices", up.devices, "a number of devices (1 or more)")
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
    for name, value in (("gamma", file.gamma), ("delta", file.delta), ("epsilon", file.epsilon)):
        _require(value >= 0, f"{where}.{name}", value, "0 or more")
    for name, value in (
        ("efficiency", file.efficiency),
        ("in_network_efficiency", file.in_network_efficiency),
    ):
        _require(0 < value <= 1, f"{where}.{name}", value, "a share above 0 and up to 1")
    _require(file.oversubscription >= 1, f"{where}.oversubscription", file.oversubscription, "1 or more")
    _check_shape(file, where)
    law = LinkLaw(
        launch_s=_time(file.launch, f"{where}.launch"),
        step_s=_time(file.latency, f"{where}.latency"),
        efficiency=file.efficiency,
        gamma=file.gamma,
        delta=file.delta,
        epsilon=file.epsilon,
        fan_in=file.fan_in,
        ramp_s=_time(file.ramp, f"{where}.ramp"),
        in_network=file.in_network_efficiency,
        in_network_s=_time(file.in_network_start, f"{where}.in_network_start"),
    )
    kept = {"topology", "devices", "medium", "dims", "links", "oversubscription", "in_network", "source"}
    wide = _bandwidth(file.bandwidth, f"{where}.bandwidth")
    return Tier(law=law, bandwidth_bytes_per_s=wide, **file.model_dump(include=kept))


def _check_shape(file: _TierFile, where: str) -> None:
    """Dimensions for a torus and links for a mesh, and only there."""
    torus, mesh = file.topology is Topology.TORUS, file.topology is Topology.MESH
    _require(bool(file.dims) == torus, f"{where}.dims", file.dims, "what only a torus has, and every torus")
    _require(bool(file.links) == mesh, f"{where}.links", file.links, "what only a mesh has, and every mesh")
    _require(all(extent >= 1 for extent in file.dims), f"{where}.dims", file.dims, "extents of 1 or more")
    for link in file.links:
        fine = min(link) >= 0 and link[0] != link[1] and link[2] >= 1
        _require(fine, f"{where}.links", link, "two different members, from 0, and a number of links")
    switched = file.topology in (Topology.SWITCH, Topology.FAT_TREE)
    _require(switched or not file.in_network, f"{where}.in_network", True, f"possible on a {file.topology}")
    _require(switched or file.devices is not None, f"{where}.devices", None, f"the size of a {file.topology}")


def _check_order(tiers: tuple[Tier, ...], where: str) -> None:
    """At least one tier, and domains that grow outwards by whole numbers of those inside."""
    _require(bool(tiers), f"{where}: tiers", [], "at least one tier")
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
        raise InputError(f"{where}: {value!r} is not {right}")


def _bandwidth(value: object, where: str) -> float | None:
    """None stays None: the chip's own links."""
    if value is None:
        return None
    number = si_value(value, "byte/s", where)
    _require(number > 0, where, value, "above 0")
    return number


def _time(value: object, where: str) -> float:
    number = si_value(value, "s", where)
    if number < 0:
        raise InputError(f"{where}: {value!r} is below 0")
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
        "links": [list(link) for link in tier.links],
        "oversubscription": tier.oversubscription,
        "in_network": tier.in_network,
        "launch": law.launch_s,
        "ramp": law.ramp_s,
        "efficiency": law.efficiency,
        "gamma": law.gamma,
        "delta": law.delta,
        "epsilon": law.epsilon,
        "fan_in": law.fan_in,
        "in_network_efficiency": law.in_network,
        "in_network_start": law.in_network_s,
        "source": tier.source,
    }
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in values.items()
        if defaults[key].is_required() or value not in (defaults[key].default, [])
    }
