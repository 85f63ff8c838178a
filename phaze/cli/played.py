"""From a run directory to its placements, played again: for the verbs that draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.explore.answers.plan_replay import ReplayedPlan
    from phaze.explore.documents.explanation_document import Sensitivity
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.request.explore_request import ExploreRequest

_SAME = 1e-6  # relative; what a run and a new evaluation of its winner may differ by


@dataclass(frozen=True)
class Played:
    """The plans of a run by workload, and that with a design per stage.

    Empty where `left_out` says why.
    """

    document: ResultDocument
    request: ExploreRequest | None = None
    plans: Mapping[str, ReplayedPlan] = field(default_factory=dict)
    per_stage: ReplayedPlan | None = None
    left_out: str = ""

    def sensitivity(self) -> dict[str, Sequence[Sensitivity]]:
        """What each workload's throughput depends on, where the winner's best placement is the run's: seconds."""
        from phaze.explore.explaining.explained_winner import ExplainedWinner
        from phaze.explore.explaining.parameter_sensitivity import sensitivity
        from phaze.explore.explaining.run_explanation import PATIENCE_S, STATES
        from phaze.explore.request.search_progress import Clock
        from phaze.report.replay.document import asked_of_devices
        from phaze.scheduling.passes import Effort

        if self.request is None:
            return {}
        found: dict[str, Sequence[Sensitivity]] = {}
        for task in asked_of_devices(self.document, self.request).tasks:
            alone = replace(self.request, task=task, others=())
            one = ExplainedWinner.of(alone, self.document, Effort(Clock(PATIENCE_S).left, STATES))
            told = self.document.best.workloads[task.workload.name].throughput_samples_per_s
            if abs(one.throughput / told - 1.0) <= _SAME:
                found[task.workload.name] = sensitivity(one)
        return found


def played(document: ResultDocument, run: Path) -> Played:
    """What can be played again; the reason why not is kept instead of raised."""
    from phaze.cli.rerun import request_of
    from phaze.report.replay.document import per_stage_plan, played_plans

    try:
        request = request_of(document, run)
        again, plans = per_stage_plan(document, request), played_plans(document, request)
        return Played(document, request, plans, again)
    except InputError as error:
        return Played(document, left_out=" ".join(str(error).split()))
