"""The network between accelerators: tiers from the inside out, such as scale-up domains and a scale-out fabric."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.hardware.network_file import read_network
from phaze.hardware.tiers import Algorithm, LinkLaw, Tier


class Network(BaseModel):
    """Tiers, each of larger domains than the one inside; `scale_up` is the first of them, `scale_out` the last.

    `algorithms`: what the communication library chooses from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    tiers: tuple[Tier, ...]
    algorithms: tuple[Algorithm, ...] = tuple(Algorithm)

    @property
    def source(self) -> str:
        """Where the figures come from, tier by tier."""
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

    def ideal(self) -> Network:
        """The same domains on switches as fast as the chips' own links, without latency."""
        tiers = tuple(Tier(devices=tier.devices) for tier in self.tiers)
        return self.model_copy(update={"tiers": tiers})

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
