"""Operators of one pass on some architectures, each alone, and what hides the collectives among them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.cost.cost_model import CostModel
from phaze.hardware.cluster_network import Network
from phaze.parallel.framework import Framework, TensorOverlap
from phaze.parallel.training.exchanges.communication import merged_s, row_bytes
from phaze.parallel.training.memory.recomputation import runs_again
from phaze.scheduling.passes import NEVER_S
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import Layer, Pass, Unit, Work

T = TypeVar("T")


@dataclass(frozen=True)
class Operators:
    """Operators of one pass, and each one's seconds alone on A architectures, (A, O); 0 in the one that it is not.

    `longer` (A,): all of them over what they take without the room that experts have. `alike`: passes of the same
    structure, `pass_` the first, each on as many architectures, all of the first pass first; empty, that pass alone.
    """

    pass_: Pass
    alone_s: Floats
    link_s: Floats
    longer: Floats
    alike: tuple[Pass, ...] = ()

    @property
    def works(self) -> Sequence[Work]:
        """The operators."""
        return self.pass_.works

    @property
    def row_bytes(self) -> Floats:
        """Bytes of the rows that products of experts read and write, (A,)."""
        passes = self.alike or (self.pass_,)
        return np.repeat(row_bytes(passes), len(self.alone_s) // len(passes))

    @property
    def total_s(self) -> Floats:
        """Computation, one after the other, (A,)."""
        total: Floats = self.alone_s.sum(axis=1)
        return total

    def sum_s(self, which: Sequence[bool]) -> Floats:
        """Computation of some of them, (O,), on every architecture, (A,)."""
        return _summed(self.alone_s, np.flatnonzero(which))

    def launches(self, framework: Framework) -> float:
        """What the host starts, in launches of a kernel: an exchange may take more than one for each of its ranks."""
        groups = (work.link.group for work in self.works if work.link is not None)
        ranks = sum(group.size for group in groups if group.parallel is Parallel.TENSOR)
        return len(self.works) + framework.exchange_launches * ranks

    def only(self, kept: Sequence[int]) -> Operators:
        """Operators at some positions."""
        place = {old: new for new, old in enumerate(kept)}
        edges = tuple((place[a], place[b]) for a, b in self.pass_.edges if a in place and b in place)
        pass_ = Pass(tuple(self.works[i] for i in kept), edges)
        at = np.array(kept, dtype=np.intp)
        alone_s, link_s = (seconds.take(at, axis=1) for seconds in (self.alone_s, self.link_s))
        return Operators(pass_, alone_s, link_s, self.longer)

    def hidden_s(self, at: int, framework: Framework) -> Floats:
        """Seconds of the collective at a position that run beside computation, (A,)."""
        link, seconds = self.works[at].link, self.link_s[:, at]
        if link is None:
            return np.zeros(len(seconds))
        group = link.group
        if group.parallel is Parallel.CONTEXT:
            return framework.hides_context * seconds
        if group.parallel is Parallel.EXPERT:
            return framework.hides_experts * seconds
        overlap, hidden = framework.tensor_overlap, np.zeros(len(seconds))
        if overlap in (TensorOverlap.WEIGHT_GRADIENT, TensorOverlap.EITHER):
            hidden = np.minimum(seconds, self._twins_s(at))
        if overlap in (TensorOverlap.CHUNKED, TensorOverlap.EITHER):
            longest = self.alone_s[:, self._near(at)].max(axis=1, initial=0.0)
            hidden = np.maximum(hidden, np.minimum(seconds, longest) * (1 - 1 / group.size))
        return hidden

    def _near(self, at: int) -> list[int]:
        """Products that a collective feeds or empties."""
        found = [b for a, b in self.pass_.edges if a == at] + [a for a, b in self.pass_.edges if b == at]
        return [i for i in found if self.works[i].gemms]

    def _twins_s(self, at: int) -> Floats:
        """The other gradient products of the weights that a collective's own belong to, which do not wait for it."""
        own = self._near(at)
        weights = {weight for i in own if (weight := _weight(self.works[i])) is not None}
        others = [i for i, w in enumerate(self.works) if i not in own and _weight(w) in weights]
        return _summed(self.alone_s, np.array(others, dtype=np.intp))


def _summed(seconds: Floats, at: Rows) -> Floats:
    """Sums of some columns, (A,): each row in memory by itself, so that it sums to the same bits among any others."""
    total: Floats = seconds.take(at, axis=1).sum(axis=1)
    return total


def _weight(work: Work) -> str | None:
    """Name after which the gradient product of a weight or of its input goes; None for other operators."""
    product, _, kind = work.name.split("+")[0].rpartition(".")
    return product if work.gemms and kind in ("dX", "dW") else None


