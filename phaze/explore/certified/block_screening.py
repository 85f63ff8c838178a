"""The stages that see every point: roofline, work, path, and exchanges where these say next to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.explore.certified.search_state import BoundStage, PointPool, Relevance
from phaze.explore.certified.workload_bounds import roofline_throughput
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.drawn_power import DrawnPower
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.frontier.point_values import PointValues, known_columns
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.tolerances import BOUND_ROUNDING

FAR = 4.0  # times what is wanted of a point: with such a bound something other than work is likely to hold it up
MANY_FAR = 1 << 12  # such points of a config for whose exchanges plans are fitted
WORTH = 1.05  # times what one config promises, another one has to promise where a few good points are enough

_OPERATORS_AT_ONCE = 1 << 25
"""Operators of all layers times architectures that are costed between two looks at the clock."""


def half_over(clock: Clock) -> Callable[[], bool]:
    """Whether half of the time that is left now is over."""
    half = clock.left() / 2
    return lambda: clock.over or clock.left() < half


def worthwhile(hope: Floats, known: Floats) -> Rows:
    """Rows where a config may reach enough more than is known, (A,) each."""
    return np.flatnonzero(hope > WORTH * known)


def in_order(hopes: Sequence[tuple[int, Floats]]) -> list[tuple[int, Floats]]:
    """Configs with what they promise, those that promise most first."""
    return sorted(hopes, key=lambda hope: -float(hope[1].sum()))


@dataclass(frozen=True)
class Screened:
    """Screened block: what is left of it, and where the rest fell.

    `spared`: others and optimistic throughput of what was let go without proof: for the slack, or as time is over.
    """

    pool: PointPool
    fallen: Counter[str]
    spared: list[tuple[Floats, Floats]]


class Screen:
    """Bounds all points of blocks of candidates against what is known; nothing is evaluated."""

    def __init__(
        self,
        evaluator: Evaluator,
        axes: SearchAxes,
        relevance: Relevance,
        clock: Clock,
        longest_s: float = np.inf,
        drawn_limit_w: float | None = None,
    ) -> None:
        """`evaluator` shares its costs with the blocks where it knows their combinations.

        Points that take more than `longest_s` seconds, or draw more than `drawn_limit_w`, do not count.
        """
        self._evaluator = evaluator
        self._axes = axes
        self._relevance = relevance
        self._clock = clock
        self._longest_s = longest_s
        self._drawn_limit_w = drawn_limit_w
        self._batch = float(evaluator.task.cluster.global_batch)

    def view(self, block: Block) -> PointValues:
        """Values of the points of some candidates."""
        known = known_columns(block, self._evaluator.task.economics)
        limits = self._longest_s, self._drawn_limit_w
        return PointValues(self._evaluator.on(block.table), known, self._axes, *limits)

    def _peaks(self, block: Block) -> PointValues:
        """The same where only peaks are asked for, which costs a small part of that."""
        view = PointValues(
            self._evaluator.uncosted(block.table),
            known_columns(block, self._evaluator.task.economics),
            self._axes,
            self._longest_s,
        )
        return view if self._drawn_limit_w is None else self.view(block)

    def roof(self, table: ArchitectureTable) -> Floats:
        """Throughput of the model's FLOPs at peak on all devices, (A,), as far as what is drawn allows it."""
        found = roofline_throughput(self._evaluator, table)
        if self._drawn_limit_w is None:
            return found
        evaluator, rows = self._evaluator.on(table), np.arange(len(table))
        drawn = DrawnPower(Measures(evaluator), self._drawn_limit_w)
        each = {config.recipe: config for config in evaluator.configs}.values()
        least_s = [drawn.least_s(config, rows, work=False) for config in each]
        with np.errstate(divide="ignore"):  # no limit at all for chips held to less than it
            return np.asarray(np.minimum(found, self._batch / np.min(least_s, axis=0)))

    def _drawn(self, evaluator: Evaluator) -> DrawnPower | None:
        limit_w = self._drawn_limit_w
        return None if limit_w is None else DrawnPower(Measures(evaluator), limit_w)

    def run(self, block: Block, taken: PointPool, some: Sequence[int] | None = None) -> Screened:
        """All three stages over a block, of its points in some configs (None: in all).

        Points that are `taken` already are passed over. Once time is over only the roofline is looked at, and what it
        leaves stays open, below what is known by then of the whole space.
        """
        which = range(len(self._evaluator.configs)) if some is None else some
        passed = taken if some is None else taken.take(np.isin(taken.config, which))
        sieve = _Sieve(self._relevance, block, passed, self._axes)
        over = self._clock.over
        roof = self._roofs(self._peaks(block), block, self._known_least_s(block, which) if over else 0.0)
        alive = sieve.under_the_roof(*roof, len(which))
        if over:
            sieve.leave_open(alive, roof[0][alive], roof[1][alive], len(which))
            return Screened(PointPool.empty(), sieve.fallen, sieve.spared)
        view, under = self.view(block.take(alive)), (roof[0][alive], roof[1][alive])
        left = self._survivors(view, alive, under, sieve, which)
        found = [
            pool_of(block, alive[rows], np.full(len(rows), k), *values)
            for k, rows, *values in left
            if len(rows)
        ]
        return Screened(PointPool.join(found), sieve.fallen, sieve.spared)

    def _known_least_s(self, block: Block, which: Sequence[int]) -> float:
        """Seconds that all points of a block take in some configs, if known."""
        return self._evaluator.known_least_s([self._evaluator.configs[k] for k in which], block.table)

    def _roofs(self, view: PointValues, block: Block, least_s: float) -> tuple[Floats, Floats]:
        """Values that no point of each candidate is better than: model FLOPs at peak, `least_s` for an iteration."""
        rows = np.arange(len(block))
        with np.errstate(divide="ignore"):  # nothing runs where standing power alone is too much
            seconds = np.maximum(self._batch / self.roof(block.table), least_s)
        each = {config.recipe: config for config in self._evaluator.configs}.values()
        values = [view.optimistic(config, rows, seconds, work=False) for config in each]
        return np.min([others for others, _ in values], axis=0), np.max([lead for _, lead in values], axis=0)

    def promising(self, table: ArchitectureTable) -> Floats:
        """Bounds of points of some architectures where much may be had, throughput (configs, A); 0 elsewhere.

        Configs of the highest roofline come first, others only where that promises more than is found. Points for
        which half of the time that is left is not enough are left out.
        """
        evaluator, late = self._evaluator.on(table), half_over(self._clock)
        roof = self.rooflines(evaluator, late)
        if self._drawn_limit_w is not None:
            roof = np.minimum(roof, self.roof(table))
        found = np.zeros_like(roof)
        for level in np.unique(roof[:, 0])[::-1]:
            above = (roof > WORTH * found.max(axis=0)).any(axis=1)
            hopes = self.hopes(evaluator, np.flatnonzero(above & (roof[:, 0] == level)))
            for at, (k, hope) in enumerate(hopes):
                if found.any() and late():
                    return found
                known = found.max(axis=0)
                if len(open_ := worthwhile(hope, known)):
                    seconds = self.bound_s(evaluator, hopes[at:], known)
                    found[k, open_] = np.minimum(self._optimistic(seconds), hope[open_])
        return found

    def rooflines(self, evaluator: Evaluator, late: Callable[[], bool]) -> Floats:
        """Throughput of FLOPs at peak in every config, (configs, A); 0 where it is too late to find out."""
        roof = np.zeros((len(evaluator.configs), len(evaluator.table)))
        for k, config in enumerate(evaluator.configs):
            if k == 0 or not late():
                roof[k] = self._optimistic(evaluator.roofline_s(config))
        return roof

    def bound_s(self, evaluator: Evaluator, hopes: Sequence[tuple[int, Floats]], known: Floats) -> Floats:
        """Bounds of the first of some configs, seconds, for architectures of which it promises enough more than known.

        `hopes`: throughput (A,) that each may reach at most, `known` what others are bounded by.
        """
        k, open_, give_up_s = self.asked(hopes[0], known)
        return evaluator.iteration_bound(evaluator.configs[k], open_, give_up_s)

    def asked(self, hope: tuple[int, Floats], known: Floats) -> tuple[int, Rows, Floats]:
        """A config, rows where it promises enough, and seconds beyond which they are of no interest."""
        open_ = worthwhile(hope[1], known)
        return hope[0], open_, self._batch / np.maximum(known[open_], 1e-300)

    def hopes(self, evaluator: Evaluator, some: Rows) -> list[tuple[int, Floats]]:
        """Configs with the throughput of all architectures, (A,), that work leaves: those that promise most first."""
        rows, hopes = np.arange(len(evaluator.table)), list[tuple[int, Floats]]()
        drawn = self._drawn(evaluator)
        for k in some.tolist():
            if hopes and self._clock.over:
                break
            config = evaluator.configs[k]
            least_s = evaluator.iteration_bound(config, rows, np.zeros(len(rows)))
            least_s = least_s if drawn is None else np.maximum(least_s, drawn.least_s(config, rows))
            hopes.append((k, self._optimistic(least_s)))
        return in_order(hopes)

    def _survivors(
        self,
        view: PointValues,
        alive: Rows,
        roof: tuple[Floats, Floats],
        sieve: _Sieve,
        some: Sequence[int],
    ) -> Iterator[tuple[int, Rows, Floats, Floats]]:
        """Number of a config, rows of the view that all stages leave of it, and their optimistic values.

        `roof`: values that no config is better than; points for which no time is left stay open below them.
        """
        evaluator, late = view.evaluator, self._clock.half_over
        leader = self._leader(roof[0]) if late and len(alive) else (0, 0.0)
        for k in some:
            config, free = evaluator.configs[k], sieve.free(alive, k)
            if self._clock.over:
                sieve.leave(alive[free], roof[0][free], self._left_open(view, config, free, roof[1]))
                continue
            able = sieve.able(free, evaluator.takes(config), evaluator.holds(config))
            if late and len(able):
                self._bound_all(view, config, leader)
            under = self._under(view, config, sieve, alive, able)
            for part in self._parts(evaluator, config, under):
                if self._clock.over:
                    left = self._left_open(view, config, part, roof[1])
                    sieve.leave(alive[part], roof[0][part], left)
                    continue
                yield from self._costed(view, k, sieve, alive, part)

    def _parts(self, evaluator: Evaluator, config: TrainingConfig, rows: Rows) -> list[Rows]:
        """Rows that are costed between two looks at the clock: fewer of models of many operators."""
        if not len(rows):
            return []
        count = evaluator.timed(config).operators * len(rows)
        return np.array_split(rows, max(1, -(-count // _OPERATORS_AT_ONCE)))

    def _costed(
        self, view: PointValues, k: int, sieve: _Sieve, alive: Rows, rows: Rows
    ) -> Iterator[tuple[int, Rows, Floats, Floats]]:
        """What work and path leave of rows of a config, and their optimistic values: nothing where no row is left."""
        evaluator, config = view.evaluator, view.evaluator.configs[k]
        least_s, known = np.zeros(len(evaluator.table)), evaluator.fitted_once(config)
        if known:
            rows = self._exchanging(view, config, sieve, alive, rows, least_s)
        rows = self._at_few_clocks(view, config, sieve, alive, rows)
        if not len(rows):
            return  # its layers need not be costed, or not at every clock
        least_s[rows] = np.maximum(least_s[rows], evaluator.work_bound(config, rows))
        values = view.optimistic(config, rows, least_s[rows])
        kept = sieve.keep("work", *values, alive[rows])
        rows = rows[kept]
        give_up_s = self._give_up_s(view, config, rows, values[0][kept])
        least_s[rows] = np.maximum(least_s[rows], evaluator.path_bound(config, rows, give_up_s))
        rows = rows[sieve.keep("critical_path", *view.optimistic(config, rows, least_s[rows]), alive[rows])]
        if not known:
            rows = self._exchanging(view, config, sieve, alive, rows, least_s)
        yield k, rows, *view.optimistic(config, rows, least_s[rows])

    def _exchanging(
        self,
        view: PointValues,
        config: TrainingConfig,
        sieve: _Sieve,
        alive: Rows,
        rows: Rows,
        least_s: Floats,
    ) -> Rows:
        """Those of some rows that exchanges leave, where many are much faster than they have to be without them.

        What each takes at least is put into `least_s`, for all candidates, in which what is known is told.
        """
        evaluator = view.evaluator
        wanted = 1 if evaluator.fitted_once(config) else MANY_FAR
        if len(rows) < wanted:
            return rows
        known_s = np.maximum(least_s[rows], evaluator.roofline_s(config)[rows])
        others, lead = view.optimistic(config, rows, known_s, work=False)
        least = sieve.least(others, alive[rows])
        far = lead > FAR * least
        if np.count_nonzero(far & (least > 0)) < wanted:
            return rows
        at, give_up_s = rows[far], view.give_up_s(config, rows[far], least[far])
        least_s[at] = np.maximum(least_s[at], evaluator.exchange_bound(config, at, give_up_s))
        values = view.optimistic(config, rows, np.maximum(least_s[rows], known_s), work=False)
        return rows[sieve.keep("exchanges", *values, alive[rows])]

    def _leader(self, others: Floats) -> tuple[int, float]:
        """The candidate of those other columns (A, k) of which most is wanted, and what."""
        wanted = self._relevance.least(others)
        row = int(wanted.argmax())
        return row, float(wanted[row])

    def _bound_all(self, view: PointValues, config: TrainingConfig, leader: tuple[int, float]) -> None:
        """Bound the whole space in a config, in case that there is no time for what comes next.

        With exchanges where without them it says next to nothing of the leader.
        """
        row, lead = leader
        wanted_s = view.give_up_s(config, np.array([row]), np.array([lead]))[0]
        if FAR * view.evaluator.least_s(config) < wanted_s < np.inf:
            view.evaluator.least_s(config, exchanges=True)

    def _left_open(self, view: PointValues, config: TrainingConfig, rows: Rows, roof: Floats) -> Floats:
        """What leads of points of a config for which no time is left, at most."""
        least_s = np.full(len(rows), view.evaluator.known_least_s([config]))
        lead = view.optimistic(config, rows, least_s, work=False)[1] if (least_s > 0).all() else roof[rows]
        return np.minimum(lead, roof[rows])

    def _under(
        self, view: PointValues, config: TrainingConfig, sieve: _Sieve, alive: Rows, rows: Rows
    ) -> Rows:
        """Those of some rows that the roofline of a config leaves."""
        values = view.optimistic(config, rows, view.evaluator.roofline_s(config)[rows], work=False)
        return rows[sieve.keep("roofline", *values, alive[rows])]

    def _at_few_clocks(
        self, view: PointValues, config: TrainingConfig, sieve: _Sieve, alive: Rows, rows: Rows
    ) -> Rows:
        """Those of some rows that the work of a config leaves where it is costed at a few of the clocks alone."""
        least_s = view.evaluator.work_bound_at_few_clocks(config, rows) if len(rows) else None
        if least_s is None:
            return rows
        return rows[sieve.keep("work", *view.optimistic(config, rows, least_s), alive[rows])]

    def _give_up_s(self, view: PointValues, config: TrainingConfig, rows: Rows, others: Floats) -> Floats:
        """Iteration times above which points cannot matter, (A,), where a bound makes use of them."""
        if self._evaluator.task.memory_bytes is None:
            return np.zeros(len(rows))
        return view.give_up_s(config, rows, self._relevance.least(others))

    def _optimistic(self, seconds: Floats) -> Floats:
        return self._batch / seconds * (1 + BOUND_ROUNDING)


class _Sieve:
    """One block: what its candidates must promise, and where their points fall."""

    def __init__(self, relevance: Relevance, block: Block, taken: PointPool, axes: SearchAxes) -> None:
        self._relevance, self._count = relevance, len(block)
        self._least: Floats | None = None
        self._fixed = axes.fixed
        at = np.minimum(np.searchsorted(block.numbers, taken.number), max(len(block) - 1, 0))
        here = block.numbers[at] == taken.number if len(block) else np.zeros(len(taken), dtype=bool)
        self._taken_row, self._taken_setting = at[here], taken.config[here]
        self.fallen: Counter[str] = Counter()
        self.spared: list[tuple[Floats, Floats]] = []

    def under_the_roof(self, others: Floats, roof: Floats, configs: int) -> Rows:
        """Rows of the candidates whose roofline can matter; all points of the others fall."""
        if self._fixed:
            self._least = self._relevance.least(others)
        kept = self._kept(others, roof, np.arange(len(roof)))
        self.fallen["floor"] += self._points(roof < 0, configs)
        self.fallen["roofline"] += self._points(~kept & (roof >= 0), configs)
        return np.flatnonzero(kept)

    def leave_open(self, rows: Rows, others: Floats, lead: Floats, configs: int) -> None:
        """Count all points of some candidates as undecided."""
        there = np.zeros(self._count, dtype=bool)
        there[rows] = True
        self.fallen["open"] += self._points(there, configs)
        self.spared.append((others, lead))

    def leave(self, rows: Rows, others: Floats, lead: Floats) -> None:
        """Count one point of each of some candidates as undecided."""
        self.fallen["open"] += len(rows)
        self.spared.append((others[lead > 0], lead[lead > 0]))

    def free(self, rows: Rows, k: int) -> Rows:
        """Positions in `rows` whose points in config k are not taken."""
        mine = self._taken_row[self._taken_setting == k]
        return np.flatnonzero(~np.isin(rows, mine)) if len(mine) else np.arange(len(rows))

    def able(self, rows: Rows, takes: Flags, holds: Flags) -> Rows:
        """Those of `rows` that take the formats of a config and whose memory may hold it; others are counted."""
        if takes.all() and holds.all():
            return rows
        self.fallen["format"] += int((~takes[rows]).sum())
        self.fallen["memory"] += int((takes & ~holds)[rows].sum())
        return rows[(takes & holds)[rows]]

    def keep(self, stage: str, others: Floats, lead: Floats, rows: Rows) -> Rows:
        """Positions in optimistic values, of the candidates at `rows`, that can matter; the rest is counted."""
        kept = self._kept(others, lead, rows)
        self.fallen["memory"] += int((lead == 0).sum())
        self.fallen["floor"] += int((lead < 0).sum())
        self.fallen[stage] += int((~kept & (lead > 0)).sum())
        return np.flatnonzero(kept)

    def least(self, others: Floats, rows: Rows) -> Floats:
        """What candidates at `rows`, of those other columns (A, k), must promise, (A,)."""
        return self._relevance.least(others) if self._least is None else self._least[rows]

    def _kept(self, others: Floats, lead: Floats, rows: Rows) -> Flags:
        """Which optimistic values can matter, (A,); what falls for the slack alone is remembered."""
        least = self.least(others, rows)
        kept = (lead >= least) & (lead > 0)
        if self._relevance.slack > 1.0:
            near = (lead < least) & (lead * self._relevance.slack >= least) & (lead > 0)
            self.spared.append((others[near], lead[near]))
        return kept

    def _points(self, which: Flags, configs: int) -> int:
        """Points of some candidates, without those that are taken."""
        return int(which.sum()) * configs - int(which[self._taken_row].sum())


def pool_of(block: Block, rows: Rows, configs: Rows, others: Floats, bound: Floats) -> PointPool:
    """Points of candidates at some rows of a block, in some configs, with their optimistic values."""
    return PointPool(
        block.numbers[rows],
        configs.astype(np.int16),
        others,
        block.area_mm2[rows],
        bound,
        np.full(len(rows), BoundStage.PATH, dtype=np.int8),
    )
