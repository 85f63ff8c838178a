"""A certified frontier on any axes, those that depend on the plan among them.

A point is an architecture in one config (microbatch, width, recompute, recipe) under the plan that is best for its
throughput; its energy and memory are those of that plan. Every point gets an optimistic vector; points whose
vector a known point dominates fall. Of the rest those are looked at whose optimistic vectors no other open
one dominates: no bound could spare them. First schedule bounds tighten their vectors, then they are evaluated.
When none is left, the frontier is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.frontier.pareto_archive import ParetoArchive, first_within, nondominated
from phaze.explore.frontier.pareto_points import OpenPoints, ParetoFrontier, ParetoPoint, PointValues
from phaze.explore.request.design_metrics import Metric
from phaze.explore.request.search_progress import Clock, Progress, SilentProgress
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING, POINT_STATES

SAMPLE = 64  # architectures searched first, so that the bounds of the others have something to meet
ROUND, TIGHTENED = 32, 256  # points evaluated, and tightened, together at least
BATCH = 1024  # and at most


@dataclass
class ParetoSearch:
    """Searches all points of an evaluator's table.

    `architectures`: columns known without evaluating, (A,) each, `area_mm2` among them (it breaks ties), and
    what the axes need. `least_throughput`: slower points do not count. One axis asks for a single best point.
    """

    evaluator: Evaluator
    architectures: Mapping[str, Floats]
    axes: Sequence[Metric]
    clock: Clock
    least_throughput: float = 0.0
    progress: Progress = field(default_factory=SilentProgress)

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self._values = PointValues(Measures(self.evaluator), self.architectures, self.axes)
        self._configs = self.evaluator.configs
        self._longest_s = np.inf
        if self.least_throughput > 0:
            self._longest_s = (
                self.evaluator.task.cluster.global_batch / self.least_throughput * (1 + BOUND_ROUNDING)
            )
        self._archive = ParetoArchive(len(self.axes) - 1)
        self._members: dict[int, ParetoPoint] = {}
        self._counts: Counter[str] = Counter()
        self._left = self._nothing

    def run(self) -> ParetoFrontier:
        """Search until no undominated point is left or time is over."""
        rows = np.arange(len(self.evaluator.table))
        order = np.argsort(self.architectures["area_mm2"], kind="stable")
        sample = order[:: max(1, len(order) // SAMPLE)]
        self._search(np.sort(sample))
        self._search(np.setdiff1d(rows, sample))
        left = self._undominated(self._left)
        self._counts["open"] += len(left)
        points = [self._members[number] for _, number in self._archive.keys]
        first = self.axes[0]
        points.sort(key=lambda p: (-1 if first.maximise else 1) * first.value(p.columns))
        return ParetoFrontier(tuple(points), left.values, dict(self._counts))

    @property
    def _nothing(self) -> OpenPoints:
        none = np.zeros(0, dtype=np.intp)
        return OpenPoints(none, none, none.astype(np.bool_), np.zeros(0), np.zeros((0, len(self.axes))))

    def _search(self, rows: Rows) -> None:
        open_ = self._bounded(rows)
        while len(open_ := self._undominated(open_)) and not self.clock.over:
            self.progress.update(
                "frontier", self._counts["evaluated"], len(open_), f"{len(self._archive)} members"
            )
            chosen = self._promising(open_)
            rest = open_.take(np.setdiff1d(np.arange(len(open_)), chosen))
            open_ = rest.join([self._look(open_.take(chosen))])
        self._left = self._left.join([open_])

    # -- bounds -----------------------------------------------------------------------------------------------

    def _bounded(self, rows: Rows) -> OpenPoints:
        """All points of some architectures that are undominated by their cheap bounds."""
        parts = []
        for k in range(len(self._configs)):
            able = self.evaluator.takes(self._configs[k])[rows]
            self._counts["format"] += int((~able).sum())
            hopeful = self._hopeful(k, rows[able])
            give_up_s = self._give_up_s(k, hopeful)
            seconds = self.evaluator.iteration_bound(self._configs[k], hopeful.row, give_up_s)
            parts.append(self._undominated(self._optimistic(k, hopeful.row, seconds)))
        return self._nothing.join(parts)

    def _hopeful(self, k: int, rows: Rows) -> OpenPoints:
        """Points of one config that are undominated by what their work takes alone."""
        config = self._configs[k]
        seconds = self.evaluator.work_bound(config, rows)
        return self._undominated(self._optimistic(k, rows, seconds))

    def _optimistic(self, k: int, rows: Rows, least_s: Floats, upper_s: Floats | None = None) -> OpenPoints:
        """Points of one config with their optimistic values; those that cannot count are let go.

        `upper_s`: iteration times in reach, where schedule bounds were used.
        """
        tightened = upper_s is not None
        fits = np.isfinite(least_s)
        counts = fits & (least_s <= self._longest_s)
        self._counts["schedule" if tightened else "memory"] += int((~fits).sum())
        self._counts["floor"] += int((fits & ~counts).sum())
        known_s = (
            np.full(len(rows), np.inf) if upper_s is None else np.where(least_s == upper_s, upper_s, np.inf)
        )
        at = np.flatnonzero(counts)
        values = self._values.optimistic(self._configs[k], rows[at], least_s[at])
        return OpenPoints(np.full(len(at), k), rows[at], np.full(len(at), tightened), known_s[at], values)

    def _undominated(self, open_: OpenPoints) -> OpenPoints:
        values = self._values
        lead = -open_.values[:, values.lead]
        fallen = self._archive.dominates(values.others(open_.values), lead)
        for name, here in (("schedule", open_.tightened), ("bound", ~open_.tightened)):
            self._counts[name] += int((fallen & here).sum())
        return open_.take(~fallen)

    def _give_up_s(self, k: int, open_: OpenPoints) -> Floats:
        """Iteration times above which points of a config are dominated, or too slow to count, (A,)."""
        first = first_within(self._archive.others, self._values.others(open_.values))
        lead = -np.append(self._archive.throughput, -np.inf)[first]
        seconds = self._values.longest_s(self._configs[k], open_.row, lead)
        return np.minimum(seconds, self._longest_s * (1 + BOUND_ROUNDING))

    # -- looking closer ----------------------------------------------------------------------------------------

    def _promising(self, open_: OpenPoints) -> Rows:
        """Points of one config and kind that no open point's optimistic values dominate, and its next best.

        It is the config and kind with most such points; a few more are looked at together at little cost.
        """
        values, label = open_.values, open_.config * 2 + open_.tightened
        front = nondominated(values)
        mine = np.flatnonzero(label == np.bincount(label[front]).argmax())
        low, high = values.min(axis=0), values.max(axis=0)
        score = ((values[mine] - low) / np.where(high > low, high - low, 1.0)).sum(axis=1)
        order = mine[np.lexsort((score, ~front[mine]))]
        least = ROUND if open_.tightened[mine[0]] else TIGHTENED
        return order[: min(max(int(front[mine].sum()), least), BATCH)]

    def _look(self, group: OpenPoints) -> OpenPoints:
        """Tighten or evaluate points of one config and kind; what is still undecided of them."""
        k, rows = int(group.config[0]), group.row
        if group.tightened[0]:
            self._evaluate(k, group)
            return self._nothing
        found = self.evaluator.bounds(self._configs[k], rows, self._give_up_s(k, group))
        return self._optimistic(k, rows, found.lower_s, found.upper_s)

    def _evaluate(self, k: int, group: OpenPoints) -> None:
        """Exact schedules and plans; points that are not settled by them stay open, what they reach counts."""
        effort = SolveLimits(self.clock.left, POINT_STATES)
        seconds = group.known_s.copy()
        at = np.flatnonzero(~np.isfinite(seconds))
        if len(at):
            some = group.take(at)
            found = self.evaluator.exact(self._configs[k], some.row, self._give_up_s(k, some), effort)
            unsettled = found.lower_s < found.upper_s
            left = self._optimistic(
                k, some.row[unsettled], found.lower_s[unsettled], found.upper_s[unsettled]
            )
            self._left = self._left.join([left])
            self._counts["evaluated"] -= int(unsettled.sum())
            seconds[at] = found.upper_s
        reached = np.isfinite(seconds)
        self._counts["schedule"] += int((~reached).sum())
        self._counts["evaluated"] += int(reached.sum())
        self._add(k, group.row[reached], seconds[reached], effort)

    def _add(self, k: int, rows: Rows, seconds: Floats, effort: SolveLimits) -> None:
        config = self._configs[k]
        plans: tuple[FoundPlan | None, ...] = (None,) * len(rows)
        energy = memory = np.full(len(rows), np.nan)
        if self._values.needs_plan:
            found = self._values.measures.exact(config, rows, effort, seconds)
            plans, seconds = found.plans, found.iteration_s
            energy, memory = found.energy_per_sample_j, found.memory_bytes
        columns = self._values.columns(config, rows, seconds, energy, memory)
        values = self._values.minimised(columns)
        others = self._values.others(values)
        for i, row in enumerate(rows.tolist()):
            number = row * len(self._configs) + k
            if seconds[i] > self._longest_s:
                continue
            key = (float(self.architectures["area_mm2"][row]), number)
            if self._archive.add(others[i], -float(values[i, self._values.lead]), key):
                one = {name: float(column[i]) for name, column in columns.items()}
                self._members[number] = ParetoPoint(row, config, one, plans[i])
