"""Contents that a report is made from, the schedules of every workload's layers among it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from phaze.explore.documents.explanation_document import Explanation, Sensitivity
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.request.design_metrics import Row
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.parallel.timeline.plan_operators import PlanOperators
from phaze.parallel.timeline.plan_pieces import PlanPieces
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.report.html_markup import Html, join, tag
from phaze.scheduling.layer_schedule import LayerSchedule
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


@dataclass(frozen=True)
class Contents:
    """A run by its name, its document and its table of evaluated designs.

    `plans`: the winner's, played again, by workload; `per_stage`: that with a design for every stage; `sensitivity` by
    workload; `explanation`: of the first. They are empty where `left_out` says why.
    """

    name: str
    document: ResultDocument
    designs: Sequence[Row] = ()
    per_stage: ReplayedPlan | None = None
    sensitivity: Mapping[str, Sequence[Sensitivity]] = field(default_factory=dict)
    left_out: str = ""
    plans: Mapping[str, ReplayedPlan] = field(default_factory=dict)
    explanation: Explanation | None = None

    @cached_property
    def schedules(self) -> dict[str, Schedules]:
        """Those of the layers of all that could be played again, by workload."""
        return {name: Schedules.of_plan(played) for name, played in self.plans.items()}


def by_workload(found: Iterable[tuple[str, Html]]) -> Html:
    """Markup of every workload, each below its name where there are several."""
    parts = list(found)
    if len(parts) == 1:
        return parts[0][1]
    return join(join([tag("h3", name), body]) for name, body in parts)
