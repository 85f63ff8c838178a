"""From a placement in a result document back to the plan behind it, with the time of every layer in it.

Nothing is searched: degrees and cuts are those of the document, layer times are worked out again by the functions of
the search, and what comes out is held against the loads that the document tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.errors import InputError
from phaze.explore.document import Stage
from phaze.explore.evaluator import Evaluator
from phaze.explore.request import Task
from phaze.explore.setting import Setting
from phaze.hardware.architecture import Architecture, to_table
from phaze.placement.cluster import FixedDegrees, Recompute
from phaze.placement.plan import StagePlan
from phaze.placement.planner import Planner
from phaze.report.replay.layer_schedule import EFFORT
from phaze.report.replay.on_design import on_design
from phaze.report.replay.stage import ReplayedStage
from phaze.scheduling.layers import TimedChain
from phaze.workload.low_precision import Recipe

_SAME = 1e-6  # relative; rounding between two evaluations of one plan
_NEAR = 0.05  # relative; what schedules of a search that was stopped may be longer than these


@dataclass(frozen=True, slots=True)
class Degrees:
    """What of a placement is not said stage by stage."""

    data_parallel: int
    tensor_parallel: int
    microbatch_size: int
    recompute: Recompute
    recipe: Recipe | None = None

    @property
    def setting(self) -> Setting:
        """The point of the architecture that they belong to."""
        return Setting(self.microbatch_size, self.tensor_parallel, self.recompute, self.recipe)

    def fixed(self, stages: int) -> FixedDegrees:
        """These and so many stages, with nothing left to choose."""
        return FixedDegrees(
            data_parallel=self.data_parallel,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=stages,
            microbatch=self.microbatch_size,
            recompute=self.recompute,
        )


@dataclass(frozen=True)
class Replay:
    """One workload on its devices, every figure in seconds of one iteration.

    `microbatches`: of one pipeline. `reduction_s`, `optimizer_s`: of the stage that ends last.
    """

    workload: str
    task: Task
    degrees: Degrees
    evaluator: Evaluator
    planner: Planner
    stages: tuple[ReplayedStage, ...]
    microbatches: int
    iteration_s: float
    reduction_s: float
    optimizer_s: float

    @property
    def timed(self) -> TimedChain:
        """The chain of layers with its costs on the designs in use."""
        return self.evaluator.timed(self.degrees.setting)

    @property
    def slots(self) -> int:
        """How many turns of the slowest stage the model counts."""
        return self.microbatches + len(self.stages) - 1

    @property
    def turns_s(self) -> float:
        """All these turns, s: when the reduction of gradients begins."""
        return self.slots * max(stage.load_s for stage in self.stages)

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.planner.training


def replay(
    task: Task,
    degrees: Degrees,
    told: Sequence[Stage],
    designs: Sequence[Architecture],
    *,
    proven: bool,
) -> Replay:
    """Play a placement again; `designs` are those of its stages, in their order.

    Raises InputError where the model says something else than the document (`proven`: anything else but rounding).
    """
    distinct = list({design.name: design for design in designs}.values())
    rows = [[d.name for d in distinct].index(design.name) for design in designs]
    evaluator = Evaluator(task, to_table(distinct))
    timed = evaluator.timed(degrees.setting)
    _, times = timed.exact(np.arange(len(distinct)), EFFORT)
    ranges = _ranges(told, timed.chain.names)
    fixed = degrees.fixed(len(told))
    on = [on_design(evaluator, degrees.setting, fixed, ranges, times, row) for row in range(len(distinct))]
    stages = tuple(
        on[row].stage(k, designs[k].name, _stretch(stage, on[row].plans[k], proven=proven))
        for k, (row, stage) in enumerate(zip(rows, told, strict=True))
    )
    microbatches = on[0].microbatches
    slowest_s = max(stage.load_s for stage in stages)
    reduction_s, optimizer_s = max(((s.reduction_s, s.optimizer_s) for s in stages), key=sum)
    return Replay(
        workload=task.workload.name,
        task=task,
        degrees=degrees,
        evaluator=evaluator,
        planner=on[0].planner,
        stages=stages,
        microbatches=microbatches,
        iteration_s=(microbatches + len(stages) - 1) * slowest_s + reduction_s + optimizer_s,
        reduction_s=reduction_s,
        optimizer_s=optimizer_s,
    )


def _ranges(told: Sequence[Stage], names: Sequence[str]) -> list[tuple[int, int]]:
    """First and last layer of every stage. Raises InputError where these are not the layers of the workload."""
    listed = [name for stage in told for name in stage.layers]
    if listed != list(names):
        raise InputError("the layers of the run are not those of its workload any more; run it again")
    ends = np.cumsum([len(stage.layers) for stage in told]).tolist()
    return [(end - len(stage.layers), end - 1) for end, stage in zip(ends, told, strict=True)]


def _stretch(told: Stage, found: StagePlan, *, proven: bool) -> float:
    """What times are multiplied with so that a stage takes as long as the document says: 1 but for its search."""
    ratio = told.load_s / found.load_s if found.load_s else 1.0
    if abs(ratio - 1.0) > (_SAME if proven else _NEAR):
        raise InputError(
            f"the run says {told.load_s:.6g} s of a stage that takes {found.load_s:.6g} s in this version of the "
            "model; run it again"
        )
    return ratio
