"""What data-parallel ranks and neighbouring stages exchange, and what of it computation hides."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.cost.exchange import fastest_s
from phaze.hardware.network import Network
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.scheduling.passes import NEVER_S
from phaze.workload.work import Collective

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of strategies (V,) between devices of one kind on a network; `known` ones are not costed again.

    Payloads are in bytes, (V, X) or what broadcasts to it; seconds are (V, X).
    """

    network: Network
    link_bytes_per_s: float
    strategies: tuple[Strategy, ...]
    known: dict[Hashable, Any] = field(default_factory=dict)
    _columns: dict[str, Counts] = field(default_factory=dict)

    def gather_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of weights over the ranks that divide them."""
        return self._over(Collective.ALL_GATHER, weight_bytes, self.sharded, self._stride)

    def reduce_s(self, gradient_bytes: float | Floats) -> Floats:
        """All ranks get the sum of gradients, or under ZeRO their part of it."""
        replicas, stride, ranks = self._column("replicas"), self._stride, self.sharded
        whole = np.where(self.divides, 1, replicas), np.where(self.divides, ranks, 1)
        reduced = self._over(Collective.ALL_REDUCE, gradient_bytes, whole[0], stride)
        reduced += self._over(Collective.REDUCE_SCATTER, gradient_bytes, whole[1], stride)
        others = np.where(self.divides, replicas // ranks, 1)
        rest = np.asarray(gradient_bytes) / ranks
        return reduced + self._over(Collective.ALL_REDUCE, rest, others, stride * ranks)

    def reduce_experts_s(self, gradient_bytes: float | Floats) -> Floats:
        """The same of experts, whose replicas are fewer and further apart."""
        ranks, stride = self.expert_replicas, self._column("expert_stride")
        whole, divided = np.where(self.divides, 1, ranks), np.where(self.divides, ranks, 1)
        reduced = self._over(Collective.ALL_REDUCE, gradient_bytes, whole, stride)
        return reduced + self._over(Collective.REDUCE_SCATTER, gradient_bytes, divided, stride)

    def gather_experts_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of the weights of experts over their replicas."""
        stride = self._column("expert_stride")
        return self._over(Collective.ALL_GATHER, weight_bytes, self.expert_replicas, stride)

    def tie_s(self, gradient_bytes: float | Floats) -> Floats:
        """Sum of the gradients of parameters that the first and the last stage both have."""
        stages, stride = self._column("pipeline_parallel"), self._column("pipeline_stride")
        return self._over(Collective.ALL_REDUCE, gradient_bytes, np.minimum(stages, 2), stride * (stages - 1))

    def reduce_whole_s(self, gradient_bytes: float | Floats) -> Floats:
        """The same of layers that tensor ranks keep whole: among these first, then each its share with its replicas."""
        width, next_ = self._width, np.ones_like(self._width)
        whole, divided = np.where(self.divides, 1, width), np.where(self.divides, width, 1)
        reduced = self._over(Collective.ALL_REDUCE, gradient_bytes, whole, next_)
        reduced += self._over(Collective.REDUCE_SCATTER, gradient_bytes, divided, next_)
        return reduced + self.reduce_s(np.asarray(gradient_bytes) / width)

    def gather_whole_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of their weights: each tensor rank its share from its replicas, then among these."""
        shares = self.gather_s(np.asarray(weight_bytes) / self._width)
        among = self._over(Collective.ALL_GATHER, weight_bytes, self._width, np.ones_like(self._width))
        return shares + among

    def transfer_s(self, tensor_bytes: float | Floats, scatters: bool) -> Floats:
        """One tensor from a stage to the next, one way; `tensor_bytes` of the whole tensor of a tensor group."""
        width = self._width
        sequence = np.array([[s.sharding.sequence] for s in self.strategies])
        sent = np.asarray(tensor_bytes) / np.where(sequence | scatters, width, 1)
        way = self._column("pipeline_parallel"), self._column("pipeline_stride")
        inside = np.where(sequence | (not scatters), 1, width)
        moved = self._over(Collective.SEND_RECV, sent, *way)
        return moved + self._over(Collective.ALL_GATHER, tensor_bytes, inside, np.ones_like(inside))

    @cached_property
    def divides(self) -> NDArray[np.bool_]:
        """Whether ranks divide anything, (V, 1)."""
        return np.array([[s.zero is not Zero.NONE] for s in self.strategies])

    @cached_property
    def sharded(self) -> Counts:
        """Ranks that ZeRO divides over, (V, 1)."""
        return np.array([[s.shard_group or s.replicas] for s in self.strategies])

    @cached_property
    def expert_replicas(self) -> Counts:
        """Devices with the same experts, (V, 1)."""
        return self._column("expert_replicas")

    @property
    def ranks(self) -> tuple[Counts, Counts, Counts]:
        """Ranks that ZeRO divides shared parameters, those of experts, and whole ones over, (V, 1) each."""
        return self.sharded, self.expert_replicas, self.sharded * self._width

    @cached_property
    def _width(self) -> Counts:
        return np.array([[s.sharding.tensor] for s in self.strategies])

    @cached_property
    def _stride(self) -> Counts:
        return self._column("replica_stride")

    def _column(self, name: str) -> Counts:
        """A property of every strategy, (V, 1)."""
        if name not in self._columns:
            self._columns[name] = np.array([[getattr(s, name)] for s in self.strategies])
        return self._columns[name]

    def _over(self, kind: Collective, payload: float | Floats, size: Counts, stride: Counts) -> Floats:
        """Nothing to exchange, or nobody to exchange it with, takes no time; `size`, `stride` (V, 1) of groups."""
        sent = np.atleast_2d(np.asarray(payload, dtype=np.float64))
        found = np.zeros((len(size), sent.shape[1]))
        if not sent.any():
            return found
        sent = np.broadcast_to(sent, found.shape)
        busy = np.flatnonzero((size[:, 0] > 1) & sent.any(axis=1))
        groups = size[busy, 0].tolist(), stride[busy, 0].tolist()
        rows: dict[tuple[int, int], list[int]] = {}
        for row, *group in zip(busy.tolist(), *groups, strict=True):
            rows.setdefault((group[0], group[1]), []).append(row)
        for (count, step), some in rows.items():
            found[some] = self._seconds(kind, sent[some], count, step)
        return found

    def _seconds(self, kind: Collective, sent: Floats, size: int, stride: int) -> Floats:
        """Every payload is costed once."""
        known: dict[float, float] = self.known.setdefault((kind, size, stride), {0.0: 0.0})
        asked = sent.ravel().tolist()
        if new := [one for one in dict.fromkeys(asked) if one not in known]:
            seconds = fastest_s(kind, new, self.network, self.link_bytes_per_s, size, stride)
            known.update(zip(new, np.minimum(seconds, NEVER_S).tolist(), strict=True))
        return np.array([known[one] for one in asked]).reshape(sent.shape)


def overlapped_s(compute_s: Floats, exchange_s: Floats, pieces: Floats, interference: float) -> Floats:
    """What an exchange of so many equal pieces adds to computation beside it; the last piece hides behind nothing."""
    count = np.maximum(pieces, 1)
    last = exchange_s / count
    exposed = np.maximum(last, exchange_s - compute_s * (1 - 1 / count))
    found: Floats = exposed + interference * np.minimum(
        exchange_s - np.minimum(exposed, exchange_s), compute_s
    )
    return found