@dataclass(frozen=True)
class OperatorCosts:
    """Operators on the architectures of a model, whose links have bandwidths (A,), as a framework runs them.

    Each is costed once, and many at once sooner than one by one.
    """

    model: CostModel
    framework: Framework
    link_bytes_per_s: Floats
    _known: dict[Work, list[float]] = field(default_factory=dict)
    _layers: dict[Hashable, tuple[Layer, Any]] = field(default_factory=dict)

    def once(
        self, layers: Sequence[Layer], key: Hashable, work_out: Callable[[Sequence[Layer]], Sequence[T]]
    ) -> list[T]:
        """What is asked for of some layers, by a key; of those not asked for before, which chains share, at once."""
        new = list({id(one): one for one in layers if (id(one), key) not in self._layers}.values())
        if new:
            found = zip(new, work_out(new), strict=True)
            self._layers.update({(id(one), key): (one, answer) for one, answer in found})
        return [self._layers[id(one), key][1] for one in layers]

    def seconds(self, works: Sequence[Work]) -> Floats:
        """Each operator in its faster mode, or its collective, (A, O)."""
        try:
            known = [self._known[w] for w in works]
        except KeyError:
            self.learn(works)
            known = [self._known[w] for w in works]
        seconds = np.array(known, dtype=np.float64).reshape(len(works), len(self.link_bytes_per_s))
        return np.ascontiguousarray(seconds.T)

    def learn(self, works: Sequence[Work]) -> None:
        """Cost those that are not known yet, all at once."""
        new = [w for w in dict.fromkeys(works) if w not in self._known]
        if new:
            rows = np.arange(len(self.link_bytes_per_s))
            self._known.update(zip(new, self.model.fastest_s(new, rows).T.tolist(), strict=True))

    def costed(self, *passes: Pass, experts: bool) -> Operators:
        """Operators of a pass, or of several of one structure, as of `Operators.alike`.

        `experts`: whether the layer has some, whose products have room for more rows.
        """
        each = tuple(with_score_passes(p, self.framework) for p in passes)
        shape = len(self.link_bytes_per_s), len(each), len(each[0].works)
        alone_s = self.seconds([w for p in each for w in p.works]).reshape(shape).swapaxes(0, 1)
        rows = np.ascontiguousarray(alone_s).reshape(shape[0] * shape[1], shape[2])
        return operators(
            each, rows, self.framework, (self.model.network, self.link_bytes_per_s), experts=experts
        )


def operators(
    passes: Sequence[Pass],
    alone_s: Floats,
    framework: Framework,
    links: tuple[Network, Floats],
    *,
    experts: bool,
) -> Operators:
    """Operators of passes of one structure that take so long alone, (A, O), as a framework runs them.

    `links`: the network and the bandwidths of the chips' own links in bytes/s, as many as rows of each pass; `experts`:
    whether the layer has some, whose products have room for more rows.
    """
    works, (network, link_bytes_per_s) = passes[0].works, links
    link = np.array([w.unit is Unit.LINK for w in works], dtype=np.bool_)
    link_s = np.where(link, np.minimum(alone_s, NEVER_S), 0.0)
    own = np.where(link, 0.0, alone_s * [stretch_of(w, framework) for w in works])
    for at, work in enumerate(works):
        if framework.merges_copies and work.link is not None and work.link.copies.count > 1:
            merging = [one for p in passes if (one := p.works[at].link) is not None]
            link_s[:, at] = merged_s(merging, network, link_bytes_per_s).ravel()
    room = framework.expert_room if experts else 1.0
    padded = own * [room if any(g.groups > 1 for g in w.gemms) else 1.0 for w in works]
    total = own.sum(axis=1)
    longer = np.divide(padded.sum(axis=1), total, out=np.ones(len(total)), where=total > 0)
    return Operators(passes[0], padded, link_s, longer, tuple(passes))


def with_score_passes(pass_: Pass, framework: Framework) -> Pass:
    """The pass with the kernels that read the scores of the vocabulary beside its loss."""
    if not framework.score_passes:
        return pass_
    metrics = tuple(
        Work(
            f"{w.name}.metrics",
            "elementwise",
            Unit.VECTOR,
            stream_bytes=framework.score_passes * w.stream_bytes,
        )
        for w in scored(pass_)
    )
    return replace(pass_, works=(*pass_.works, *metrics)) if metrics else pass_


def scored(pass_: Pass) -> list[Work]:
    """Operators of a pass that read the scores of the vocabulary for its loss."""
    return [w for w in pass_.works if w.kind == OpKind.LOSS and not w.name.endswith(".dX")]


def stretch_of(work: Work, framework: Framework) -> float:
    """How much longer a framework's kernel takes than that of the cost model, beyond what all of its kernels do."""
    if work.flash is not None:
        return framework.attention_stretch
    return framework.vector_stretch if work.unit is Unit.VECTOR else 1.0


def recomputed_operators(
    forward: Operators, backward: Operators, framework: Framework, kept: Set[str], *, ends: bool
) -> Operators:
    """Operators of forward that full recompute runs again, where the results of `kept` ones are spared.

    `ends`: whether the layer ends what is recomputed together.
    """
    runs = runs_again(forward.pass_, kept, ends=ends, prunes=framework.prunes_recompute)
    if framework.stops_early:
        runs &= _before_last_product(forward, _not_regathered(forward, backward), ends=ends)
    return forward.only(np.flatnonzero(runs).tolist())


def _not_regathered(forward: Operators, backward: Operators) -> Flags:
    """Operators of forward that backward does not run again by itself, (O,)."""
    named = {w.name for w in backward.works}
    return np.array([f"{w.name}.again" not in named for w in forward.works], dtype=np.bool_)


def _before_last_product(forward: Operators, runs: Flags, *, ends: bool) -> Flags:
    """None of them, (O,), from the last product of a layer that `ends`: backward reads its operands, not its result."""
    products = [at for at, w in enumerate(forward.works) if runs[at] and w.gemms and w.flash is None]
    end = products[-1] if products and ends else len(forward.works)
    return runs & (np.arange(len(runs)) < end)
