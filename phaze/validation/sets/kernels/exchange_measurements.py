"""All-to-all of routed rows by DeepEP and TensorRT-LLM, and all-reduces by an engine's own kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import fastest_s
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.expert_exchanges import ExchangeLaw, Exchanges, exchanges_s, sent_rows
from phaze.cost.kernels.fitted_constants import GENERIC, Constants
from phaze.cost.kernels.link_constants import REDUCTION, with_laws
from phaze.hardware.network_tiers import Medium
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import System, system_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.workload.work import Collective

EAGER = "an all-reduce started by the host, whose time it shows"
_UNKNOWN = "a system whose network is not known"
_PREPARED = "a count of rows before the exchange"
_NORMAL, _LOW_LATENCY = "wideep_deepep_normal", "wideep_deepep_ll"
_OWN, _REDUCED = "trtllm_alltoall", "custom_allreduce"
_FILES: Mapping[str, str] = MappingProxyType(
    {_NORMAL: "deepep_normal.yaml", _LOW_LATENCY: "deepep_low_latency.yaml", _OWN: "trtllm_exchange.yaml"}
)
_SCALED = 1 + 4 / 128  # 8 bits, and a scale of 4 bytes for 128
_BYTES: Mapping[str, float] = MappingProxyType({"bfloat16": 2, "fp8": 1, "nvfp4": 0.5 + 1 / 16})
_NODE: Mapping[str, int] = MappingProxyType({"gb200": 4, "gb300": 4})
_NODE_DEVICES = 8
_NUMBERS = (
    *("node_num", "num_gpus", "moe_ep_size", "message_size", "num_tokens"),
    *("hidden_size", "topk", "dispatch_sms", "combine_sms", "latency_ms"),
    *("dispatch_transmit_us", "dispatch_notify_us", "combine_transmit_us", "combine_notify_us"),
    *("dispatch_avg_t_us", "combine_avg_t_us"),
)
_Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of an exchange: bytes of an element, multiprocessors that copy, devices and those of a node."""

    element_bytes: float
    multiprocessors: float
    ranks: int
    near: int


@dataclass(frozen=True)
class RoutedExchange:
    """One row: an exchange among experts, or an all-reduce by one kernel, on a system, and its measured seconds."""

    system: System
    name: str
    op: str
    part: str
    dtype: str
    sizes: _Numbers
    measured_s: float

    @property
    def file(self) -> str:
        """Its law's file of constants."""
        return REDUCTION if self.op == _REDUCED else _FILES[self.op]

    def seconds(self, constants: Constants) -> float | None:
        """What the model says of it; None where nothing is fitted."""
        law = constants.law(ExchangeLaw, self.file)
        if self.op == _REDUCED:
            return _reduced_s(self.system, self.sizes, constants.family, law)
        return None if law is None else self._routed_s(law)

    @property
    def least_s(self) -> float:
        """At the full bandwidth of links and adapters, with nothing else to wait for."""
        if self.op == _REDUCED:
            return 2.0 * self.sizes["message_size"] / _bandwidths(self.system)[0]
        return self._routed_s(_PERFECT)

    def _routed_s(self, law: ExchangeLaw) -> float:
        links, adapters = _bandwidths(self.system)
        ways = _ways(self.name, self.op, self.part, self.dtype, self.sizes)
        return sum(float(exchanges_s(_exchange(w, self.op, self.sizes), links, adapters, law)) for w in ways)


def exchanges(columns: Columns) -> Judged:
    """Seconds of dispatch and combine together, where a row has both."""
    excluded: Counter[str] = Counter()
    numbers = {name: columns.numbers(name) for name in _NUMBERS}
    kept: list[RoutedExchange] = []
    texts = zip(
        *(columns[name] for name in ("system", "op", "op_name", "dtype", "kernel_source")), strict=True
    )
    for row, (name, op, part, dtype, kernels) in enumerate(texts):
        system, sizes = system_of(name), {n: float(of[row]) for n, of in numbers.items()}
        why = _left_out(system, part, kernels)
        if system is None or why:
            excluded[why] += 1
        else:
            kept.append(RoutedExchange(system, name, op, part, dtype, sizes, _measured_s(op, sizes)))
    predicted = {
        Fidelity.ROOFLINE: [one.least_s for one in kept],
        Fidelity.ANALYTIC: [one.seconds(Constants(GENERIC)) for one in kept],
        Fidelity.CALIBRATED: [one.seconds(Constants(one.system.family)) for one in kept],
    }
    measured = np.array([one.measured_s for one in kept])
    said = {rung: np.array(seconds, dtype=np.float64) for rung, seconds in predicted.items()}
    return Judged(measured, said, dict(excluded), runs=tuple(kept))


