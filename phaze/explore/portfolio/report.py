"""What a result says of one common design for several workloads."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.explore.record import Record


class OwnOptimum(Record):
    """The best design for one workload alone, in the same space and budgets."""

    id: str = Field(description="the design's name within the space")
    throughput_samples_per_s: float
    upper_bound_samples_per_s: float = Field(description="no point of the space is faster on this workload")
    gap: float = Field(description="(upper bound - throughput) / throughput; 0: proven optimal")
    area_mm2: float
    tdp_w: float


class Share(Record):
    """What one workload gets from the common design."""

    weight: float = Field(description="as given; weights count relative to each other")
    throughput_samples_per_s: float = Field(description="on the common design")
    ratio: float = Field(description="over the throughput of the workload's own best design")
    regret: float = Field(description="1 - ratio: what is lost against the workload's own best design")
    own: OwnOptimum


class Cross(Record):
    """One design on all workloads."""

    id: str
    winner_for: list[str] = Field(
        description="workloads whose own best design this is; none: the common design"
    )
    score: float = Field(description="the combined score; 0 where some workload does not fit")
    throughputs_samples_per_s: dict[str, float] = Field(description="per workload; 0 where it does not fit")
    tdp_w: float
    area_mm2: float


class ScorePoint(Record):
    """One step of the frontier of score against power."""

    id: str
    score: float
    throughputs_samples_per_s: dict[str, float] = Field(description="per workload")
    tdp_w: float
    area_mm2: float
    architecture: dict[str, Any] = Field(description="hardware fields, as in an architecture YAML file")


class PortfolioReport(Record):
    """One common design for several workloads."""

    combine: str = Field(description="geomean, mean, throughput or worst")
    score: float = Field(description="of the common design")
    workloads: dict[str, Share]
    cross: list[Cross] = Field(
        description="the common design, then each workload's own best, on all workloads"
    )
    frontier: list[ScorePoint] = Field(description="designs that no other one beats in score and power")
