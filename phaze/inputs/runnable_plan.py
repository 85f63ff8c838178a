"""A planned training as another framework runs it: the same degrees under its software, and its time there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.errors import PhazeError
from phaze.inputs.options.plan_options import PlanChoices, PlanOptions

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.explore.documents.plan_record import StrategyRecord


@dataclass(frozen=True)
class RunnablePlan:
    """The plan of a framework, and sentences on what of the plan that was asked about it does otherwise."""

    document: PlanDocument
    remarks: tuple[str, ...] = ()


def runnable_plan(document: PlanDocument, framework: str, *, counts_blocks: bool) -> RunnablePlan:
    """The plan itself where `framework` runs it and it fits there, else the best of it that keeps most of its choices.

    Its degrees are kept at least. `counts_blocks`: whether it can be told how many blocks recompute. A plan of another
    version of the same framework stays as it is, and so does one that cannot be planned anew.
    """
    told = str(document.request["framework"])
    if told.partition("-")[0] == framework.partition("-")[0]:
        return RunnablePlan(document)
    partly = document.best.strategy.recomputed_blocks is not None
    if (counts_blocks or not partly) and (same := _as_planned(document, framework)) is not None:
        return RunnablePlan(same)
    reason = ""
    for choices in _fewer(document.best.strategy, counts_blocks=counts_blocks):
        try:
            found = _planned(document, framework, choices)
        except PhazeError as error:
            reason = reason or " ".join(str(error).split())
            continue
        return RunnablePlan(found, tuple(_changes(document, found)))
    return RunnablePlan(
        document, (f"the time at the top is that under {told}, not under {framework}: {reason}",)
    )


def _as_planned(document: PlanDocument, framework: str) -> PlanDocument | None:
    """The plan under a framework, as it is; None where that does not run it, or it does not fit."""
    from phaze.explore.evaluation.planned_iteration import strategy_of
    from phaze.explore.plans.plan_search import told_plan
    from phaze.inputs.plan_inputs import planned_task
    from phaze.parallel.chunk_division import blocks
    from phaze.parallel.plan_choices import runs_plan

    plan = strategy_of(document.best.strategy)
    try:
        task, chip = planned_task(_options(document, framework, {}))
        groups = blocks(task.workload.chain(plan.microbatch, plan.sharding), plan.grain)
        runs = runs_plan(task.framework.plans, plan, task.cluster.global_batch, groups)
        if plan.sharding.replicated or not (runs and task.framework.can_offload(plan.offload)):
            return None
        return told_plan(task, chip, plan)
    except PhazeError:
        return None


def _fewer(s: StrategyRecord, *, counts_blocks: bool) -> Iterator[dict[str, Any]]:
    """Choices to keep: all of them, then without what software may lack, at last the degrees alone."""
    degrees: dict[str, Any] = {
        "data_parallel": s.data_parallel,
        "tensor_parallel": s.tensor_parallel,
        "pipeline_parallel": s.pipeline_parallel,
        "context_parallel": s.context_parallel,
        "expert_parallel": s.expert_parallel,
    }
    kept = degrees | {"microbatch": s.microbatch_size, "offload": "+".join(s.offload) or None}
    sharded = {"sequence_parallel": s.sequence_parallel} if s.tensor_parallel > 1 else {}
    staged = {"schedule": s.schedule, "chunks": s.chunks} if s.pipeline_parallel > 1 else {}
    partly = s.recomputed_blocks is not None and counts_blocks
    again = {} if s.layers or partly else {"recompute": s.recompute}
    yield kept | sharded | staged | again | {"zero": s.zero_stage}
    yield kept | staged | again
    yield kept
    yield degrees


def _planned(document: PlanDocument, framework: str, choices: dict[str, Any]) -> PlanDocument:
    """The best plan within some choices under a framework, of the question of a document. Raises PhazeError."""
    from phaze.inputs.plan_inputs import plan_answer

    return plan_answer(_options(document, framework, choices))


def _options(document: PlanDocument, framework: str, choices: dict[str, Any]) -> PlanOptions:
    """The question of a document under a framework, some choices held. Raises PhazeError."""
    software = {"framework": framework, "attention": None, "fusion": None, "plans": "full"}
    batch = {"global_batch": document.request["global_batch"], "batch_range": None}
    asked = _asked(document) | PlanChoices.defaults() | choices | software | batch
    return PlanOptions.of(asked)


def _asked(document: PlanDocument) -> dict[str, Any]:
    """What the plan was asked by: as its manifest tells, else as its request does. Raises InputError."""
    from phaze.inputs.recorded.recorded_request import asked_before

    manifest, request = document.manifest, document.request
    if manifest.asked is not None and manifest.asked.verb == "plan":
        return asked_before(manifest, Path("the plan"), PlanOptions).values
    told = {name: request[name] for name in ("devices", "global_batch", "network", "rung") if name in request}
    return told | {
        "arch": request["architecture"],
        "workload": request["workloads"],
        "recipe": request.get("recipe") or "none",
    }


def _recompute(s: StrategyRecord) -> str:
    """What runs again, in words."""
    if s.layers:
        return "blocks each in its own way"
    return f"{sum(s.recomputed_blocks)} blocks" if s.recomputed_blocks else s.recompute


def _divided(s: StrategyRecord) -> str:
    """What replicas divide, in words."""
    some = any(run.sharded for run in s.layers or ())
    return f"{s.zero_stage}" + (" and 3 of some blocks" if some else "")


def _changes(before: PlanDocument, now: PlanDocument) -> Iterator[str]:
    """What the framework does otherwise than planned."""
    old, new, software = before.best.strategy, now.best.strategy, now.request["framework"]
    for name, planned, run in (
        ("schedule", old.schedule, new.schedule),
        ("parts of the model on each device", old.chunks, new.chunks),
        ("microbatch", old.microbatch_size, new.microbatch_size),
        ("recompute", _recompute(old), _recompute(new)),
        ("ZeRO", _divided(old), _divided(new)),
        ("offload", "+".join(old.offload) or "none", "+".join(new.offload) or "none"),
        ("whole layers", "+".join(old.whole_layers) or "none", "+".join(new.whole_layers) or "none"),
    ):
        if planned != run and (
            old.pipeline_parallel > 1 or name not in ("schedule", "parts of the model on each device")
        ):
            yield f"{software} runs {name} {run} in place of {planned}, the best of these degrees there"
