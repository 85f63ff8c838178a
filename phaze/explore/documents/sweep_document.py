"""The document of a sweep: what `dse sweep --json` prints and its run directory holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.result_document import Design, Manifest
from phaze.explore.documents.result_manifest import describe_task, manifest

if TYPE_CHECKING:
    from phaze.explore.sampling.optuna_sweep import Sweep, SweepPlan, SweepResult

SWEEP_SCHEMA = DocumentName.SWEEP.version(4)


class SweepDocument(Record):
    """What was sampled, and the designs that no other one beats."""

    schema_: str = Field(default=SWEEP_SCHEMA, alias="schema")
    request: dict[str, Any] = Field(description="what was asked, every default spelled out")
    trials: int = Field(description="of the study, infeasible ones included")
    infeasible: int = Field(description="of them: over a budget, not to be built, or short of memory")
    objectives: list[str] = Field(description="metrics, all at once")
    frontier: list[Design] = Field(
        description="sampled designs that no other one equals or beats on all of them"
    )
    manifest: Manifest


def sweep_document(sweep: Sweep, result: SweepResult, started: datetime) -> SweepDocument:
    """The result of a sweep that began at `started`, its frontier with all that is reported of a design."""
    plan = sweep.plan
    wall_time_s = (datetime.now(UTC) - started).total_seconds()
    return SweepDocument(
        request=_request(plan),
        trials=result.trials,
        infeasible=result.infeasible,
        objectives=[metric.name for metric in plan.objectives],
        frontier=[sweep.design(row) for row in result.frontier],
        manifest=manifest(started, wall_time_s, plan.seed),
    )


def _request(plan: SweepPlan) -> dict[str, Any]:
    budgets = plan.candidates.budgets
    return {
        **describe_task(plan.task),
        "power_w": budgets.power_w,
        "power_means": budgets.power_means.value,
        "area_mm2": budgets.area_mm2,
        "power_density_w_per_mm2": budgets.power_density_w_per_mm2,
        "tdp_margin": budgets.tdp_margin,
        "dvfs": budgets.dvfs,
        "space": plan.candidates.space.name,
        "sampler": plan.sampler.value,
        "trials": plan.trials,
        "seed": plan.seed,
    }
