"""Seconds of collectives and transfers: every algorithm on the tiers of a network, and the fastest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats
from phaze.cost.collectives.collective_algorithms import (
    Level,
    algorithm_possible,
    bandwidth_share,
    levels,
    runs,
    sweeps,
    terms,
)
from phaze.cost.collectives.collective_law import Law, sum_of
from phaze.cost.collectives.collective_synthesis import Stage, Way, synthesized, unbeaten
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import NAMED, Algorithm, Medium
from phaze.workload.routed_copies import NO_COPIES, Copies
from phaze.workload.work import Collective, Link


def laws(
    collective: Collective,
    network: Network,
    link_bandwidth_bytes_per_s: ArrayLike,
    size: int,
    stride: int = 1,
    copies: Copies = NO_COPIES,
) -> dict[Algorithm, list[Law]]:
    """The ways in which every algorithm that the library has and the network runs can go, by `LinkLaw`.

    The hierarchical one chooses a way on every tier. Nobody to exchange with takes no time. `copies`: rows of an
    all-to-all that are the same and cross a tier as one (DeepEP's kernels, arXiv 2412.19437, section 3.2.2). Where any
    of several networks may be taken: the ways on each of them.
    """
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    return _laws(collective, network, (links.shape, links.tobytes()), size, stride, copies)


@lru_cache(maxsize=256)
def _laws(
    collective: Collective,
    network: Network,
    bandwidths: tuple[tuple[int, ...], bytes],
    size: int,
    stride: int,
    copies: Copies,
) -> dict[Algorithm, list[Law]]:
    """The same, kept: many payloads of one group follow the same laws."""
    shape, each = bandwidths
    links = np.frombuffer(each).reshape(shape)
    if network.any_of:
        return _of_any([laws(collective, one, links, size, stride, copies) for one in network.any_of])
    group = levels(network, size, stride)
    if not group:
        return {runs(collective)[0]: [Law(0.0, np.zeros(links.shape), np.zeros(links.shape))]}
    exchange = _Exchange(collective, links, group, size, network.algorithms, copies)
    return {algorithm: exchange.laws(algorithm) for algorithm in exchange.algorithms()}


def ways(
    collective: Collective,
    network: Network,
    link_bandwidth_bytes_per_s: ArrayLike,
    size: int,
    stride: int = 1,
) -> list[Way]:
    """The ways in stages of a synthesized collective on a network, those alone that are the fastest for some payload.

    None where a tier has no whole number of the group's members.
    """
    links, group = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64), levels(network, size, stride)
    exchange = _Exchange(collective, links, group, size, network.algorithms)
    whole = group and all(algorithm_possible(one, collective, Algorithm.SYNTHESIZED) for one in group)
    return exchange.ways() if whole and Algorithm.SYNTHESIZED in runs(collective) else []


def _of_any(each: Sequence[dict[Algorithm, list[Law]]]) -> dict[Algorithm, list[Law]]:
    """Ways of some networks together."""
    found: dict[Algorithm, list[Law]] = {}
    for ways in each:
        for algorithm, some in ways.items():
            found.setdefault(algorithm, []).extend(some)
    return found


def algorithms_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    network: Network,
    link_bandwidth_bytes_per_s: ArrayLike,
    size: int,
    stride: int = 1,
    copies: Copies = NO_COPIES,
) -> dict[Algorithm, Floats]:
    """Seconds of every algorithm, as of `laws`; payloads are broadcast against the bandwidths of the chips' links."""
    payload = np.asarray(payload_bytes, dtype=np.float64)
    found = laws(collective, network, link_bandwidth_bytes_per_s, size, stride, copies)
    return {
        algorithm: np.min([law.seconds(payload) for law in ways], axis=0) for algorithm, ways in found.items()
    }


def fastest_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    network: Network,
    link_bandwidth_bytes_per_s: ArrayLike,
    size: int,
    stride: int = 1,
    copies: Copies = NO_COPIES,
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
    return (links if own is None else np.full(links.shape, own)) * bandwidth_share(level, collective)


@dataclass(frozen=True)
class _Exchange:
    """One collective of a group of `size` on chips with links of some bandwidths."""

    collective: Collective
    links: Floats
    group: tuple[Level, ...]
    size: int
    menu: tuple[Algorithm, ...]
    copies: Copies = NO_COPIES

    def algorithms(self) -> list[Algorithm]:
        """Algorithms that the library has, and that run on all tiers and serve the size of the group."""
        return [a for a in runs(self.collective) if a in self.menu and self._applies(a)]

    def _applies(self, algorithm: Algorithm) -> bool:
        one = len(self.group) == 1
        if not all(algorithm_possible(level, self.collective, algorithm) for level in self.group):
            return False
        if algorithm is Algorithm.HIERARCHICAL:
            return not one and all(level.members == round(level.members) for level in self.group)
        if algorithm is Algorithm.NODE_TREE:
            return self.group[-1].tier.medium is Medium.ADAPTER
        if algorithm is Algorithm.HALVING_DOUBLING:
            return one and self.size.bit_count() == 1
        return one or algorithm is not Algorithm.IN_NETWORK

    def laws(self, algorithm: Algorithm) -> list[Law]:
        """Time laws of an algorithm, launch included."""
        if algorithm is Algorithm.SYNTHESIZED:
            return [way.law for way in self.ways()]
        launch_s = max(level.tier.law.launch_s for level in self.group)
        found = self._tier_by_tier() if algorithm is Algorithm.HIERARCHICAL else [self._at_once(algorithm)]
        return [replace(way, fixed_s=launch_s + way.fixed_s) for way in found]

    def ways(self) -> list[Way]:
        """Ways in stages, and by one algorithm through all tiers, that are the fastest for some payload."""
        launch_s = max(level.tier.law.launch_s for level in self.group)
        nothing = Law(launch_s, np.zeros(self.links.shape), np.zeros(self.links.shape))
        menus = [self._part(position).algorithms() for position in range(len(self.group))]
        found, last = synthesized(self.group, menus.__getitem__, self._stage, nothing), len(self.group) - 1
        for algorithm in self.algorithms():
            if algorithm not in (Algorithm.HIERARCHICAL, Algorithm.SYNTHESIZED):
                whole = Way((), nothing).then(Stage(self.size, 0, last, algorithm), self._at_once(algorithm))
                found = unbeaten(found, whole)
        return found

    def _stage(self, stage: Stage, parts: int) -> list[Law]:
        """Laws of a stage on one of so many parts of the payload, there and in an all-reduce back."""
        if stage.algorithm is not Algorithm.SYNTHESIZED:
            return [self._whole_tier(stage.first, stage.algorithm)]
        inner, outer = self.group[stage.first], self.group[stage.last]
        levels = tuple(
            replace(one, domains=one.domains // outer.domains, below=one.below / inner.below)
            for one in self.group[stage.first : stage.last + 1]
        )
        if stage.first == stage.last:
            levels = (replace(inner, domains=1, below=1.0, members=float(stage.fan_in)),)
        turns = self.collective is Collective.ALL_REDUCE
        each = (Collective.REDUCE_SCATTER, Collective.ALL_GATHER) if turns else (self.collective,)
        laws = [
            replace(self, collective=one, group=levels, size=stage.fan_in)._at_once(stage.algorithm)
            for one in each
        ]
        return [sum_of(laws).of_part(parts, 1)]

    def _at_once(self, algorithm: Algorithm) -> Law:
        """Law of an algorithm through all tiers at once: the slowest of them sets the pace.

        seconds = sum of steps x step + max of x + max of sqrt(ramp x), with x the bytes sent, reduced (gamma), copied
        (delta) and crowded (epsilon) over the reachable bandwidth of a tier (docs/decisions/0019-network.md).
        """
        wire, ramp, steps_s = np.zeros(self.links.shape), np.zeros(self.links.shape), 0.0
        straight = self.collective is Collective.SEND_RECV  # into the receiver's buffer, not chunk by chunk
        reducing = algorithm is Algorithm.IN_NETWORK
        for position, level in enumerate(self.group):
            law, work = level.tier.law, terms(self.collective, algorithm, level, self.size, self.copies)
            moved = work.sent * (1 + law.epsilon * max(work.senders - law.fan_in, 0.0))
            if position == 0:  # a device reduces and copies once, whatever the tiers
                moved += law.gamma * work.reduced + law.delta * work.copied + law.memory * work.touched
            efficiency = law.in_network if reducing else law.efficiency
            seconds = transfer_s(moved, efficiency * pace(level, self.collective, self.links))
            wire = np.maximum(wire, seconds)
            if law.ramp_s > 0 and not straight:
                ramp = np.maximum(ramp, np.sqrt(law.ramp_s * seconds))
            steps_s += work.steps * law.step_s + (law.in_network_s if reducing else 0.0)
        return Law(steps_s, wire, ramp)

    def _tier_by_tier(self) -> list[Law]:
        """Scatter from the inside out and gather back, any way on each tier, what is left of the vector."""
        found: list[Law] = []
        for ways in product(*(list(self._on(position)) for position in range(len(self.group)))):
            found.append(sum_of(ways))
        return found

    def _on(self, position: int) -> Iterator[Law]:
        """Time laws that a tier may follow for it."""
        for algorithm in self._part(position).algorithms():
            yield self._whole_tier(position, algorithm)

    def _part(self, position: int) -> _Exchange:
        """What the members of one domain of a tier exchange, by any algorithm but stages."""
        level, turns = self.group[position], self._turns(position)
        return replace(
            self,
            collective=Collective.REDUCE_SCATTER if turns else self.collective,
            group=(replace(level, domains=1, below=1.0),),
            size=round(level.members),
            menu=tuple(one for one in self.menu if one in NAMED),
        )

    def _turns(self, position: int) -> bool:
        """Whether a tier is passed there and back."""
        return self.collective is Collective.ALL_REDUCE and position < len(self.group) - 1

    def _whole_tier(self, position: int, algorithm: Algorithm) -> Law:
        """Law of all members of a tier by an algorithm, there and back."""
        below, times = self.group[position].below, 2 if self._turns(position) else 1
        return self._part(position)._at_once(algorithm).of_part(below, times)


def tier(network: Network, position: int, link_bandwidth_bytes_per_s: ArrayLike) -> tuple[Floats, float]:
    """Bandwidth (one per chip) that is reached and latency in s on one tier, counted from the inside."""
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    spanned = network.tiers[position]
    own = spanned.bandwidth_bytes_per_s
    reached = spanned.law.efficiency / spanned.oversubscription
    return (links if own is None else np.full(links.shape, own)) * reached, spanned.law.step_s


def wire_bytes(collective: Collective, payload_bytes: ArrayLike, devices: ArrayLike) -> Floats:
    """Bytes that each device sends (and receives), without help from the switches.

    All-reduce: 2 (n - 1) / n V for a payload of V bytes on n devices; reduce-scatter, all-gather and all-to-all: half
    of that (Thakur et al. 2005, docs/reference/formulas/network.md).
    """
    count = np.asarray(devices, dtype=np.float64)
    whole = np.asarray(payload_bytes, dtype=np.float64)
    if collective is Collective.SEND_RECV:
        return whole
    sent: Floats = sweeps(collective) * (count - 1) / count * whole
    return sent


def collective_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    devices: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
    latency_s: ArrayLike,
) -> Floats:
    """Seconds of a ring collective on one tier: bytes on the wire over bandwidth plus one latency per step.

    All-reduce of V bytes on n devices: 2 (n - 1) / n V / bandwidth + 2 (n - 1) latency (Thakur et al. 2005,
    docs/reference/formulas/network.md).
    """
    steps = sweeps(collective) * (np.asarray(devices, dtype=np.float64) - 1)
    sent = wire_bytes(collective, payload_bytes, devices)
    return transfer_s(sent, bandwidth_bytes_per_s) + steps * np.asarray(latency_s, dtype=np.float64)


def least_link_s(link: Link, network: Network, link_bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Seconds that no algorithm beats: what must cross each tier over its bandwidth, no latency."""
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    if network.any_of:
        return np.asarray(np.min([least_link_s(link, one, links) for one in network.any_of], axis=0))
    least, size = np.zeros(links.shape), link.group.size
    for level in levels(network, size, link.group.stride):
        if link.collective is Collective.ALL_TO_ALL:
            copies, domains = link.copies if network.merges_copies else NO_COPIES, size / level.below
            crossing = (domains - 1) * copies.reach(domains) / copies.count
        elif link.collective is Collective.SEND_RECV:
            crossing = float(level.domains == 1)
        else:
            crossing = sweeps(link.collective) * (level.members - 1) / level.members / level.below
            reduced = link.collective is Collective.ALL_REDUCE and level.tier.in_network
            crossing = min(crossing, 1 / level.below) if reduced else crossing
        sent = crossing * link.payload_bytes
        least = np.maximum(least, transfer_s(sent, pace(level, link.collective, links)))
    return least


def link_s(link: Link, network: Network, link_bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Seconds of an operator's collective by the fastest algorithm, or by one kernel where the network has one."""
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    if network.any_of:
        return np.asarray(np.min([link_s(link, one, links) for one in network.any_of], axis=0))
    group, copies = link.group, link.copies if network.merges_copies else NO_COPIES
    kind, payload = link.collective, link.payload_bytes
    seconds = fastest_s(kind, payload, network, links, group.size, group.stride, copies)
    return np.minimum(seconds, _one_kernel_s(link, network, links))


def _one_kernel_s(link: Link, network: Network, links: Floats) -> Floats | float:
    """Seconds of an all-reduce by one kernel among neighbours on the innermost tier; infinite elsewhere."""
    law, count, inner = network.one_kernel, link.group.size, network.tiers[0]
    near = inner.medium is Medium.DIRECT and inner.holds(count * link.group.stride)
    if law is None or link.collective is not Collective.ALL_REDUCE or count < 2 or not near:
        return np.inf
    own = links if inner.bandwidth_bytes_per_s is None else inner.bandwidth_bytes_per_s
    sent = transfer_s((count - 1) * link.payload_bytes / law.efficiency, own)
    found: Floats = law.start_s + law.rank_s * count + sent
    return found


def link_wire_bytes(link: Link) -> float:
    """Bytes that each device sends (and receives) in an operator's collective."""
    return float(wire_bytes(link.collective, link.payload_bytes, link.group.size))


def send_s(payload_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike, latency_s: ArrayLike) -> Floats:
    """Seconds to send a tensor to one peer."""
    return transfer_s(payload_bytes, bandwidth_bytes_per_s) + np.asarray(latency_s, dtype=np.float64)
