"""The network between accelerators: two tiers, scale-up inside a domain and scale-out between domains."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from phaze.errors import InputError
from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.quantity import si_value
from phaze.yaml_file import checked, read_yaml


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Network(_Record):
    """Two tiers. Bandwidths are per device and direction; None means the chip's own links."""

    schema_version: Literal[1] = 1
    name: str
    source: str = ""
    scale_up_devices: int
    scale_up_bandwidth_bytes_per_s: float | None = None
    scale_up_latency_s: float
    scale_out_bandwidth_bytes_per_s: float
    scale_out_latency_s: float


class _TierFile(_Record):
    bandwidth: object = None
    latency: object
    source: str


class _ScaleUpFile(_TierFile):
    devices: int


class _NetworkFile(_Record):
    """Shape of a network file; bandwidths and latencies are quantities or plain SI numbers."""

    schema_version: Literal[1]
    name: str
    scale_up: _ScaleUpFile
    scale_out: _TierFile


def list_networks() -> tuple[str, ...]:
    """Names of the packaged networks."""
    return tuple(packaged(Catalogue.NETWORK))


def load_network(name_or_path: str | Path = "default") -> Network:
    """A network by packaged name or file. Raises InputError."""
    path = find(Catalogue.NETWORK, name_or_path)
    file = checked(_NetworkFile, read_yaml(path), str(path))
    up, out = file.scale_up, file.scale_out
    if up.devices < 1:
        raise InputError(f"{path}: scale_up.devices: {up.devices} is not a number of devices (1 or more)")
    own_links = up.bandwidth is None
    return Network(
        name=file.name,
        source=f"scale-up: {up.source}; scale-out: {out.source}",
        scale_up_devices=up.devices,
        scale_up_bandwidth_bytes_per_s=None if own_links else _bandwidth(up, f"{path}: scale_up"),
        scale_up_latency_s=_latency(up, f"{path}: scale_up"),
        scale_out_bandwidth_bytes_per_s=_bandwidth(out, f"{path}: scale_out"),
        scale_out_latency_s=_latency(out, f"{path}: scale_out"),
    )


def _bandwidth(tier: _TierFile, where: str) -> float:
    value = si_value(tier.bandwidth, "byte/s", f"{where}.bandwidth")
    if value <= 0:
        raise InputError(f"{where}.bandwidth: {tier.bandwidth!r} is not above 0")
    return value


def _latency(tier: _TierFile, where: str) -> float:
    value = si_value(tier.latency, "s", f"{where}.latency")
    if value < 0:
        raise InputError(f"{where}.latency: {tier.latency!r} is below 0")
    return value
