"""The fitted constants of links, by medium (direct, host, adapter) and family, and collectives over such links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import link_s
from phaze.cost.kernels.expert_exchanges import ExchangeLaw
from phaze.cost.kernels.fitted_constants import NO_OWN, Constants, OwnConstants
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import Algorithm, LinkLaw, Medium, OneKernel, Tier
from phaze.workload.work import Link

REDUCTION = "one_kernel_reduction.yaml"
"""The file with the constants of all-reduces by one kernel."""
LIBRARY = (Algorithm.RING, Algorithm.PAIRWISE, Algorithm.IN_NETWORK)
"""Algorithms that communication libraries choose from among the devices of one server."""


def law_file(medium: Medium) -> str:
    """The file with the constants of a medium."""
    return f"media/{medium}.yaml"


def with_laws(network: Network, family: str, own: OwnConstants = NO_OWN) -> Network:
    """The network with the constants of a family, or `own` ones, on tiers whose file says no more than a latency."""
    constants = Constants(family, own)
    tiers = (_with_law(tier, constants) if is_plain(tier) else tier for tier in network.tiers)
    among = tuple(with_laws(one, family, own) for one in network.any_of)
    return network.model_copy(update={"tiers": tuple(tiers), "any_of": among})


def engine_links(network: Network, family: str, *, fitted: bool) -> Network:
    """The network as inference engines use it: rows for several experts of a device or server are sent there once.

    `fitted`: with constants of a family, and all-reduces by one kernel where they are faster.
    """
    known = {"merges_copies": True}
    if not fitted:
        return network.model_copy(update=known)
    law = Constants(family).law(ExchangeLaw, REDUCTION)
    one = None if law is None else OneKernel(law.launch_s, law.rank_s, law.efficiency)
    return with_laws(network, family).model_copy(update={"one_kernel": one, **known})


def is_plain(tier: Tier) -> bool:
    """Whether the file of a tier says no more than a latency."""
    return tier.law == LinkLaw(step_s=tier.law.step_s)


def _with_law(tier: Tier, constants: Constants) -> Tier:
    law = constants.law(LinkLaw, law_file(tier.medium))
    return tier if law is None else tier.changed(law=law)


def switched_s(links: Sequence[Link], bandwidth_bytes_per_s: float, family: str) -> Floats:
    """Seconds of each collective among chips on one switch, launch included."""
    network = Network(name="switch", tiers=(Tier(devices=None),), algorithms=LIBRARY)
    fitted = with_laws(network, family)
    return np.array([float(link_s(link, fitted, bandwidth_bytes_per_s)) for link in links])
