"""A design for every device of a pipeline: strategies, cuts and designs chosen together, checked, and reported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isclose

import numpy as np

from phaze.arrays import Rows
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimator_at
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.strategies.wham.wham_target import WhamTarget
from phaze.parallel.plan_batches.cut_pipelines import GroupTimes
from phaze.parallel.plan_search.mixed_pipelines import Architectures
from phaze.parallel.plan_search.mixed_plan_search import MixedFound, MixedSearch
from phaze.parallel.recount.plan_checker import PlanError, check_plan
from phaze.parallel.training.mixed_estimate import MixedEstimator
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING, SAME


@dataclass(frozen=True)
class MixedPlan:
    """A plan whose devices have designs of their own: `numbers` as candidates and `tdp_w`, along the pipeline.

    `value`: what the goal minimises. `designs`: how many there were to choose from. `options`: strategies of the
    config, with the cuts that were made for them; `options_solved`: those that the bounds did not rule out.
    """

    config: TrainingConfig
    planned: PlannedIteration
    numbers: tuple[int, ...]
    tdp_w: tuple[float, ...]
    value: float
    designs: int
    options: int
    options_solved: int

    @property
    def mean_tdp_w(self) -> float:
        """Of the accelerators in use, which are equally many in every stage."""
        return sum(self.tdp_w) / len(self.tdp_w)


@dataclass(frozen=True)
class MixedDesigns:
    """Designs of a block (`evaluator` is of its table) that the devices of a pipeline choose among, in one config."""

    evaluator: Evaluator
    block: Block
    config: TrainingConfig
    effort: SolveLimits

    def best(self, target: WhamTarget, first: FoundPlan | None, below: float) -> MixedPlan | None:
        """The best plan, checked; None where nothing fits in memory, keeps the floor or gets below a value.

        `first`: one to begin with, so that none is worse. Raises PlanError where the plan does not stand the check, or
        comes to quite another time than the search says: a defect of ours.
        """
        return self.proven(target, first, below)[0]

    def proven(
        self, target: WhamTarget, first: FoundPlan | None, below: float
    ) -> tuple[MixedPlan | None, float]:
        """The same, and a value that no pipeline of these designs is better than, as far as they are few (`FEW`)."""
        rows, timed = self._rows, self.evaluator.timed(self.config)
        if not len(rows):
            return None, np.inf
        hopeful = self._search(target, self.evaluator.least_times(self.config, rows)).lower_bound() < below
        if first is None and (not hopeful or self._over()):
            return None, 0.0 if hopeful else below
        sure, times = timed.exact(rows, self.effort)
        search = self._search(target, self.evaluator.times(self.config, rows, times))
        found = search.best(None if first is None else first.strategy, below)
        proven = search.tally.open_value if not sure.differs(times).any() else 0.0
        if found is None:
            return None, min(below, proven)
        return self._worked_out(found, search), min(found.value, proven)

    @cached_property
    def _rows(self) -> Rows:
        """Designs that have the formats of the config."""
        return np.flatnonzero(self.evaluator.takes(self.config))

    def _over(self) -> bool:
        return self.effort.left_s() <= 0

    def _search(self, target: WhamTarget, times: GroupTimes) -> MixedSearch:
        """Over designs that take these times."""
        evaluator, rows = self.evaluator, self._rows
        links = evaluator.link_bytes_per_s[rows]
        chips = Architectures(times, evaluator.capacity_bytes[rows], links, self.block.tdp_w[rows])
        across = evaluator.across(self.config, np.inf, float(links.max()))
        most_s = target.longest_s(evaluator.task.cluster.global_batch) * (1 + BOUND_ROUNDING)
        return MixedSearch(across.options, across.tiers, chips, target.goal, most_s, self._over)

    def _worked_out(self, found: MixedFound, search: MixedSearch) -> MixedPlan:
        """The plan with every figure worked out device by device, each on its own design."""
        evaluator, rows = self.evaluator, self._rows[list(found.rows)]
        distinct, which = np.unique(rows, return_inverse=True)
        costs = MixedEstimator.of(estimator_at(evaluator, self.config, distinct), which.tolist())
        planned = PlannedIteration.of(costs, found.plan)
        seconds = planned.iteration.iteration_s
        if not isclose(seconds, found.iteration_s, rel_tol=SAME):
            raise PlanError(f"{found.plan} takes {seconds} s, not {found.iteration_s} s as the search says")
        check_plan(costs, found.plan, planned.iteration, (), evaluator.capacity_bytes[rows].tolist())
        return MixedPlan(
            config=self.config,
            planned=planned,
            numbers=tuple(self.block.numbers[rows].tolist()),
            tdp_w=tuple(self.block.tdp_w[rows].tolist()),
            value=found.value,
            designs=len(self.block),
            options=search.tally.plans,
            options_solved=search.tally.looked_at,
        )