def _left_out(system: System | None, part: str, kernels: str) -> str:
    if system is None:
        return _UNKNOWN
    if part.endswith("prepare"):
        return _PREPARED
    return EAGER if kernels.endswith("eager") else ""


def _measured_s(op: str, sizes: _Numbers) -> float:
    if op in (_OWN, _REDUCED):
        return sizes["latency_ms"] * 1e-3
    parts = ("transmit", "notify") if op == _NORMAL else ("avg_t",)
    return 1e-6 * sum(sizes[f"{way}_{part}_us"] for way in ("dispatch", "combine") for part in parts)


_PERFECT = ExchangeLaw(0.0, 0.0, 0.0, 1.0, 1.0, np.inf)


def _ways(name: str, op: str, part: str, dtype: str, sizes: _Numbers) -> tuple[_Way, ...]:
    """Dispatch in 8 bits with scales and combine in 16, by DeepEP; one of both, by TensorRT-LLM."""
    if op == _OWN:
        ranks, combines = int(sizes["moe_ep_size"]), "combine" in part
        narrow = 1.0 if "low_precision" in part else 2.0
        return (_Way(narrow if combines else _BYTES[dtype], np.inf, ranks, ranks),)
    near = _NODE.get(name, _NODE_DEVICES)
    ranks = near * int(sizes["node_num"])
    copying = [sizes[f"{way}_sms"] or np.inf for way in ("dispatch", "combine")]
    copying = [np.inf if np.isnan(count) else count for count in copying]
    return _Way(_SCALED, copying[0], ranks, near), _Way(2.0, copying[1], ranks, near)


def _exchange(way: _Way, op: str, sizes: _Numbers) -> Exchanges:
    row_bytes = sizes["hidden_size"] * way.element_bytes
    rows = sent_rows(
        *(np.asarray(n, dtype=np.float64) for n in (sizes["num_tokens"], sizes["topk"], way.ranks, way.near)),
        merged=op != _LOW_LATENCY,
    )
    inside, across = (row_bytes * sent for sent in rows)
    ranks, copying = (np.asarray(n, dtype=np.float64) for n in (way.ranks, way.multiprocessors))
    return Exchanges(ranks, inside, across, copying)


def _bandwidths(system: System) -> tuple[float, float]:
    """Of a device's links and of its adapter."""
    by_medium = {tier.medium: tier.bandwidth_bytes_per_s or 0.0 for tier in system.network.tiers}
    links = system.network.tiers[0].bandwidth_bytes_per_s or 0.0
    return links, by_medium.get(Medium.ADAPTER, links)


def _reduced_s(system: System, sizes: _Numbers, family: str, law: ExchangeLaw | None) -> float:
    """By one kernel that reads all parts from the others, or by NCCL, whichever is faster."""
    ranks, payload = int(sizes["num_gpus"]), 2.0 * sizes["message_size"]
    links, _ = _bandwidths(system)
    network = with_laws(system.network, family)
    nccl = float(fastest_s(Collective.ALL_REDUCE, payload, network, 0.0, ranks))
    return nccl if law is None else min(nccl, float(_once_s(payload, ranks, links, law)))


def _once_s(payload: float, ranks: int, links: float, law: ExchangeLaw) -> Floats:
    sent = np.asarray(payload * (ranks - 1))
    own = Exchanges(np.asarray(float(ranks)), sent, np.zeros(()), np.asarray(np.inf))
    return exchanges_s(own, links, links, law)
