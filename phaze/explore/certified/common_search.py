"""The certified search for one common design: bound every architecture, settle the most promising, stop with proof.

An architecture is judged by the score of its throughputs on all workloads, each under its own best placement.
It matters only if its optimistic score at its own TDP is not dominated by a score that is reached, so the
frontier of score against TDP is complete, and with it the optimum of every objective that grows with the score
and falls with TDP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.explore.certified.common_refinement import CommonRefinement
from phaze.explore.certified.common_screening import CommonDesign, CommonScreen, Incumbents, Survivors
from phaze.explore.certified.workload_bounds import WorkloadBounds
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.pareto_archive import Staircase
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.search_progress import Clock, Progress
from phaze.tolerances import BOUND_ROUNDING


@dataclass
class CommonOutcome:
    """Everything a search found out; `within` candidates kept the budgets.

    `open_score`, `open_tdp_w` (O,): optimistic score and TDP of what is left undecided, empty where all is settled.
    """

    within: int
    evaluated: dict[int, CommonDesign]
    pruned_by: dict[str, int]
    open_score: Floats
    open_tdp_w: Floats
    staircase: Staircase = field(default_factory=Staircase)

    def __post_init__(self) -> None:
        """The frontier is that of what was evaluated."""
        for common in self.evaluated.values():
            self.staircase.add([common.tdp_w], common.score, (common.area_mm2, common.number))

    @property
    def finished(self) -> bool:
        """Whether nothing undecided can matter."""
        return not len(self.open_score)


@dataclass(frozen=True)
class PortfolioSearch:
    """Searches the candidates for the best common design under a rule.

    `evaluators`: one per workload, on any table. `caps`: throughput per workload that no candidate exceeds,
    proven by the searches for its own optimum. A design that is better by less than `gap` does not matter.
    """

    candidates: Candidates
    evaluators: Sequence[Evaluator]
    rule: CombinedScore
    caps: Sequence[float]
    clock: Clock
    progress: Progress
    gap: float = 0.0

    def run(self, seeds: Iterable[Evaluation]) -> CommonOutcome:
        """Search until nothing can be better or time is over; `seeds` are designs to be compared with."""
        incumbents = Incumbents(self.rule, 1.0 + self.gap)
        planted = dict(_planted(seeds))
        for seed in planted.values():
            incumbents.add(seed, seed=True)
        caps = np.array(self.caps) * (1 + BOUND_ROUNDING)
        screen = CommonScreen(self.candidates, self.evaluators, caps, self.clock, self.progress)
        left = screen.run(incumbents.matters)
        left = left.take(incumbents.matters(left.hoped, left.tdp_w))
        known = {int(n): planted[int(n)] for n in left.numbers if int(n) in planted}
        if self.clock.over or not len(left.numbers):
            return self._outcome(screen, left, known, np.ones(len(left.numbers), dtype=np.bool_))
        table = self.candidates.table(left.numbers)
        members = [WorkloadBounds(evaluator.on(table)) for evaluator in self.evaluators]
        refinement = CommonRefinement(left, members, incumbents, self.clock, self.progress)
        refinement.run()
        undecided = refinement.undecided
        found = {**known, **refinement.found} if undecided.any() else refinement.settled()
        return self._outcome(screen, left, found, undecided)

    def _outcome(
        self,
        screen: CommonScreen,
        left: Survivors,
        found: dict[int, CommonDesign],
        undecided: NDArray[np.bool_],
    ) -> CommonOutcome:
        score = np.where(undecided, self.rule.score(left.hoped) * (1 + BOUND_ROUNDING), 0.0)
        open_ = score > 0
        fallen = dict(screen.pruned_by)
        fallen["open"] = sum(int(n) not in found for n in left.numbers[open_])
        fallen["placement"] = screen.within - len(found) - sum(fallen.values())
        outcome = CommonOutcome(screen.within, found, fallen, score[open_], left.tdp_w[open_])
        beaten = outcome.staircase.dominates(outcome.open_tdp_w[:, None], outcome.open_score)
        outcome.open_score, outcome.open_tdp_w = outcome.open_score[~beaten], outcome.open_tdp_w[~beaten]
        return outcome


def _planted(seeds: Iterable[Evaluation]) -> Iterable[tuple[int, CommonDesign]]:
    """Seeds that fit every workload, by number."""
    for seed in seeds:
        configs = tuple(s for s in seed.configs if s is not None)
        if seed.value > 0 and len(configs) == len(seed.configs):
            yield (
                seed.number,
                CommonDesign(seed.number, seed.value, seed.throughputs, configs, seed.tdp_w, seed.area_mm2),
            )
