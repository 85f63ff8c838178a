"""Algorithms of collectives in numbers: groups on the tiers of a network, steps, bytes, and shares of bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import Algorithm, Medium, Tier, Topology
from phaze.workload.routed_copies import NO_COPIES, Copies
from phaze.workload.work import Collective


@dataclass(frozen=True, slots=True)
class Level:
    """Members of a group on one network tier that it spans.

    `domains` of the tier hold it all, each of them `members` domains of the tier inside (or devices) with `below`
    devices of the group each: fractions where it does not divide evenly. `extent`: members that a whole
    domain has, as many as the group's where the tier has no end.
    """

    tier: Tier
    domains: int
    members: float
    below: float
    extent: int

    @property
    def crossings(self) -> int:
        """Hops of a chain through the whole group that this tier carries."""
        return round((self.members - 1) * self.domains)

    @property
    def full(self) -> bool:
        """Whether the group has all members of its domains."""
        return self.members == self.extent


def levels(network: Network, size: int, stride: int = 1) -> tuple[Level, ...]:
    """The tiers that a group of `size` devices, numbered `stride` apart, has members on, from the inside out.

    Beyond the end of the last tier its domains are taken to be as large as needed.
    """
    found, inside, held = [], size, 1
    for position, tier in enumerate(network.tiers):
        last = position == len(network.tiers) - 1
        reach = size if tier.devices is None or last else max(1, tier.devices // stride)
        domains = min(inside, -(-size // reach))
        members = inside / domains
        if members > 1:
            whole = round(members) if tier.devices is None else max(tier.devices // held, -int(-members // 1))
            found.append(Level(tier, domains, members, size / inside, whole))
        inside, held = domains, tier.devices or held
    return tuple(found)


_RUNS: Mapping[Collective, tuple[Algorithm, ...]] = MappingProxyType(
    {
        Collective.ALL_REDUCE: (
            Algorithm.RING,
            Algorithm.TREE,
            Algorithm.NODE_TREE,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
            Algorithm.IN_NETWORK,
            Algorithm.HIERARCHICAL,
            Algorithm.SYNTHESIZED,
        ),
        Collective.REDUCE_SCATTER: (
            Algorithm.RING,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
            Algorithm.HIERARCHICAL,
            Algorithm.SYNTHESIZED,
        ),
        Collective.ALL_GATHER: (
            Algorithm.RING,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
            Algorithm.HIERARCHICAL,
            Algorithm.SYNTHESIZED,
        ),
        Collective.ALL_TO_ALL: (Algorithm.PAIRWISE, Algorithm.DIRECT),
        Collective.SEND_RECV: (Algorithm.PAIRWISE,),
    }
)


@dataclass(frozen=True, slots=True)
class Terms:
    """Work of an algorithm on one tier: steps, bytes sent over it, reduced and copied, senders to one receiver.

    `touched`: bytes of memory that reductions read and write; k operands of x bytes each touch (k + 1) x in one pass
    (GenModel, arXiv 2409.04202).
    """

    steps: float
    sent: float
    reduced: float
    copied: float
    senders: float
    touched: float = 0.0


def runs(collective: Collective) -> tuple[Algorithm, ...]:
    """The algorithms there are for a collective."""
    return _RUNS[collective]


def sweeps(collective: Collective) -> int:
    """Rounds of the data: an all-reduce scatters and gathers."""
    return 2 if collective is Collective.ALL_REDUCE else 1


def terms(
    collective: Collective, algorithm: Algorithm, level: Level, size: int, copies: Copies = NO_COPIES
) -> Terms:
    """One level of a group of `size`; the algorithm runs through all levels at once.

    Every device of a domain has a part of what the domain sends beyond it. Of `copies` rows of an all-to-all that
    are the same, for members chosen by chance, a domain is sent one.
    """
    if collective is Collective.SEND_RECV:
        return Terms(1, 1.0, 0.0, 0.0, 1)
    steps = _steps(collective, algorithm, level)
    if algorithm in (Algorithm.TREE, Algorithm.NODE_TREE):
        return Terms(steps, 2 / level.below, 1.0, 0.0, 2, 2.0)  # two children with its own part, half of it
    if algorithm is Algorithm.IN_NETWORK:
        return Terms(steps, 1 / level.below, 0.0, 0.0, 1)
    copied = 1 / size
    if collective is Collective.ALL_TO_ALL:
        domains = size / level.below
        beyond = (domains - 1) * copies.reach(domains) / copies.count
        senders = size - level.below if algorithm is Algorithm.DIRECT else 1
        return Terms(steps, beyond, 0.0, copied, senders)
    return _of_parts(collective, algorithm, level, size, steps)


def _of_parts(collective: Collective, algorithm: Algorithm, level: Level, size: int, steps: float) -> Terms:
    """Terms where everyone is left with, or starts from, an equal part: reduced two at a time, or all at once."""
    reduces = collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
    part, at_once = (size - 1) / size, algorithm in (Algorithm.DIRECT, Algorithm.SYNTHESIZED)
    touched = (size + 1) / size if at_once else 3 * part
    sent, senders = part / level.below, level.members - 1 if at_once else 1.0
    if algorithm is Algorithm.SYNTHESIZED:  # a part of everyone to everyone beyond the domain
        sent, senders = (size - level.below) / size, size - level.below
    reduced, touched = (part, touched) if reduces else (0.0, 0.0)
    return Terms(steps, sweeps(collective) * sent, reduced, 1 / size, senders, touched)


def _steps(collective: Collective, algorithm: Algorithm, level: Level) -> float:
    if algorithm in (Algorithm.DIRECT, Algorithm.SYNTHESIZED):
        return sweeps(collective) * (level.domains == 1)
    if algorithm is Algorithm.IN_NETWORK:
        return 2
    if algorithm is Algorithm.NODE_TREE and level.tier.medium is not Medium.ADAPTER:
        return sweeps(collective) * (math.ceil(level.members) - 1)
    if algorithm in (Algorithm.TREE, Algorithm.NODE_TREE, Algorithm.HALVING_DOUBLING):
        return sweeps(collective) * math.ceil(math.log2(level.members))
    return sweeps(collective) * level.crossings


Links = tuple[tuple[int, int, int], ...]

_SWITCHED = frozenset({Topology.SWITCH, Topology.FAT_TREE, Topology.DRAGONFLY})
_ANYWHERE = frozenset({Algorithm.RING, Algorithm.PAIRWISE, Algorithm.HIERARCHICAL})


def algorithm_possible(level: Level, collective: Collective, algorithm: Algorithm) -> bool:
    """Whether an algorithm runs over the links of a tier.

    Partners far away need switches; reductions in them, all members of a domain; and sums from all partners at
    once a link to each.
    """
    topology = level.tier.topology
    if algorithm is Algorithm.DIRECT:
        return topology is Topology.FULLY_CONNECTED or (
            collective is Collective.ALL_TO_ALL and topology in _SWITCHED
        )
    if algorithm is Algorithm.IN_NETWORK:
        return level.tier.in_network and level.full
    if algorithm is Algorithm.SYNTHESIZED:
        return level.members == round(level.members)
    if algorithm is Algorithm.NODE_TREE and level.tier.medium is not Medium.ADAPTER:
        return True
    return algorithm in _ANYWHERE or topology in _SWITCHED


def joins_all(level: Level) -> bool:
    """Whether members of a tier reach any others directly, through switches or links of their own."""
    return level.tier.topology in _SWITCHED or level.tier.topology is Topology.FULLY_CONNECTED


def bandwidth_share(level: Level, collective: Collective) -> float:
    """Share of the tier's bandwidth that every device of the group can use at once, above 0."""
    tier, members = level.tier, level.members
    pair = collective is Collective.SEND_RECV
    if tier.topology is Topology.FAT_TREE:
        return 1 / tier.oversubscription
    if tier.topology is Topology.SHARED:
        return 1.0 if pair else 1 / (members * level.below)
    if tier.topology in (Topology.FULLY_CONNECTED, Topology.DRAGONFLY):
        detours = level.extent / 2 if tier.topology is Topology.DRAGONFLY else 1.0
        return (detours if pair else members - 1) / (level.extent - 1)
    if tier.topology is Topology.MESH:
        return _mesh_share(tier.links, round(members), collective)
    if tier.topology in (Topology.RING, Topology.TORUS):
        return _torus_share(level, tier.dims or (level.extent,), collective)
    return 1.0


