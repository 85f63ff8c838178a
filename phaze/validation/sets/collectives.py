"""Collectives inside one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from phaze.validation.cases import Cases, Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.operators import exchange
from phaze.validation.sets.products import NO_TEMPLATE
from phaze.workload.work import Collective

SMALL_BYTES = 1 << 20
"""Below, a collective is a test of latency, judged apart (definitions: metrics of dse validate)."""

_KINDS: Mapping[str, Collective] = MappingProxyType(
    {"alltoall": Collective.ALL_TO_ALL, **{kind.value: kind for kind in Collective}}
)
_OTHER = "transfers from one device to another are not compared"
_NODES = "spans several nodes, whose network the row does not give"


def large(columns: Columns) -> Judged:
    """Buffers of at least 1 MiB on each rank."""
    return _judge(columns, lambda size: size >= SMALL_BYTES, "below 1 MiB: judged as latency_small")


def small(columns: Columns) -> Judged:
    """Buffers below 1 MiB."""
    return _judge(columns, lambda size: size < SMALL_BYTES, "1 MiB or more: judged as latency")


def _judge(columns: Columns, wanted: Callable[[float], bool], otherwise: str) -> Judged:
    cases, latency = Cases(), columns.numbers("time_us") * 1e-6
    sizes, ranks, node = (columns.numbers(name) for name in ("bytes", "ranks", "ranks_per_node"))
    for row, (system, collective) in enumerate(zip(columns["system"], columns["collective"], strict=True)):
        chip = chip_of(system)
        if not wanted(sizes[row]):
            cases.drop(otherwise)
        elif chip is None:
            cases.drop(NO_TEMPLATE)
        elif collective not in _KINDS:
            cases.drop(_OTHER)
        elif ranks[row] > node[row] or ranks[row] > 8:
            cases.drop(_NODES)
        else:
            cases.keep(
                chip, exchange(_KINDS[collective], float(sizes[row]), int(ranks[row])), float(latency[row])
            )
    return cases.judge()
