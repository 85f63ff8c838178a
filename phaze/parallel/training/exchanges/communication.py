"""Communication of a plan among data-parallel ranks, stages and experts, and the part that computation hides."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.cost.collectives.collective_times import fastest_s, laws
from phaze.hardware.cluster_network import Network
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.scheduling.passes import NEVER_S
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.routed_copies import Copies
from phaze.workload.training.training_numerics import HALF_BYTES
from phaze.workload.work import Collective, Link, Pass


@dataclass(frozen=True)
class Communication:
    """The exchanges of plans (V,) between devices of one kind on a network; `known` ones are not costed again.

    Payloads are in bytes, (V, X) or what broadcasts to it; seconds are (V, X).
    """

    network: Network
    link_bytes_per_s: float
    plans: tuple[ParallelPlan, ...]
    known: dict[Hashable, Any] = field(default_factory=dict)
    _columns: dict[str, Integers] = field(default_factory=dict)

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
        """Reduction of the gradients of experts, whose replicas are fewer and further apart."""
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

    def reduce_replicated_s(self, gradient_bytes: float | Floats) -> Floats:
        """Reduction for layers that tensor ranks keep whole: among these first, then each its share with replicas."""
        width, next_ = self._width, np.ones_like(self._width)
        whole, divided = np.where(self.divides, 1, width), np.where(self.divides, width, 1)
        reduced = self._over(Collective.ALL_REDUCE, gradient_bytes, whole, next_)
        reduced += self._over(Collective.REDUCE_SCATTER, gradient_bytes, divided, next_)
        return reduced + self.reduce_s(np.asarray(gradient_bytes) / width)

    def gather_replicated_s(self, weight_bytes: float | Floats) -> Floats:
        """All-gather of their weights: each tensor rank its share from its replicas, then among these."""
        shares = self.gather_s(np.asarray(weight_bytes) / self._width)
        among = self._over(Collective.ALL_GATHER, weight_bytes, self._width, np.ones_like(self._width))
        return shares + among

    def transfer_s(self, tensor_bytes: float | Floats, scatters: bool) -> Floats:
        """One tensor from a stage to the next, one way; `tensor_bytes` of the whole tensor of a tensor group."""
        width = self._width
        sequence = np.array([[s.sharding.sequence] for s in self.plans])
        sent = np.asarray(tensor_bytes) / np.where(sequence | scatters, width, 1)
        way = self._column("pipeline_parallel"), self._column("pipeline_stride")
        inside = np.where(sequence | (not scatters), 1, width)
        moved = self._over(Collective.SEND_RECV, sent, *way)
        return moved + self._over(Collective.ALL_GATHER, tensor_bytes, inside, np.ones_like(inside))

    @cached_property
    def divides(self) -> NDArray[np.bool_]:
        """Whether ranks divide anything, (V, 1)."""
        return np.array([[s.zero is not Zero.NONE] for s in self.plans])

    @cached_property
    def sharded(self) -> Integers:
        """Ranks that ZeRO divides over, (V, 1)."""
        return np.array([[s.shard_group or s.replicas] for s in self.plans])

    @cached_property
    def expert_replicas(self) -> Integers:
        """Devices with the same experts, (V, 1)."""
        return self._column("expert_replicas")

    @property
    def ranks(self) -> tuple[Integers, Integers, Integers]:
        """Ranks that ZeRO divides shared parameters, those of experts, and whole ones over, (V, 1) each."""
        return self.sharded, self.expert_replicas, self.sharded * self._width

    @cached_property
    def _width(self) -> Integers:
        return np.array([[s.sharding.tensor] for s in self.plans])

    @cached_property
    def _stride(self) -> Integers:
        return self._column("replica_stride")

    def of_rows(self, rows: Integers) -> Communication:
        """That of some of the plans, by place."""
        columns = {name: column[rows] for name, column in self._columns.items()}
        return replace(self, plans=tuple(self.plans[row] for row in rows.tolist()), _columns=columns)

    def _column(self, name: str) -> Integers:
        """A property of every plan, (V, 1)."""
        if name not in self._columns:
            self._columns[name] = np.array([[getattr(s, name)] for s in self.plans])
        return self._columns[name]

    def _over(self, kind: Collective, payload: float | Floats, size: Integers, stride: Integers) -> Floats:
        """Nothing to exchange, or nobody to exchange it with, takes no time; `size`, `stride` (V, 1) of groups."""
        sent = np.atleast_2d(np.asarray(payload, dtype=np.float64))
        found = np.full((len(size), sent.shape[1]), NEVER_S)
        if not sent.any():
            return np.zeros(found.shape)
        root = np.sqrt(sent)
        with np.errstate(invalid="ignore"):
            for fixed_s, per_byte_s, per_root_s in self._laws(kind, size, stride):
                np.fmin(found, fixed_s + per_byte_s * sent + per_root_s * root, out=found)
        return np.where(sent > 0, found, 0.0)

    def _laws(self, kind: Collective, size: Integers, stride: Integers) -> Floats:
        """Coefficients (n, 3, V, 1), as of `Law`, of the ways in which groups can run a collective."""
        groups = list(zip(size[:, 0].tolist(), stride[:, 0].tolist(), strict=True))
        number = {group: n for n, group in enumerate(dict.fromkeys(groups))}
        each = [self._ways(kind, *group) for group in number]
        # Fewer ways are made as many by the last one again.
        places = np.arange(max(map(len, each)))
        even = np.array([ways[np.minimum(places, len(ways) - 1)] for ways in each])
        return even[[number[group] for group in groups]].transpose(1, 2, 0)[..., None]

    def _ways(self, kind: Collective, size: int, stride: int) -> Floats:
        """Coefficients (n, 3) of the ways in which a group can run a collective, each better than others somewhere."""
        key = kind, size, stride
        if key not in self.known:
            alone = size <= 1
            ways = () if alone else laws(kind, self.network, self.link_bytes_per_s, size, stride).values()
            rows = [
                (law.fixed_s, float(law.per_byte_s), float(law.per_root_s)) for some in ways for law in some
            ]
            self.known[key] = _undominated(np.array(rows)) if rows else np.zeros((1, 3))
        found: Floats = self.known[key]
        return found


def _undominated(rows: Floats) -> Floats:
    """Rows that are somewhere less than every other one; of equal ones the first."""
    no_more = (rows[:, None] <= rows).all(axis=2)
    equal = no_more & no_more.T
    beaten = (no_more & ~equal) | (equal & np.tri(len(rows), k=-1, dtype=np.bool_).T)
    found: Floats = rows[~beaten.any(axis=0)]
    return found


def overlapped_s(compute_s: Floats, exchange_s: Floats, pieces: Floats, interference: float) -> Floats:
    """Exposed communication: seconds that an exchange of n equal pieces adds to the computation beside it.

    exposed = max(exchange / n, exchange - compute (1 - 1/n)) + interference x min(hidden, compute): the last piece
    hides behind nothing (docs/reference/formulas/pipeline.md, docs/decisions/0025-fsdp.md).
    """
    count = np.maximum(pieces, 1)
    last = exchange_s / count
    exposed = np.maximum(last, exchange_s - compute_s * (1 - 1 / count))
    found: Floats = exposed + interference * np.minimum(
        exchange_s - np.minimum(exposed, exchange_s), compute_s
    )
    return found


_ENDS = (OpKind.DISPATCH.value, OpKind.COMBINE.value)


def row_bytes(passes: Sequence[Pass]) -> list[float]:
    """Bytes of the rows that products of experts read and write, but for gradients of weights, in each of some passes.

    They are of one structure.
    """
    ends = {i for i, w in enumerate(passes[0].works) if w.kind in _ENDS}
    turned = [(b, a) for a, b in passes[0].edges]
    inside = _reached(ends, passes[0].edges) & _reached(ends, turned)
    products = ([g for i in inside for g in p.works[i].gemms] for p in passes)
    return [float(sum(HALF_BYTES * g.groups * g.m * (g.k + g.n) for g in some)) for some in products]


def _reached(ends: Set[int], edges: Sequence[tuple[int, int]]) -> Set[int]:
    """Operators that can be reached from those at the ends, not through another one."""
    after: dict[int, list[int]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    found: set[int] = set()
    open_ = list(ends)
    while open_:
        new = [b for b in after.get(open_.pop(), ()) if b not in found and b not in ends]
        found.update(new)
        open_ += new
    return found


def merged_s(links: Sequence[Link], network: Network, link_bytes_per_s: Floats) -> Floats:
    """Exchanges whose equal rows travel as one, (L, A) seconds on chips whose own links have bandwidths (A,)."""
    found = np.empty((len(links), len(link_bytes_per_s)))
    groups: dict[tuple[Collective, int, int, Copies], list[int]] = {}
    for at, one in enumerate(links):
        groups.setdefault((one.collective, one.group.size, one.group.stride, one.copies), []).append(at)
    for (collective, size, stride, copies), rows in groups.items():
        payloads = np.array([[links[at].payload_bytes] for at in rows])
        found[rows] = fastest_s(collective, payloads, network, link_bytes_per_s, size, stride, copies)
    return found
