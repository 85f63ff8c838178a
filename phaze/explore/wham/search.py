"""WHAM's search as a strategy: local searches per stage, then one design for all or a design for every stage.

After Adnan et al., "WHAM" (arXiv 2404.14632). For the most promising settings the model is cut into stages; every
distinct stage is searched for its own best designs (`local`); all of them together are evaluated under their best
plans, and, for a mixed pipeline, offered to the search that chooses plans, cuts and designs together (`mixed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from phaze.errors import InputError
from phaze.explore.progress import Progress
from phaze.explore.strategies.oracle import Oracle
from phaze.explore.strategies.report import Stop, StrategyReport
from phaze.explore.strategies.strategy import SearchBudget, report
from phaze.explore.wham.course import Course, Limits
from phaze.explore.wham.metric import Target
from phaze.explore.wham.report import WhamReport
from phaze.explore.wham.telling import tell_axes


class Designs(StrEnum):
    """How many designs are wanted."""

    ONE = "one"  # one for all stages
    PER_STAGE = "per-stage"  # stages of a pipeline may differ
    COMMON = "common"  # one for several workloads


@dataclass(frozen=True)
class WhamSearch:
    """`top_k` designs per stage; `hysteresis` fruitless halvings in a row; at most so many `settings` per workload.

    The oracle's merit must be that of the target: `target.merit`.
    """

    designs: Designs = Designs.ONE
    target: Target = field(default_factory=Target)
    top_k: int = 10
    hysteresis: int = 1
    settings: int = 4
    name: str = "wham"
    seeded: bool = False

    def run(self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress) -> StrategyReport:
        """The search as every strategy reports it; `oracle.best` is the best single design."""
        return self.search(oracle, budget, seed, progress)[0]

    def search(
        self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress
    ) -> tuple[StrategyReport, WhamReport]:
        """The same, and the whole of it step by step.

        Raises InputError where a design per stage is wanted for several workloads, InfeasibleError where no
        architecture keeps the budgets.
        """
        if self.designs is Designs.PER_STAGE and len(oracle.tasks) > 1:
            raise InputError("a design for every stage is for one workload: give one --workload")
        limits = Limits(self.target, self.top_k, self.hysteresis, self.settings)
        course = Course(limits, oracle, budget, progress)
        workloads = [course.workload(w) for w in range(len(oracle.tasks))]
        mixed = course.per_stage() if self.designs is Designs.PER_STAGE else None
        told = WhamReport(
            designs=self.designs.value,
            objective=self.target.objective.value,
            floor_samples_per_s=self.target.floor_samples_per_s,
            top_k=self.top_k,
            hysteresis=self.hysteresis,
            axes=tell_axes(course.axes),
            workloads=workloads,
            one=course.one(),
            per_stage=mixed,
        )
        stopped = budget.stop(oracle) or Stop.CONVERGED
        return report(self, oracle, seed, stopped, _figures(told)), told


def _figures(told: WhamReport) -> dict[str, float]:
    settings = [setting for workload in told.workloads for setting in workload.searched]
    stages = [stage for setting in settings for stage in setting.stages]
    figures = {
        "settings_searched": float(len(settings)),
        "stages_searched": float(len(stages)),
        "dimensions_tried": float(sum(level.tried for stage in stages for level in stage.levels)),
    }
    return figures if told.per_stage is None else figures | {"per_stage_value": told.per_stage.value}
