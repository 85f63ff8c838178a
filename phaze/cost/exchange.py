"""What every algorithm of a collective takes on the tiers of a network, and which is the fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.cost.algorithms import runs, terms
from phaze.cost.group import Level, levels
from phaze.cost.topology import possible, share
from phaze.hardware.network import Network
from phaze.hardware.tiers import Algorithm
from phaze.workload.work import Collective

Floats = NDArray[np.float64]


def algorithms_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    network: Network,
    link_bandwidth_bytes_per_s: ArrayLike,
    size: int,
    stride: int = 1,
    copies: int = 1,
) -> dict[Algorithm, Floats]:
    """Seconds of every algorithm that the library has and the network runs, by `LinkLaw`.

    Payloads are broadcast against the bandwidths of the chips' own links; nobody to exchange with takes no time.
    `copies`: rows of an all-to-all that are the same and cross a tier as one (DeepEP's kernels, arXiv 2412.19437,
    section 3.2.2).
    """
    payload, links = np.broadcast_arrays(
        np.asarray(payload_bytes, dtype=np.float64), np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    )
    group = levels(network, size, stride)
    if not group:
        return {runs(collective)[0]: np.zeros(payload.shape)}
    exchange = _Exchange(collective, payload, links, group, size, network.algorithms, copies)
    return {algorithm: exchange.seconds(algorithm) for algorithm in exchange.algorithms()}


def fastest_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    network: Network,
    link_bandwidth_bytes_per_s: ArrayLike,
    size: int,
    stride: int = 1,
    copies: int = 1,
) -> Floats:
    """Seconds of the fastest algorithm, for each payload and bandwidth."""
    found = algorithms_s(collective, payload_bytes, network, link_bandwidth_bytes_per_s, size, stride, copies)
    seconds: Floats = np.min(list(found.values()), axis=0)
    return seconds


def transfer_s(sent_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Bytes over bandwidth; a chip without links never finishes, unless there is nothing to send."""
    sent = np.asarray(sent_bytes, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sent > 0, sent / np.asarray(bandwidth_bytes_per_s, dtype=np.float64), 0.0)


def pace(level: Level, collective: Collective, links: Floats) -> Floats:
    """Bandwidth that every device of a group has on a tier, for chips with links of their own."""
    own = level.tier.bandwidth_bytes_per_s
    return (links if own is None else np.full(links.shape, own)) * share(level, collective)


@dataclass(frozen=True)
class _Exchange:
    """One collective of a group of `size`; payloads and links of one shape."""

    collective: Collective
    payload: Floats
    links: Floats
    group: tuple[Level, ...]
    size: int
    menu: tuple[Algorithm, ...]
    copies: int = 1

    def algorithms(self) -> list[Algorithm]:
        """Those that the library has, and that run on all tiers and serve the size of the group."""
        return [a for a in runs(self.collective) if a in self.menu and self._applies(a)]

    def _applies(self, algorithm: Algorithm) -> bool:
        one = len(self.group) == 1
        if not all(possible(level, self.collective, algorithm) for level in self.group):
            return False
        if algorithm is Algorithm.HIERARCHICAL:
            return not one and all(level.members == round(level.members) for level in self.group)
        if algorithm is Algorithm.HALVING_DOUBLING:
            return one and self.size.bit_count() == 1
        return one or algorithm is not Algorithm.IN_NETWORK

    def seconds(self, algorithm: Algorithm) -> Floats:
        """What an algorithm takes, launch included."""
        launch_s = max(level.tier.law.launch_s for level in self.group)
        if algorithm is Algorithm.HIERARCHICAL:
            return launch_s + self._tier_by_tier_s()
        return launch_s + self._at_once_s(algorithm)

    def _at_once_s(self, algorithm: Algorithm) -> Floats:
        """Through all tiers at once: the slowest of them sets the pace."""
        wire, ramp, steps_s = np.zeros(self.payload.shape), np.zeros(self.payload.shape), 0.0
        straight = self.collective is Collective.SEND_RECV  # into the receiver's buffer, not chunk by chunk
        reducing = algorithm is Algorithm.IN_NETWORK
        for position, level in enumerate(self.group):
            law, work = level.tier.law, terms(self.collective, algorithm, level, self.size, self.copies)
            moved = work.sent * (1 + law.epsilon * max(work.senders - law.fan_in, 0.0))
            if position == 0:  # a device reduces and copies once, whatever the tiers
                moved += law.gamma * work.reduced + law.delta * work.copied
            efficiency = law.in_network if reducing else law.efficiency
            seconds = transfer_s(moved * self.payload, efficiency * pace(level, self.collective, self.links))
            wire = np.maximum(wire, seconds)
            if law.ramp_s > 0 and not straight:
                ramp = np.maximum(ramp, np.sqrt(law.ramp_s * seconds))
            steps_s += work.steps * law.step_s + (law.in_network_s if reducing else 0.0)
        return wire + ramp + steps_s

    def _tier_by_tier_s(self) -> Floats:
        """Scatter from the inside out and gather back, the fastest way on each tier, what is left of the vector."""
        total = np.zeros(self.payload.shape)
        reduces = self.collective is Collective.ALL_REDUCE
        for position, level in enumerate(self.group):
            outermost = position == len(self.group) - 1
            alone = replace(level, domains=1, below=1.0)
            part = replace(
                self,
                collective=self.collective if outermost or not reduces else Collective.REDUCE_SCATTER,
                payload=self.payload / level.below,
                group=(alone,),
                size=round(level.members),
            )
            seconds = np.min([part._at_once_s(a) for a in part.algorithms()], axis=0)
            total += seconds if outermost or not reduces else 2 * seconds
        return total
