"""GenModel's constants of one switch, fitted to collectives whose algorithm is known: rings, trees, stages.

Seconds are linear in what a step takes, in bytes sent, summed, touched in memory and crowded (arXiv 2409.04202): for
every threshold of incast the best constants are those of least squares that are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy.optimize import nnls

from phaze.arrays import Floats
from phaze.cost.collectives.collective_algorithms import Terms, levels, sweeps, terms
from phaze.errors import InputError
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import NAMED, Algorithm, LinkLaw, Tier
from phaze.workload.work import Collective

_KNOWN = (Algorithm.RING, Algorithm.TREE, Algorithm.HALVING_DOUBLING)
_SWITCH = Network(name="switch", tiers=(Tier(devices=None),))


@dataclass(frozen=True, slots=True)
class StagedRow:
    """One measured collective among `ranks` of a switch: payload in bytes, time in s.

    `algorithm`: ring, tree, halving-doubling, or the devices of each stage, `8` or `4x2`.
    """

    collective: Collective
    ranks: int
    payload_bytes: float
    time_s: float
    algorithm: str


@dataclass(frozen=True, slots=True)
class StagedFit:
    """A fitted network, and mean absolute errors in percent, of rows kept aside and of those it was fitted on.

    `plain_pct`: on the rows aside, of the best constants without memory and incast.
    """

    network: Network
    rows: int
    aside: int
    plain_pct: float
    after_pct: float
    fitted_pct: float


def stages_of(row: StagedRow) -> list[tuple[Terms, int]]:
    """Terms of every stage of a row, and into how many parts its payload is divided by then. Raises InputError."""
    word = row.algorithm.strip().lower()
    if word in {*_KNOWN}:
        algorithm = Algorithm(word)
        gathers = algorithm is Algorithm.TREE and row.collective is not Collective.ALL_REDUCE
        if gathers or (algorithm is Algorithm.HALVING_DOUBLING and row.ranks.bit_count() != 1):
            raise InputError(f"a {row.collective.value} among {row.ranks} ranks does not run by {word}")
        return [(_terms(row.collective, algorithm, row.ranks), 1)]
    fan_ins = [int(one) if one.isdecimal() else 0 for one in word.split("x")]
    if min(fan_ins) < 2 or prod(fan_ins) != row.ranks:
        names = ", ".join(_KNOWN)
        raise InputError(
            f"algorithm {row.algorithm!r} of {row.ranks} ranks is none of {names}, nor stages whose product is "
            f"{row.ranks}"
        )
    found, parts = [], 1
    for fan_in in fan_ins:
        found.append((_terms(row.collective, Algorithm.SYNTHESIZED, fan_in), parts))
        parts *= fan_in
    return found


def _terms(collective: Collective, algorithm: Algorithm, ranks: int) -> Terms:
    (level,) = levels(_SWITCH, ranks)
    return terms(collective, algorithm, level, ranks)


def fit_stages(
    name: str, rows: Sequence[StagedRow], bandwidth_bytes_per_s: float | None, every: int
) -> StagedFit:
    """Fit one switch; every so many rows one is kept aside. Raises InputError for algorithms that are not known.

    Without a bandwidth, that too is fitted. Bytes that are summed tell themselves apart only beside gathering rows.
    """
    aside, kept = rows[every - 1 :: every], [row for i, row in enumerate(rows) if i % every != every - 1]
    best, plain = (_solved(kept, bandwidth_bytes_per_s, whole=whole) for whole in (True, False))
    source = f"fitted to {len(rows)} measurements of known algorithms"
    tier = Tier(devices=None, bandwidth_bytes_per_s=best.bandwidth, law=best.law, source=source)
    network = Network(name=name, tiers=(tier,), algorithms=(*NAMED, Algorithm.SYNTHESIZED))
    errors = _error_pct(plain, aside), _error_pct(best, aside), _error_pct(best, kept)
    return StagedFit(network, len(kept), len(aside), *errors)


@dataclass(frozen=True, slots=True)
class _Solution:
    bandwidth: float
    law: LinkLaw
    residual: float


def _columns(row: StagedRow, fan_in: float) -> tuple[float, ...]:
    """What a step, a byte sent, summed, touched and crowded each cost once in a row."""
    steps = sent = reduced = touched = crowded = 0.0
    for work, parts in stages_of(row):
        part = row.payload_bytes / parts
        steps += work.steps
        sent += work.sent * part
        reduced += work.reduced * part
        touched += work.touched * part
        crowded += work.sent * max(work.senders - fan_in, 0.0) * part
    return steps, sent, reduced, touched, crowded


def _solved(rows: Sequence[StagedRow], bandwidth: float | None, *, whole: bool) -> _Solution:
    """The best constants, relative errors squared; without memory and incast where not the `whole` is fitted."""
    most = max(int(work.senders) for row in rows for work, _ in stages_of(row))
    thresholds = range(1, most + 1) if whole else (most,)
    return min(
        (_with(rows, bandwidth, float(n), whole=whole) for n in thresholds), key=lambda one: one.residual
    )


def _with(rows: Sequence[StagedRow], bandwidth: float | None, fan_in: float, *, whole: bool) -> _Solution:
    """The same for one threshold of senders."""
    seconds = np.array([row.time_s for row in rows])
    columns = np.array([_columns(row, fan_in) for row in rows]) / seconds[:, None]
    target = np.ones(len(rows))
    free = [0, 1, *([2] if _tells_sums(rows, bandwidth) else []), *([3, 4] if whole else [])]
    if bandwidth is not None:
        target = target - columns[:, 1] / bandwidth
        free.remove(1)
    scale = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    found, residual = nnls(columns[:, free] / scale[free], target)
    each = dict(zip(free, (found / scale[free]).tolist(), strict=True))
    per_byte = 1 / bandwidth if bandwidth is not None else each[1]
    if not per_byte > 0:
        raise InputError("the rows tell no time per byte: give a --bandwidth, or rows of larger sizes")
    gamma, memory, epsilon = (each.get(n, 0.0) / per_byte for n in (2, 3, 4))
    law = LinkLaw(step_s=each[0], gamma=gamma, memory=memory, epsilon=epsilon, fan_in=fan_in)
    return _Solution(1 / per_byte, law, float(residual))


def _tells_sums(rows: Sequence[StagedRow], bandwidth: float | None) -> bool:
    """Whether sums are told from sent bytes, which every reducing row has in the same proportion."""
    gathers = {row.collective is Collective.ALL_GATHER for row in rows}
    ways = {sweeps(row.collective) for row in rows if row.collective is not Collective.ALL_GATHER}
    return bandwidth is not None or len(gathers) > 1 or len(ways) > 1


def _error_pct(found: _Solution, rows: Sequence[StagedRow]) -> float:
    law, per_byte = found.law, 1 / found.bandwidth
    cost = np.array([law.step_s, *(per_byte * np.array([1.0, law.gamma, law.memory, law.epsilon]))])
    predicted: Floats = np.array([_columns(row, law.fan_in) for row in rows]) @ cost
    measured = np.array([row.time_s for row in rows])
    return float(100 * np.mean(np.abs(predicted / measured - 1)))
