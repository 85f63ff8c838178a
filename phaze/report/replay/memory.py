"""What fills the memory of one device of each stage."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.placement.plan import StagePlan
from phaze.report.replay.replay import Replay
from phaze.workload.workload import Numerics


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes on one device of a stage at its peak; the parts sum to `total_bytes`.

    `held`: microbatches whose activations it keeps at a time.
    """

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    cache_bytes: float
    working_bytes: float
    held: int

    @property
    def total_bytes(self) -> float:
        """All parts."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.cache_bytes
            + self.working_bytes
        )


def stage_memories(plan: Replay) -> list[StageMemory]:
    """One per stage."""
    depths = range(len(plan.stages), 0, -1)
    return [_stage(plan, stage.plan, depth) for stage, depth in zip(plan.stages, depths, strict=True)]


def _stage(plan: Replay, stage: StagePlan, depth: int) -> StageMemory:
    memory = plan.planner.memory
    part = slice(stage.first, stage.last + 1)
    held = memory.held(depth, plan.microbatches)
    caches = held if memory.keeps_cache else 1
    redo = stage.recompute and memory.recompute  # where every stage recomputes, the bytes are those of that
    kept = memory.input_bytes if redo else memory.saved_bytes
    working = memory.working_bytes + (memory.saved_bytes if redo else 0.0)
    weight, gradient, optimizer = _per_parameter(plan.planner.numerics)
    return StageMemory(
        weights_bytes=stage.parameters * weight,
        gradients_bytes=stage.parameters * gradient,
        optimizer_bytes=stage.parameters * optimizer,
        activations_bytes=held * float(kept[part].sum()),
        cache_bytes=caches * float(memory.cache_bytes[part].sum()),
        working_bytes=float(working[part].max()),
        held=held,
    )


def _per_parameter(numerics: Numerics) -> tuple[float, float, float]:
    """Bytes of the weight, of its gradient, and of the optimizer state with the fp32 copy of the weight.

    An optimizer step reads and writes its state but only reads the gradient and, of a weight that is not the fp32
    copy itself, only writes it: so the bytes it moves beyond those that are kept are the state's.
    """
    kept, gradient = numerics.state_bytes, numerics.gradient_bytes
    if not gradient:
        return kept, 0.0, 0.0
    state = numerics.optimizer_traffic_bytes - kept
    weight = kept - gradient - state
    return (weight, gradient, state) if weight else (gradient, gradient, state - gradient)
