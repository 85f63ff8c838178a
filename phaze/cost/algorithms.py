"""The algorithms of collectives in numbers: steps, and bytes sent, reduced and copied, on every tier of a group.

Bytes are per device and byte of the payload, by the convention of `cost/collective.py`. Sources: Thakur,
Rabenseifner, Gropp, IJHPCA 19(1), 2005 (ring, halving-doubling, pairwise); Sanders, Speck, Traeff, Parallel
Computing 35, 2009 (two trees).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phaze.cost.group import Level
from phaze.hardware.tiers import Algorithm
from phaze.workload.work import Collective

_RUNS: Mapping[Collective, tuple[Algorithm, ...]] = MappingProxyType(
    {
        Collective.ALL_REDUCE: (
            Algorithm.RING,
            Algorithm.TREE,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
            Algorithm.IN_NETWORK,
            Algorithm.HIERARCHICAL,
        ),
        Collective.REDUCE_SCATTER: (
            Algorithm.RING,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
            Algorithm.HIERARCHICAL,
        ),
        Collective.ALL_GATHER: (
            Algorithm.RING,
            Algorithm.HALVING_DOUBLING,
            Algorithm.DIRECT,
            Algorithm.HIERARCHICAL,
        ),
        Collective.ALL_TO_ALL: (Algorithm.PAIRWISE, Algorithm.DIRECT),
        Collective.SEND_RECV: (Algorithm.PAIRWISE,),
    }
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an algorithm does on one tier: steps, bytes sent over it, reduced and copied, senders to one receiver."""

    steps: float
    sent: float
    reduced: float
    copied: float
    senders: float


def runs(collective: Collective) -> tuple[Algorithm, ...]:
    """The algorithms there are for a collective."""
    return _RUNS[collective]


def sweeps(collective: Collective) -> int:
    """How often the data goes round: an all-reduce scatters and gathers."""
    return 2 if collective is Collective.ALL_REDUCE else 1


def terms(collective: Collective, algorithm: Algorithm, level: Level, size: int, copies: int = 1) -> Terms:
    """One level of a group of `size`; the algorithm runs through all levels at once.

    Every device of a domain has a part of what the domain sends beyond it. Of `copies` rows of an all-to-all that
    are the same, for members chosen by chance, a domain is sent one.
    """
    if collective is Collective.SEND_RECV:
        return Terms(1, 1.0, 0.0, 0.0, 1)
    steps = _steps(collective, algorithm, level)
    reduces = collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
    if algorithm is Algorithm.TREE:
        return Terms(steps, 2 / level.below, 1.0, 0.0, 2)
    if algorithm is Algorithm.IN_NETWORK:
        return Terms(steps, 1 / level.below, 0.0, 0.0, 1)
    copied = 1 / size
    if collective is Collective.ALL_TO_ALL:
        others = size / level.below - 1
        reached = 1 - (others / (others + 1)) ** copies
        beyond = others * reached / copies
        senders = size - level.below if algorithm is Algorithm.DIRECT else 1
        return Terms(steps, beyond, 0.0, copied, senders)
    part = (size - 1) / size
    senders = level.members - 1 if algorithm is Algorithm.DIRECT else 1
    return Terms(steps, sweeps(collective) * part / level.below, part if reduces else 0.0, copied, senders)


def _steps(collective: Collective, algorithm: Algorithm, level: Level) -> float:
    if algorithm is Algorithm.DIRECT:
        return sweeps(collective) * (level.domains == 1)
    if algorithm is Algorithm.IN_NETWORK:
        return 2
    if algorithm in (Algorithm.TREE, Algorithm.HALVING_DOUBLING):
        return sweeps(collective) * math.ceil(math.log2(level.members))
    return sweeps(collective) * level.crossings
