"""The fitted constants of links, by medium (direct, host, adapter) and family, and collectives over such links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collective_times import link_s
from phaze.cost.kernels.fitted_constants import law_of
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import Algorithm, LinkLaw, Medium, Tier
from phaze.workload.work import Link

LIBRARY = (Algorithm.RING, Algorithm.PAIRWISE, Algorithm.IN_NETWORK)
"""Algorithms that communication libraries choose from among the devices of one server."""


def law_file(medium: Medium) -> str:
    """The file with the constants of a medium."""
    return f"media/{medium}.yaml"


def with_laws(network: Network, family: str) -> Network:
    """The network with the constants of a family on every tier whose file says no more than a latency."""
    return network.model_copy(update={"tiers": tuple(_with_law(tier, family) for tier in network.tiers)})


def _with_law(tier: Tier, family: str) -> Tier:
    law = law_of(LinkLaw, law_file(tier.medium), family)
    plain = tier.law == LinkLaw(step_s=tier.law.step_s)
    return tier if law is None or not plain else tier.changed(law=law)


def switched_s(links: Sequence[Link], bandwidth_bytes_per_s: float, family: str) -> Floats:
    """Seconds of each collective among chips on one switch, launch included."""
    network = Network(name="switch", tiers=(Tier(devices=None),), algorithms=LIBRARY)
    fitted = with_laws(network, family)
    return np.array([float(link_s(link, fitted, bandwidth_bytes_per_s)) for link in links])