def _torus_share(level: Level, dims: tuple[int, ...], collective: Collective) -> float:
    """Rings run in all dimensions that the group spans at once; dimensions fill up one after the other.

    In an all-to-all a message travels a quarter of a ring in each of them, and the longest limits. Blocks of whole
    cubes that optical circuit switches join are closed in all dimensions, smaller ones in none.
    """
    cube = level.tier.cube
    extents = _extents(dims, level.members) if cube is None else _block(dims, cube, level.members)
    if collective is Collective.SEND_RECV:
        return 0.5 / len(dims)
    closed = sum(1.0 if have == whole else 0.5 for have, whole in extents)
    if collective is Collective.ALL_TO_ALL:
        hops = max(1.0, max(have for have, _ in extents) / 4)
        return closed / len(extents) / len(dims) / hops
    return closed / len(dims)


def _extents(dims: tuple[int, ...], members: float) -> list[tuple[float, float]]:
    """(members of the group, of the whole) in each dimension that the group spans."""
    found: list[tuple[float, float]] = []
    rest = members
    for whole in dims:
        if rest > 1 and whole > 1:
            found.append((min(rest, whole), whole))
            rest = rest / min(rest, whole)
    return found or [(members, dims[0])]


def _block(dims: tuple[int, ...], cube: int, members: float) -> list[tuple[float, float]]:
    """The same of a block of cubes, as near to a cube as their number lets it be; of less than a cube, lines in it."""
    cubes = members / cube ** len(dims)
    if cubes < 1:
        return [(have, have + 1) for have, _ in _extents((cube,) * len(dims), members)]
    sides, rest = [], cubes
    for left, side in zip(range(len(dims), 0, -1), dims, strict=True):
        near = rest ** (1 / left)
        whole = [n for n in range(1, min(int(rest), side // cube) + 1) if rest % n == 0] or [rest]
        sides.append(min(whole, key=lambda n: abs(n - near)))
        rest /= sides[-1]
    return [(cube * side, cube * side) for side in sides]


@lru_cache(maxsize=1024)
def _mesh_share(links: Links, members: int, collective: Collective) -> float:
    """Rings through all members that share no link, each running both ways, over the links of a device.

    Where no ring closes, a chain runs both ways over one link. An all-to-all is as slow as its thinnest pair,
    which is two hops apart where no link joins it.
    """
    joined = _between(links, members)
    widest = max(
        sum(n for a, b, n in links if device in (a, b)) for device in {d for a, b, _ in links for d in (a, b)}
    )
    if members == 2 or collective is Collective.SEND_RECV:
        return max(joined.get((0, 1), 0), 0.5) / widest
    if collective is Collective.ALL_TO_ALL:
        pairs = members * (members - 1) // 2
        thinnest = 0.5 if len(joined) < pairs else min(joined.values())
        return thinnest * (members - 1) / widest
    rings = _rings(joined, members)
    if rings:
        return 2 * rings / widest
    both = 2 * (members - 1) / members if collective is Collective.ALL_REDUCE else 1.0
    return both / widest


def _between(links: Links, members: int) -> dict[tuple[int, int], int]:
    """Links by pair of members of the group, the first so many of the mesh."""
    found: dict[tuple[int, int], int] = {}
    for a, b, count in links:
        if max(a, b) < members:
            found[min(a, b), max(a, b)] = found.get((min(a, b), max(a, b)), 0) + count
    return found


def _rings(joined: dict[tuple[int, int], int], members: int) -> int:
    """Most rings through all members that share no link."""
    best = 0
    for ring in _all_rings(joined, members):
        rest = dict(joined)
        for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
            rest[min(a, b), max(a, b)] -= 1
        best = max(best, 1 + _rings(rest, members))
        if best >= _most(joined, members):
            break
    return best


def _most(joined: dict[tuple[int, int], int], members: int) -> int:
    """A ring takes two links of every member."""
    degrees = [sum(n for pair, n in joined.items() if device in pair) for device in range(members)]
    return min(degrees) // 2


def _all_rings(joined: dict[tuple[int, int], int], members: int) -> list[tuple[int, ...]]:
    """Every ring through all members once, from member 0, in one of its directions."""
    found: list[tuple[int, ...]] = []
    open_: list[tuple[int, ...]] = [(0,)]
    while open_:
        path = open_.pop()
        linked = [d for d in range(members) if joined.get((min(path[-1], d), max(path[-1], d)), 0) > 0]
        if len(path) == members:
            found += [path] if 0 in linked and path[1] < path[-1] else []
        open_ += [(*path, d) for d in linked if d not in path]
    return found
