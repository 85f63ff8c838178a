"""Reports of searches without proof: how one went, how far from the certified optimum it ended, and WHAM's
every step.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from phaze.explore.documents.document_record import Record
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.tolerances import SAME
from phaze.workload.operators.low_precision import Recipe


class Stop(StrEnum):
    """What ended a search."""

    CONVERGED = "converged"  # its own rule
    EVALUATIONS = "evaluations"  # the budget of evaluations
    TIME = "time"
    EXHAUSTED = "exhausted"  # nothing left to try


class Improvement(Record):
    """A new best value and what it had cost by then."""

    evaluation: int = Field(description="architectures evaluated, this one included")
    elapsed_s: float = Field(description="since the search began; architectures evaluated together share it")
    value: float = Field(description="the objective, to be maximised")


class Distance(Record):
    """How far a search ended from what is certified for the same space, budgets and objective."""

    certified: float = Field(description="objective of the certified answer")
    upper_bound: float = Field(description="no point of the space is better")
    proven: bool = Field(description="whether the certified answer is the optimum: it equals the upper bound")
    share: float = Field(description="(certified - best) / certified; 1 where nothing feasible was found")


class StrategyReport(Record):
    """The course of one search."""

    strategy: str
    seed: int = Field(description="of its random choices; without effect where there are none")
    evaluations: int = Field(description="architectures evaluated; those over a budget cost nothing")
    runtime_s: float
    best_value: float | None = Field(
        description="the objective, to be maximised; null where nothing feasible"
    )
    history: list[Improvement] = Field(description="the evaluations that were better than all before")
    stopped: Stop
    distance: Distance | None = Field(default=None, description="null where no certified answer is known")
    figures: dict[str, float] = Field(default_factory=dict, description="what only this strategy can tell")


def certified_distance(best: float | None, certified: float, upper_bound: float) -> Distance:
    """Of a search's best value (None: nothing feasible found) from a certified answer and its upper bound.

    Negative where the search was better, which no proven answer allows.
    """
    share = (certified - (best or 0.0)) / certified
    return Distance(
        certified=certified,
        upper_bound=upper_bound,
        proven=upper_bound <= certified * (1.0 + SAME),
        share=0.0 if abs(share) < SAME else share,
    )


class AxisReport(Record):
    """One axis of the space and what the search does with it."""

    fields: list[str] = Field(description="hardware fields that vary together")
    options: int = Field(description="how many values they take")
    treatment: str = Field(
        description="`cores`: grows by conflicts; `halved`: a core dimension; `enumerated`: a search for each option; "
        "`follows the arrays`: what feeds them; `follows the budgets`: the highest clock that they leave"
    )


class CoreStep(Record):
    """One pair of core counts on the way from the fewest cores."""

    added: str = Field(description="TC or VC: the type of core added to get here; empty at the start")
    tensor_cores: int
    vector_cores: int
    stage_s: float = Field(
        description="one microbatch in the stage's lowest terms, list schedule, no transfers"
    )
    critical_path_s: float = Field(description="the same with unlimited cores")
    lost_to_tensor_cores_s: float = Field(description="what critical operators lose to missing tensor cores")
    lost_to_vector_cores_s: float = Field(description="what critical operators lose to missing vector cores")
    metric: float = Field(description="stages per second, or per second and watt")


class DimensionStep(Record):
    """Core dimensions on the way from the largest to those of the stage's best design."""

    fields: dict[str, str] = Field(description="value of every axis but the core counts")
    metric: float | None = Field(description="of its best design; null where none keeps the budgets")
    fruitless_levels: int = Field(description="levels in a row, this one included, without improvement")


class Level(Record):
    """All dimensions that are so many halvings below the largest."""

    halvings: int
    tried: int
    with_design: int = Field(description="some core counts keep the budgets")
    pruned: int = Field(description="too many levels without improvement: nothing below was looked at")
    best_metric: float | None


