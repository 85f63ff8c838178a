"""Operators of one pass on one architecture, each alone, and what hides the collectives among them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel
from phaze.placement.options import NEVER_S
from phaze.placement.strategy.again import runs_again
from phaze.placement.strategy.experts import merged_s
from phaze.placement.strategy.framework import Framework, TensorOverlap
from phaze.workload.degrees import Parallel
from phaze.workload.ir import OpKind
from phaze.workload.work import Pass, Unit, Work

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Operators:
    """Operators of one pass, and each one's seconds alone, (O,); 0 in the one where it is the other.

    `longer`: all of them over what they take without the room that experts have.
    """

    pass_: Pass
    alone_s: Floats
    link_s: Floats
    longer: float = 1.0

    @property
    def works(self) -> Sequence[Work]:
        """The operators."""
        return self.pass_.works

    @property
    def total_s(self) -> float:
        """Computation, one after the other."""
        return float(self.alone_s.sum())

    def sum_s(self, which: Sequence[bool]) -> float:
        """Computation of some of them, (O,)."""
        return float(self.alone_s[np.asarray(which, dtype=np.bool_)].sum())

    def only(self, kept: Sequence[int]) -> Operators:
        """Those at some positions."""
        place = {old: new for new, old in enumerate(kept)}
        edges = tuple((place[a], place[b]) for a, b in self.pass_.edges if a in place and b in place)
        pass_ = Pass(tuple(self.works[i] for i in kept), edges)
        at = np.array(kept, dtype=np.intp)
        return Operators(pass_, self.alone_s[at], self.link_s[at], self.longer)

    def hidden_s(self, at: int, framework: Framework) -> float:
        """Seconds of the collective at a position that run beside computation."""
        link, seconds = self.works[at].link, float(self.link_s[at])
        if link is None:
            return 0.0
        group = link.group
        if group.parallel is Parallel.CONTEXT:
            return framework.hides_context * seconds
        if group.parallel is Parallel.EXPERT:
            return framework.hides_experts * seconds
        if framework.tensor_overlap is TensorOverlap.WEIGHT_GRADIENT:
            return min(seconds, self._twins_s(at))
        if framework.tensor_overlap is TensorOverlap.CHUNKED:
            longest = max((float(self.alone_s[i]) for i in self._near(at)), default=0.0)
            return min(seconds, longest) * (1 - 1 / group.size)
        return 0.0

    def _near(self, at: int) -> list[int]:
        """Products that a collective feeds or empties."""
        found = [b for a, b in self.pass_.edges if a == at] + [a for a, b in self.pass_.edges if b == at]
        return [i for i in found if self.works[i].gemms]

    def _twins_s(self, at: int) -> float:
        """The other gradient products of the weights that a collective's own belong to, which do not wait for it."""
        own = self._near(at)
        weights = {weight for i in own if (weight := _weight(self.works[i])) is not None}
        others = (i for i, w in enumerate(self.works) if i not in own and _weight(w) in weights)
        return float(sum(self.alone_s[i] for i in others))


def _weight(work: Work) -> str | None:
    """What the gradient product of a weight or of its input is named after; None for other operators."""
    product, _, kind = work.name.split("+")[0].rpartition(".")
    return product if work.gemms and kind in ("dX", "dW") else None


@dataclass(frozen=True)
class Costs:
    """Operators on the one architecture of a model, whose links have a bandwidth, as a framework runs them.

    Each is costed once, and many at once sooner than one by one.
    """

    model: CostModel
    framework: Framework
    link_bytes_per_s: float
    _known: dict[Work, float] = field(default_factory=dict)

    def seconds(self, works: Sequence[Work]) -> Floats:
        """Each operator in its faster mode, or its collective, (O,)."""
        new = [w for w in dict.fromkeys(works) if w not in self._known]
        if new:
            self._known.update(zip(new, self.model.fastest_s(new, 0).tolist(), strict=True))
        return np.array([self._known[w] for w in works], dtype=np.float64)

    def costed(self, pass_: Pass, *, experts: bool) -> Operators:
        """Operators of a pass; `experts`: whether the layer has some, whose products have room for more rows."""
        pass_ = measured(pass_, self.framework)
        works, alone_s = pass_.works, self.seconds(pass_.works)
        link = np.array([w.unit is Unit.LINK for w in works], dtype=np.bool_)
        link_s = np.where(link, np.minimum(alone_s, NEVER_S), 0.0)
        own = np.where(link, 0.0, alone_s * [_stretch(w, self.framework) for w in works])
        for at, work in enumerate(works):
            if self.framework.merges_copies and work.link is not None and work.link.copies > 1:
                link_s[at] = merged_s(work.link, self.model.network, self.link_bytes_per_s)
        room = self.framework.expert_room if experts else 1.0
        padded = own * [room if any(g.groups > 1 for g in w.gemms) else 1.0 for w in works]
        longer = float(padded.sum() / own.sum()) if own.sum() > 0 else 1.0
        return Operators(pass_, padded, link_s, longer)


def measured(pass_: Pass, framework: Framework) -> Pass:
    """The pass with the kernels that read the scores of the vocabulary beside its loss."""
    if not framework.score_passes:
        return pass_
    read = [w for w in pass_.works if w.kind == OpKind.LOSS and not w.name.endswith(".dX")]
    metrics = tuple(
        Work(
            f"{w.name}.metrics",
            "elementwise",
            Unit.VECTOR,
            stream_bytes=framework.score_passes * w.stream_bytes,
        )
        for w in read
    )
    return replace(pass_, works=(*pass_.works, *metrics)) if metrics else pass_


def _stretch(work: Work, framework: Framework) -> float:
    if work.flash is not None:
        return framework.attention_stretch
    return framework.vector_stretch if work.unit is Unit.VECTOR else 1.0


def recomputing(
    forward: Operators, backward: Operators, framework: Framework, kept: Set[str], *, ends: bool
) -> Operators:
    """Those of forward that full recompute runs again, where the results of `kept` ones are spared.

    `ends`: whether the layer ends what is recomputed together.
    """
    if framework.stops_early:
        return _until_last_product(_without_regathers(forward, backward), ends=ends)
    runs = runs_again(forward.pass_, kept, ends=ends, prunes=framework.prunes_recompute)
    return forward.only(np.flatnonzero(runs).tolist())


def _without_regathers(forward: Operators, backward: Operators) -> Operators:
    """Forward without what backward runs again by itself."""
    again = {w.name for w in backward.works}
    return forward.only([at for at, w in enumerate(forward.works) if f"{w.name}.again" not in again])


def _until_last_product(forward: Operators, *, ends: bool) -> Operators:
    """Nothing from the last product on where a layer `ends`: backward reads its operands, not its result."""
    products = [at for at, w in enumerate(forward.works) if w.gemms and w.flash is None]
    end = products[-1] if products and ends else len(forward.works)
    return forward.only(range(end))
