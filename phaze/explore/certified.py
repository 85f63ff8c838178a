"""The certified search: bound every point, look at the most promising first, stop when nothing can be better.

Points over a budget are known without evaluating. The others fall at one of three stages, each tighter and
dearer than the one before:
  roofline    model FLOPs at peak: not even a perfect placement could matter
  path        critical-path and work bounds per layer, and the least time a placement of them can take
  placement   schedule bounds and the exact stage partition of them
What remains is evaluated: exact schedules, exact placement. A point matters only if its optimistic throughput
at its own TDP is not dominated by an evaluated point, so that the frontier is complete, and with it the
optimum of every objective that grows with throughput and falls with TDP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from phaze.explore.evaluator import Evaluator, PointBounds, Setting
from phaze.explore.frontier import Staircase
from phaze.explore.progress import Clock, Progress
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]

# Bounds are sums of some thousand rounded terms; they are relaxed by this much so that rounding never prunes.
ROUNDING = 1e-11
BATCH, EXACT_BATCH = 1024, 64  # points tightened, and scheduled exactly, together
FEW_STATES = 500  # of the first search for each schedule; most are proven by then, the others can wait
CLASSES, SAMPLE, SEEDS = 32, 48, 3  # power classes, architectures tried and points evaluated in each


class Stage(IntEnum):
    """How far a point got."""

    ROOFLINE = 0
    PATH = 1
    PLACEMENT = 2
    SEARCHED = 3  # schedules searched for a while
    EXHAUSTED = 4  # searched until time was over
    EXACT = 5


@dataclass
class Outcome:
    """Everything a search found out; throughput in samples per second, per architecture row.

    `open_bound` (A,): optimistic throughput of what is left undecided, 0 where all is settled.
    """

    pruned_by: dict[str, int] = field(default_factory=dict)
    evaluated: dict[tuple[int, Setting], float] = field(default_factory=dict)
    staircase: Staircase = field(default_factory=Staircase)
    open_bound: FloatArray = field(default_factory=lambda: np.zeros(0))
    finished: bool = False

    def best_per_row(self) -> dict[int, tuple[float, Setting]]:
        """Throughput and setting of the best evaluated point of every architecture looked at."""
        best: dict[int, tuple[float, Setting]] = {}
        for (row, setting), throughput in self.evaluated.items():
            if row not in best or throughput > best[row][0]:
                best[row] = throughput, setting
        return best


class CertifiedSearch:
    """Runs the search over the architectures of one evaluator's table, all of them within budget."""

    def __init__(
        self,
        evaluator: Evaluator,
        tdp_w: FloatArray,
        area_mm2: FloatArray,
        clock: Clock,
        progress: Progress,
        gap: float = 0.0,
    ) -> None:
        self._evaluator = evaluator
        self._tdp = tdp_w
        self._area = area_mm2
        self._clock = clock
        self._slack = 1.0 + gap  # a point that is better by less than this does not matter
        self._progress = progress
        self._settings = evaluator.settings
        self._batch = float(evaluator.task.cluster.global_batch)
        self.outcome = Outcome()
        # Optimistic throughput per (setting, architecture); 0 where nothing fits in memory.
        self._bound = np.full((len(self._settings), len(tdp_w)), np.inf)
        self._stage = np.full(self._bound.shape, Stage.ROOFLINE, dtype=np.int8)
        # Throughput that some plan reaches: the best steps, and points whose best plan is not known yet.
        self._known = Staircase()
        self._reached: dict[tuple[int, Setting], float] = {}
        self._open: tuple[Rows, Rows] = (np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))
        self._leading = 0
        self._roof: FloatArray = np.full(len(tdp_w), np.inf)

    def run(self) -> Outcome:
        """Search until nothing can be better or time is over."""
        self._roofline()
        self._seed()
        self._paths()
        self._refine()
        self._close()
        return self.outcome

    # -- stages of bounding -------------------------------------------------------------------------------

    def _roofline(self) -> None:
        peak = self._evaluator.sustained_flops_per_s * self._evaluator.task.cluster.devices
        self._roof = self._batch * peak / self._evaluator.model_flops * (1 + ROUNDING)
        self._bound[:] = self._roof

    def _seed(self) -> None:
        """Evaluate a few promising points of every power class, so that bounds have something to meet."""
        order = np.argsort(self._tdp, kind="stable")
        classes = np.array_split(order, min(CLASSES, len(order)))
        best = [c[np.argsort(-self._roof[c], kind="stable")[:SAMPLE]] for c in classes]
        sample = np.concatenate(best)
        self._progress.update("starting", 0, len(self._settings), f"{len(self._tdp)} architectures in budget")
        trial = np.stack([self._path_bound(k, sample) for k in range(len(self._settings))])
        wanted: dict[int, list[int]] = {}
        for columns in np.split(np.arange(len(sample)), np.cumsum([len(b) for b in best])[:-1]):
            part = trial[:, columns]
            for flat in np.argsort(-part, axis=None, kind="stable")[:SEEDS]:
                k, column = divmod(int(flat), len(columns))
                if part[k, column] > 0:
                    wanted.setdefault(k, []).append(int(columns[column]))
        for k, picked in wanted.items():
            if not self._clock.over:
                self._tighten(k, sample[picked])

    def _paths(self) -> None:
        alive = np.flatnonzero(~self._dominated(self._roof))
        for k, setting in enumerate(self._settings):
            if self._clock.over:
                return
            self._progress.update(
                "bounding",
                k,
                len(self._settings),
                f"{len(alive)} architectures, microbatch {setting.microbatch}, tensor {setting.tensor_parallel}",
            )
            open_ = alive[self._stage[k, alive] == Stage.ROOFLINE]
            bound = self._path_bound(k, open_)
            self._bound[k, open_] = np.minimum(self._bound[k, open_], bound)
            self._stage[k, open_] = Stage.PATH

    def _path_bound(self, k: int, at: Rows) -> FloatArray:
        setting = self._settings[k]
        seconds = self._evaluator.quick_bound(setting, at)
        return self._batch / seconds * (1 + ROUNDING)

    def _refine(self) -> None:
        """Tighten the most promising candidates first, then evaluate exactly what is still undominated."""
        settings, positions = np.nonzero(~self._dominated(self._bound))
        self._open = settings, positions
        while not self._clock.over and len(at := self._most_promising(Stage.PATH)[1]):
            self._tighten(self._leading, at)
            self._report("refining")
        for stage, states in ((Stage.PLACEMENT, FEW_STATES), (Stage.SEARCHED, math.inf)):
            while not self._clock.over and len(at := self._most_promising(stage)[1]):
                self._evaluate(self._leading, at[:EXACT_BATCH], Effort(self._clock.left, states))
                self._report("evaluating")

    def _most_promising(self, stage: Stage) -> tuple[int, Rows]:
        """The setting of the undominated candidate with most to gain, and the best of that setting, best first."""
        k, at = self._open
        keep = ~self._dominated(self._bound[k, at], at) & (self._stage[k, at] < Stage.EXACT)
        self._open = k, at = k[keep], at[keep]
        here = self._stage[k, at] == stage
        k, at = k[here], at[here]
        if not len(at):
            return 0, at
        known = self._known.best_at(self._tdp[at])
        gain = np.where(known > 0, self._bound[k, at] / np.where(known > 0, known, 1.0), np.inf)
        self._leading = int(k[np.argmax(gain)])
        mine = k == self._leading
        return self._leading, at[mine][np.argsort(-gain[mine], kind="stable")[:BATCH]]

    def _dominated(self, throughput: FloatArray, at: Rows | slice = slice(None)) -> NDArray[np.bool_]:
        """Whether points of that optimistic throughput cannot matter; infeasible ones (0) never do."""
        tdp = np.broadcast_to(self._tdp[at], throughput.shape)
        hoped = throughput.ravel() / self._slack
        flat = self._known.dominates(tdp.ravel(), hoped).reshape(throughput.shape)
        return flat | (throughput <= 0)

    # -- one batch, one point ---------------------------------------------------------------------------

    def _tighten(self, k: int, at: Rows) -> None:
        """Schedule bounds and exact partition for a batch; where the bounds meet the points are evaluated."""
        setting = self._settings[k]
        found = self._evaluator.bounds(setting, at, self._give_up_s(at))
        self._settle(k, at, found, Stage.PLACEMENT)

    def _evaluate(self, k: int, at: Rows, effort: Effort) -> None:
        """Exact schedules, as far as the effort allows, and exact partition for a batch."""
        found = self._evaluator.exact(self._settings[k], at, self._give_up_s(at), effort)
        self._settle(k, at, found, Stage.SEARCHED)

    def _settle(self, k: int, at: Rows, found: PointBounds, stage: Stage) -> None:
        """Take over bounds on a batch; points whose bounds meet are evaluated, plans in reach become known."""
        bound = self._batch / found.lower_s * (1 + ROUNDING)
        self._bound[k, at] = np.minimum(self._bound[k, at], bound)
        met = np.isfinite(found.upper_s) & (found.lower_s == found.upper_s)
        # A point that was searched twice and is still open has run out of time: it stays open.
        again = np.where(self._stage[k, at] >= stage, Stage.EXHAUSTED, stage)
        self._stage[k, at] = np.where(met, Stage.EXACT, again)
        for i in np.flatnonzero(np.isfinite(found.upper_s)):
            row, throughput = int(at[i]), self._batch / float(found.upper_s[i])
            reached = self.outcome.evaluated if met[i] else self._reached
            reached[row, self._settings[k]] = throughput
            self._known.add(float(self._tdp[row]), throughput, (float(self._area[row]), row))

    def _give_up_s(self, at: Rows) -> FloatArray:
        """Iteration time above which a point is dominated by what is known."""
        known = self._known.best_at(self._tdp[at])
        return np.where(known > 0, self._batch / np.where(known > 0, known, 1.0) * (1 + ROUNDING), np.inf)

    # -- the end ------------------------------------------------------------------------------------------

    def _report(self, what: str) -> None:
        done = len(self.outcome.evaluated)
        self._progress.update(
            what, done, done + len(self._open[0]), f"{len(self._known.tdp_w)} frontier steps"
        )

    def _close(self) -> None:
        """Count where points fell and keep what is left open as a bound."""
        outcome, tdp = self.outcome, self._tdp
        undecided = ~self._dominated(np.where(self._stage < Stage.EXACT, self._bound, 0.0))
        if (
            undecided.any()
        ):  # stopped early: what is reached counts, though it may not be the best of its point
            outcome.evaluated = {**self._reached, **outcome.evaluated}
        for row, (throughput, _) in outcome.best_per_row().items():
            outcome.staircase.add(float(tdp[row]), throughput, (float(self._area[row]), row))
        optimistic = np.where(self._stage < Stage.EXACT, self._bound, 0.0).max(axis=0)
        outcome.open_bound = np.where(outcome.staircase.dominates(tdp, optimistic), 0.0, optimistic)
        outcome.finished = not bool((outcome.open_bound > 0).any())
        self._count(undecided)

    def _count(self, undecided: NDArray[np.bool_]) -> None:
        """How many points fell at each stage; evaluated ones are not among them."""
        fallen = np.ones(self._stage.shape, dtype=bool)
        number = {setting: k for k, setting in enumerate(self._settings)}
        for row, setting in self.outcome.evaluated:
            fallen[number[setting], row] = False
        unfit = fallen & (self._stage == Stage.PATH) & (self._bound <= 0)
        open_ = fallen & undecided
        counts = {"memory": unfit, "open": open_}
        decided = fallen & ~unfit & ~open_
        counts["roofline"] = decided & (self._stage == Stage.ROOFLINE)
        counts["critical_path"] = decided & (self._stage == Stage.PATH)
        counts["placement"] = decided & (self._stage >= Stage.PLACEMENT)
        self.outcome.pruned_by = {name: int(mask.sum()) for name, mask in counts.items() if mask.any()}