class StageDesignReport(Record):
    """One of a stage's best designs."""

    id: str = Field(description="name of the architecture within the space")
    number: int = Field(description="its number among the candidates")
    metric: float = Field(description="stages per second, or per second and watt")
    stage_s: float
    critical_path_s: float
    tdp_w: float
    area_mm2: float


class StageSearch(Record):
    """The local search of one kind of stage."""

    layers: dict[str, int] = Field(
        description="layers by kind, in lowest terms: equal layers are searched once"
    )
    positions: list[int] = Field(description="the stages of the pipeline that are of this kind, first is 0")
    repeats: list[int] = Field(description="for each of them, how many times the lowest terms it does")
    levels: list[Level]
    path: list[DimensionStep] = Field(description="from the largest dimensions to those of the best design")
    cores: list[CoreStep] = Field(description="how the best design's cores were added")
    ended: str = Field(description="why no more cores were added: critical path, budget, space or no gain")
    designs: list[StageDesignReport] = Field(description="the best designs, best first: the top k")


class SettingSearch(Record):
    """One setting: its pipeline and the local search of each distinct stage."""

    microbatch_size: int
    tensor_parallel: int
    recompute: str = Field(description="none, selective or full")
    recipe: Recipe | None = Field(default=None, description="few bits in which linear layers run, if they do")
    promise: float = Field(description="bound on the objective for the best of a sample of the space")
    data_parallel: int = Field(description="of the reference plan")
    pipeline_parallel: int = Field(description="of the reference plan: so many stages were searched")
    plan: StrategyRecord | None = Field(default=None, description="the reference plan with all its choices")
    stages: list[StageSearch]


class WorkloadSearch(Record):
    """The searches for one workload."""

    workload: str
    settings: int = Field(description="settings in which some design of the sample fits")
    searched: list[SettingSearch] = Field(description="the most promising of them, in the order searched")


class OneDesign(Record):
    """The best single design for all stages, and for all workloads."""

    id: str
    number: int
    value: float = Field(description="the objective under the best placement")
    throughputs: list[float] = Field(description="samples/s, one per workload")
    tdp_w: float
    area_mm2: float
    evaluated: int = Field(description="architectures evaluated under their best placement")


class MixedStageReport(Record):
    """One stage of a pipeline with a design of its own: all that a device holds."""

    layers: list[str] = Field(description="names of the layers, part by part of the model")
    id: str = Field(description="the design")
    load_s: float = Field(description="passes of one microbatch (without `plan`: and its transfers)")
    memory_bytes: float = Field(description="peak on one of its accelerators")
    tdp_w: float


class PerStage(Record):
    """The best pipeline whose stages have designs of their own: cuts, degrees and designs chosen together."""

    value: float = Field(description="the objective, with the mean TDP where power counts")
    gain: float = Field(
        description="value / value of the best single design - 1, never below 0 but for rounding"
    )
    throughput_samples_per_s: float
    iteration_time_s: float
    mean_tdp_w: float = Field(description="of the accelerators in use")
    distinct_designs: int
    designs_offered: int = Field(description="designs that every stage could choose from")
    microbatch_size: int
    tensor_parallel: int
    recompute: str
    recipe: Recipe | None = Field(default=None, description="few bits in which linear layers run, if they do")
    data_parallel: int
    plan: StrategyRecord | None = Field(
        default=None, description="all choices of the plan; null in results before plans had schedules"
    )
    stages: list[MixedStageReport]
    options: int = Field(description="strategies in this setting, with the cuts that were made for them")
    options_solved: int = Field(description="those that bounds did not rule out")


class WhamReport(Record):
    """The whole search."""

    designs: str = Field(description="one, per-stage or common")
    objective: str
    floor_samples_per_s: float = Field(description="throughput below which nothing counts; 0: no floor")
    top_k: int
    hysteresis: int = Field(description="levels of halving in a row that may fail to improve")
    axes: list[AxisReport]
    workloads: list[WorkloadSearch]
    one: OneDesign | None = Field(description="null where nothing fits")
    per_stage: PerStage | None = Field(default=None, description="null unless asked for")
