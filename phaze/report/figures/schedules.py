"""The schedules of a workload's layers, for the sections that draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze.explore.answers.plan_replay import ReplayedPlan
from phaze.hardware.table import ArchitectureTable
from phaze.report.replay.layer_schedule import LayerSchedule
from phaze.report.replay.operators_of_plan import PlanOperators
from phaze.report.replay.pieces_of_plan import PlanPieces
from phaze.workload.operators.low_precision import Recipe


@dataclass(frozen=True, slots=True)
class Schedules:
    """Passes of unique layers, the chips that they are on (a row each), and what their linear layers are in."""

    passes: Sequence[LayerSchedule]
    table: ArchitectureTable
    recipe: Recipe | None

    @classmethod
    def of_plan(cls, played: ReplayedPlan) -> Schedules:
        """Those of a plan."""
        passes = PlanOperators(PlanPieces(played)).schedules()
        return cls(passes, played.costs.loaded, played.costs.workload.recipe)
