"""Designs of one training configuration that may be one of the best two: those that no other one dominates.

A design matters to a pipeline by the time that every kind of layers takes on it, its optimizer step, its memory and its
link, and by nothing else. Thousands of candidates share few such figures, and some dozen are dominated by no other
one: pairs of these are all pairs. What is not known exactly is bounded: a design stands for all that its least times
dominate, and is worked out only where a pair with it may be better than what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.parallel.plan_batches.cut_pipelines import GroupTimes
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING

_AT_ONCE = 1 << 16  # designs whose least times are worked out together
_PAIRS = 2048  # pairs that are bounded together


@dataclass(frozen=True)
class Figures:
    """Designs that are told apart, (N,): `rows` of the evaluator, and all that a pipeline has of them.

    `lower`, `upper` (N, 3 K + 3): seconds of every kind of layers forward, again and backward, seconds of a step per
    parameter, and memory and link less than none, so that less is always better. `upper` is infinite where nothing is
    worked out. `exact`: whether both are the same but for what solvers left open.
    """

    rows: Rows
    lower: Floats
    upper: Floats
    exact: Flags

    def __len__(self) -> int:
        """How many."""
        return len(self.rows)

    def take(self, at: Rows | Flags) -> Figures:
        """Some of them."""
        return Figures(self.rows[at], self.lower[at], self.upper[at], self.exact[at])

    @classmethod
    def joined(cls, parts: Sequence[Figures]) -> Figures:
        """All of some."""
        return cls(
            *(np.concatenate([getattr(one, name) for one in parts]) for name in cls.__dataclass_fields__)
        )


@dataclass(frozen=True)
class ConfigBounds:
    """Bounds of pipelines of two or more stages in one config, whatever the designs of their stages."""

    evaluator: Evaluator
    config: TrainingConfig

    @cached_property
    def options(self) -> ShapeOptions:
        """The pipelines."""
        return self.evaluator.options(self.config)

    @cached_property
    def kinds(self) -> int:
        """Kinds of groups of layers K."""
        return len(self.options.kinds[0])

    @cached_property
    def exists(self) -> bool:
        """Whether there is any."""
        return bool(self.options.depths)

    def least_s(self) -> float:
        """Lower bound of every pipeline whatever its devices are: as fast as any in everything, for next to nothing."""
        evaluator = self.evaluator
        takes = np.flatnonzero(evaluator.takes(self.config))
        if not len(takes):
            return inf
        factors = evaluator.model.factors
        sides = np.stack([factors.tensor_of, factors.memory_of, factors.simt_of], axis=1)[takes]
        rows = takes[distinct_rows(sides.astype(np.float64))[0]]
        least = evaluator.timed(self.config).tensor_bounds(rows)
        figures = _figures(evaluator, rows, evaluator.least_times(self.config, rows, least)).min(axis=0)
        figures[3 * self.kinds :] = _chip_figures(evaluator, takes, evaluator.optimizer_s[takes]).min(axis=0)
        return float(self.seconds(figures[None], inf)[0])

    def seconds(self, figures: Floats, give_up_s: float) -> Floats:
        """Lower bound of iterations, (P,), of devices that are each as fast as some figures (P, 3 K + 3), or slower.

        Where work alone does not get below `give_up_s`, bounds of that.
        """
        found = np.full(len(figures), inf)
        for start in range(0, len(figures), _PAIRS):
            part = slice(start, start + _PAIRS)
            found[part] = self._seconds(figures[part], give_up_s)
        return found

    def _seconds(self, figures: Floats, give_up_s: float) -> Floats:
        count, passes = len(figures), 3 * self.kinds
        rows = np.zeros((count, 7, self.kinds))
        rows[:, :3] = figures[:, :passes].reshape(count, 3, self.kinds)
        times, found = GroupTimes(rows, figures[:, passes]), self._open_cuts_s(rows)
        both, which = np.unique(-figures[:, passes + 1 :], axis=0, return_inverse=True)
        for k, (capacity, link) in enumerate(both.tolist()):
            at = np.flatnonzero(which.ravel() == k)
            across = self.evaluator.across(self.config, capacity, link)
            bound = across.bound_s(times.take(at), np.minimum(found[at], give_up_s))
            found[at] = np.minimum(found[at], bound)
        return found

    def _open_cuts_s(self, rows: Floats) -> Floats:
        """Lower bound of pipelines of one chunk on each device that are cut anywhere, (P,); infinite where none are.

        Loads l of stages that sum up to W take max over stages of (loads ahead + m l) seconds, least where all are
        equal: l falls by 1 - 1/m from stage to stage, so that it is W / (1 - (1 - 1/m)^p).
        """
        if not np.isfinite(self._least_share):
            return np.full(len(rows), inf)
        _, which = self.options.kinds
        each = rows[:, 0] + rows[:, 2] + self.options.recomputation * rows[:, 1]
        work_s = each @ np.bincount(which, minlength=self.kinds)
        own_s = self.options.layouts.framework.iteration_s
        return np.asarray((self._least_share * work_s + own_s) * (1 - BOUND_ROUNDING))

    @cached_property
    def _least_share(self) -> float:
        """Least seconds of such a pipeline per second that a microbatch takes in the whole model."""
        options, blocks = self.options, len(self.options.blocks)
        if not options.space.balances:
            return inf
        deep = [s for depth in options.depths for s in depth.pipelines]
        some = [s for s in deep if s.chunks == 1 < s.pipeline_parallel < blocks]
        turns = [(options.layouts.microbatches(s), s.pipeline_parallel) for s in some]
        return min((1 / (1 - (1 - 1 / m) ** p) for m, p in turns), default=inf)


@dataclass
class PairFrontier:
    """Designs of one config, of which those that may be of use are worked out step by step.

    `below_s`: iterations that have to be beaten. `pairs` (P, 2): rows of pairs that may do so, `bounds_s` (P,) their
    lower bounds, ascending; one of a design with itself stands for all that it stands for. `members`: rows that a row
    stands for. `ready`: whether all designs of the pairs are worked out.
    """

    bounds: ConfigBounds
    below_s: float
    figures: Figures
    members: dict[int, Rows]
    worked_out: int = 0
    ready: bool = False
    pairs: Rows = field(default_factory=lambda: np.empty((0, 2), dtype=np.intp))
    bounds_s: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, bounds: ConfigBounds, below_s: float) -> PairFrontier:
        """All candidates that take the config, by their least times; of those alike one stands for the others."""
        evaluator, config = bounds.evaluator, bounds.config
        takes, parts = np.flatnonzero(evaluator.takes(config)), []
        for start in range(0, len(takes), _AT_ONCE):
            rows = takes[start : start + _AT_ONCE]
            parts.append(_figures(evaluator, rows, evaluator.least_times(config, rows)))
        lower = np.concatenate(parts) if parts else np.empty((0, 3 * bounds.kinds + 3))
        first, which = distinct_rows(lower)
        each, order = lower[first], np.argsort(which, kind="stable")
        alike = np.split(takes[order], np.searchsorted(which[order], np.arange(1, len(each))))
        known = Figures(takes[first], each, np.full(each.shape, inf), np.zeros(len(each), dtype=np.bool_))
        return cls(bounds, below_s, known, dict(zip(known.rows.tolist(), alike, strict=True)))

    def step(self, effort: SolveLimits) -> None:
        """Leave out what cannot matter, and work out the designs of pairs that may."""
        self.figures = known = self._undominated()
        at = undominated(known.lower)
        one, other = np.triu_indices(len(at))
        figures = np.minimum(known.lower[at[one]], known.lower[at[other]])
        bounds_s = self.bounds.seconds(figures, self.below_s)
        bounds_s[(one == other) & known.exact[at[one]]] = inf  # one design for all is another question
        open_ = np.flatnonzero(bounds_s < self.below_s)
        open_ = open_[np.argsort(bounds_s[open_], kind="stable")]
        pairs = np.stack([at[one[open_]], at[other[open_]]], axis=1)
        self.pairs, self.bounds_s = known.rows[pairs], bounds_s[open_]
        useful = np.unique(pairs)
        coarse = useful[~known.exact[useful]]
        self.ready = not len(coarse)
        if len(coarse):
            self._work_out(coarse, np.setdiff1d(at, useful), effort)

    def taken(self) -> tuple[Rows, float] | None:
        """The most promising pair of designs that is left, by rows, and its bound; None where none is."""
        if not len(self.pairs):
            return None
        rows, bound_s = self.pairs[0], float(self.bounds_s[0])
        self.pairs, self.bounds_s = self.pairs[1:], self.bounds_s[1:]
        return rows, bound_s

    @property
    def bound_s(self) -> float:
        """Lower bound of every pair that is left; no less than what has to be beaten where none is."""
        return float(self.bounds_s.min(initial=self.below_s))

    def _undominated(self) -> Figures:
        """Those that no other one is proven to be at least as good as; of equal ones the first."""
        known = self.figures
        kept = np.ones(len(known), dtype=np.bool_)
        sure = np.flatnonzero(np.isfinite(known.upper).all(axis=1))
        for k in sure[undominated(known.upper[sure])].tolist():
            if kept[k]:
                kept &= (known.lower < known.upper[k]).any(axis=1)
                kept[k] = True
        return known.take(kept)

    def _work_out(self, at: Rows, useless: Rows, effort: SolveLimits) -> None:
        """Replace some by all that they stand for, exactly known; leave out what useless ones stand for."""
        known = self.figures
        kept = np.ones(len(known), dtype=np.bool_)
        for k in useless.tolist():
            kept &= (known.lower < known.lower[k]).any(axis=1)
        kept[at] = False
        rows = np.unique(np.concatenate([self.members[row] for row in known.rows[at].tolist()]))
        self.worked_out += len(rows)
        self.figures = Figures.joined([known.take(kept), self._exact(rows, effort)])

    def _exact(self, rows: Rows, effort: SolveLimits) -> Figures:
        evaluator, config = self.bounds.evaluator, self.bounds.config
        lower, upper = (
            _figures(evaluator, rows, evaluator.times(config, rows, times))
            for times in evaluator.timed(config).exact(rows, effort)
        )
        both, first = np.unique(np.concatenate([lower, upper], axis=1), axis=0, return_index=True)
        low, high = np.split(both, 2, axis=1)
        return Figures(rows[first], low, high, np.ones(len(first), dtype=np.bool_))


def _figures(evaluator: Evaluator, rows: Rows, times: GroupTimes) -> Floats:
    """Figures of designs whose groups take some times, (A, 3 K + 3)."""
    passes = times.rows[:, :3].reshape(len(rows), -1)
    return np.concatenate([passes, _chip_figures(evaluator, rows, times.optimizer_s)], axis=1)


def _chip_figures(evaluator: Evaluator, rows: Rows, optimizer_s: Floats) -> Floats:
    """The last three of them, (A, 3)."""
    held = -evaluator.capacity_bytes[rows], -evaluator.link_bytes_per_s[rows]
    return np.stack([optimizer_s, *held], axis=1)


def undominated(values: Floats) -> Rows:
    """Rows of which none is everywhere at most as large as another one, (n, d) distinct rows; in a fixed order."""
    order = np.argsort(values.sum(axis=1), kind="stable")
    kept: list[int] = []
    while len(order):
        kept.append(int(order[0]))
        order = order[1:][(values[order[1:]] < values[order[0]]).any(axis=1)]
    return np.array(kept, dtype=np.intp)


def distinct_rows(values: Floats) -> tuple[Rows, Rows]:
    """The first of all equal rows, and which of these every row is like: by a number of each, which is then checked."""
    weights = np.random.default_rng(0).random(values.shape[1])
    _, first, which = np.unique(values @ weights, return_index=True, return_inverse=True)
    if not (values == values[first[which]]).all():
        _, first, which = np.unique(values, axis=0, return_index=True, return_inverse=True)
    return first, which.ravel()
