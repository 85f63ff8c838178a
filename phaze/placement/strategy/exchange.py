"""What data-parallel ranks and neighbouring stages exchange, and what of it computation hides."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.cost.exchange import fastest_s
from phaze.hardware.network import Network
from phaze.placement.options import NEVER_S
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.workload.work import Collective

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of one strategy between devices of one kind on a network; `known` ones are not costed again."""

    network: Network
    link_bytes_per_s: float
    strategy: Strategy
    known: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def sharded(self) -> int:
        """Ranks that ZeRO divides over."""
        s = self.strategy
        return s.shard_group or s.replicas

    def gather_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of weights over the ranks that divide them."""
        return self._over(Collective.ALL_GATHER, weight_bytes, self.sharded, self.strategy.data_stride)

    def reduce_s(self, gradient_bytes: float | Floats) -> Floats:
        """All ranks get the sum of gradients, or under ZeRO their part of it."""
        s = self.strategy
        if s.zero is Zero.NONE:
            return self._over(Collective.ALL_REDUCE, gradient_bytes, s.replicas, s.data_stride)
        scattered = self._over(Collective.REDUCE_SCATTER, gradient_bytes, self.sharded, s.data_stride)
        others = s.replicas // self.sharded
        if others == 1:
            return scattered
        rest = np.asarray(gradient_bytes) / self.sharded
        return scattered + self._over(Collective.ALL_REDUCE, rest, others, s.data_stride * self.sharded)

    def reduce_experts_s(self, gradient_bytes: float | Floats) -> Floats:
        """The same of experts, whose replicas are fewer and further apart."""
        s = self.strategy
        kind = Collective.ALL_REDUCE if s.zero is Zero.NONE else Collective.REDUCE_SCATTER
        return self._over(kind, gradient_bytes, s.expert_replicas, s.expert_stride)

    def gather_experts_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of the weights of experts over their replicas."""
        s = self.strategy
        return self._over(Collective.ALL_GATHER, weight_bytes, s.expert_replicas, s.expert_stride)

    def tie_s(self, gradient_bytes: float | Floats) -> Floats:
        """Sum of the gradients of parameters that the first and the last stage both have."""
        s = self.strategy
        distance = s.pipeline_stride * (s.pipeline_parallel - 1)
        return self._over(Collective.ALL_REDUCE, gradient_bytes, min(s.pipeline_parallel, 2), distance)

    def reduce_whole_s(self, gradient_bytes: float | Floats) -> Floats:
        """The same of layers that tensor ranks keep whole: among these first, then each its share with its replicas."""
        s, width = self.strategy, self.strategy.sharding.tensor
        kind = Collective.ALL_REDUCE if s.zero is Zero.NONE else Collective.REDUCE_SCATTER
        return self._over(kind, gradient_bytes, width, 1) + self.reduce_s(np.asarray(gradient_bytes) / width)

    def gather_whole_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of their weights: each tensor rank its share from its replicas, then among these."""
        width = self.strategy.sharding.tensor
        shares = self.gather_s(np.asarray(weight_bytes) / width)
        return shares + self._over(Collective.ALL_GATHER, weight_bytes, width, 1)

    def transfer_s(self, tensor_bytes: float | Floats, scatters: bool) -> Floats:
        """One tensor from a stage to the next, one way; `tensor_bytes` of the whole tensor of a tensor group."""
        s, width = self.strategy, self.strategy.sharding.tensor
        divided = s.sharding.sequence or scatters
        sent = np.asarray(tensor_bytes, dtype=np.float64) / (width if divided else 1)
        moved = self._over(Collective.SEND_RECV, sent, s.pipeline_parallel, s.pipeline_stride)
        if s.sharding.sequence or not scatters:
            return moved
        return moved + self._over(Collective.ALL_GATHER, tensor_bytes, width, 1)

    def _over(self, kind: Collective, payload: float | Floats, size: int, stride: int) -> Floats:
        """Nothing to exchange, or nobody to exchange it with, takes no time."""
        sizes = np.asarray(payload, dtype=np.float64)
        if size == 1:
            return np.zeros(sizes.shape)
        known: dict[float, float] = self.known.setdefault((kind, size, stride), {0.0: 0.0})
        asked = sizes.ravel().tolist()
        new = [one for one in dict.fromkeys(asked) if one not in known]
        if new:
            seconds = fastest_s(kind, new, self.network, self.link_bytes_per_s, size, stride)
            known.update(zip(new, np.minimum(seconds, NEVER_S).tolist(), strict=True))
        return np.array([known[one] for one in asked]).reshape(sizes.shape)


def overlapped_s(compute_s: Floats, exchange_s: Floats, pieces: Floats, interference: float) -> Floats:
    """What an exchange of so many equal pieces adds to computation beside it; the last piece hides behind nothing."""
    count = np.maximum(pieces, 1)
    last = exchange_s / count
    exposed = np.maximum(last, exchange_s - compute_s * (1 - 1 / count))
    found: Floats = exposed + interference * np.minimum(
        exchange_s - np.minimum(exposed, exchange_s), compute_s
    )
    return found
