"""Collectives and transfers inside one node and across nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import fastest_s, least_link_s
from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.cost.kernels.fitted_constants import GENERIC, NO_OWN, OwnConstants
from phaze.cost.kernels.link_constants import with_laws
from phaze.hardware.cluster_network import Network
from phaze.hardware.network_tiers import Medium
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import System, system_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Link

SMALL_BYTES = 1 << 20
"""Below, a collective is a test of latency, judged apart (definitions: metrics of dse validate)."""

COLLECTIVES: Mapping[str, Collective] = MappingProxyType(
    {"alltoall": Collective.ALL_TO_ALL, **{kind.value: kind for kind in Collective}}
)
"""Collectives by the names that files give them."""

_COPIED = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
_PASSES = 3  # a copy reads and writes; about every other list is cut so that it is copied once more
_COPIES = "4x H100 NVL"
"""A system of Vidur whose transfers between two ranks are those of its A100 PCIe again, row by row."""
_COPIED_ROWS = "copies of another system's rows"
_UNKNOWN = "a system whose network is not known"
_EARLY = "a transfer faster than its link: timed before the data had arrived"


@dataclass(frozen=True, slots=True)
class _Setting:
    """Common part of the rows of one system, collective and group."""

    system: System
    collective: Collective
    ranks: int
    stride: int


@dataclass(frozen=True)
class Exchanges:
    """Exchanges that were measured on one system: payloads in bytes, and measured times in s, (R,) each."""

    setting: _Setting
    payload: Floats
    measured: Floats

    @property
    def system(self) -> System:
        """Where they were measured."""
        return self.setting.system

    def seconds(self, family: str, own: OwnConstants = NO_OWN) -> Floats:
        """What the model says of them with the constants of a family, or `own` ones."""
        one, network = self.setting, with_laws(self.system.network, family, own)
        seconds = fastest_s(one.collective, self.payload, network, 0.0, one.ranks, one.stride)
        found: Floats = seconds + _beside_s(one, self.payload)
        return found


@dataclass
class _Rows:
    """Payloads of one setting in bytes, measured times in s, and the positions of the rows."""

    payload: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    where: list[int] = field(default_factory=list)


def large(columns: Columns) -> Judged:
    """Buffers of at least 1 MiB on each rank."""
    return _judge(columns, lambda size: size >= SMALL_BYTES, "below 1 MiB: judged as latency_small")


def small(columns: Columns) -> Judged:
    """Buffers below 1 MiB."""
    return _judge(columns, lambda size: size < SMALL_BYTES, "1 MiB or more: judged as latency")


def _judge(columns: Columns, wanted: Callable[[float], bool], otherwise: str) -> Judged:
    settings: dict[_Setting, _Rows] = {}
    excluded: Counter[str] = Counter()
    sizes, latency = columns.numbers("bytes"), columns.numbers("time_us") * 1e-6
    kept = 0
    for row in range(columns.rows):
        setting = _setting(columns, row)
        if setting is None:
            excluded[_UNKNOWN] += 1
            continue
        if _COPIES in columns["system"][row] and setting.collective is Collective.SEND_RECV:
            excluded[_COPIED_ROWS] += 1
            continue
        payload = sizes[row] * _whole(columns, row, setting)
        if not wanted(payload):
            excluded[otherwise] += 1
        elif setting.collective is Collective.SEND_RECV and latency[row] < _least(setting, payload):
            excluded[_EARLY] += 1
        else:
            rows = settings.setdefault(setting, _Rows())
            rows.payload.append(payload)
            rows.measured.append(latency[row])
            rows.where.append(kept)
            kept += 1
    return _predict(settings, kept, excluded)


def _setting(columns: Columns, row: int) -> _Setting | None:
    """Where and what a row measures; ranks of a node are spread evenly over its devices."""
    system = system_of(columns["system"][row])
    if system is None:
        return None
    ranks, node = int(columns["ranks"][row]), columns["ranks_per_node"][row]
    together = min(ranks, int(float(node))) if node else ranks
    stride = 1 if together == ranks else max(1, _node_devices(system.network) // together)
    system = replace(system, network=system.network.alone(together))
    return _Setting(system, COLLECTIVES[columns["collective"][row]], ranks, stride)


def _whole(columns: Columns, row: int, setting: _Setting) -> int:
    """Ranks whose parts the bytes of a row leave out: the collector counts one rank's of oneCCL's all-gathers.

    Counted so, their bus bandwidth is that of the other collectives among as many ranks; else it is 1/ranks of it.
    """
    library = columns["library"][row] if "library" in columns.text else ""
    return setting.ranks if "oneCCL" in library and setting.collective is Collective.ALL_GATHER else 1


def _node_devices(network: Network) -> int:
    """Devices of one node: those that no adapter separates."""
    inside = [tier.devices or 1 for tier in network.tiers if tier.medium is not Medium.ADAPTER]
    return max(inside, default=1)


def _least(setting: _Setting, payload: float) -> float:
    group = Group(Parallel.TENSOR, setting.ranks, setting.stride)
    return float(least_link_s(Link(setting.collective, payload, group), setting.system.network, 0.0))


def _predict(settings: Mapping[_Setting, _Rows], count: int, excluded: Counter[str]) -> Judged:
    measured, predicted = np.empty(count), {rung: np.empty(count) for rung in JUDGED}
    runs = []
    for setting, rows in settings.items():
        one = Exchanges(setting, np.array(rows.payload), np.array(rows.measured))
        measured[rows.where] = rows.measured
        predicted[Fidelity.ROOFLINE][rows.where] = [_least(setting, size) for size in rows.payload]
        for rung, family in ((Fidelity.ANALYTIC, GENERIC), (Fidelity.CALIBRATED, one.system.family)):
            predicted[rung][rows.where] = one.seconds(family)
        runs.append(one)
    return Judged(measured, predicted, dict(excluded), runs=tuple(runs))


def _beside_s(setting: _Setting, payload: Floats) -> Floats:
    """Seconds of a measurement beside the collective: the host, and copies between a list and a buffer."""
    memory = setting.system.memory_bytes_per_s
    if memory is None or setting.collective not in _COPIED:
        return np.full(payload.shape, setting.system.host_s)
    return setting.system.host_s + _PASSES * payload / memory
