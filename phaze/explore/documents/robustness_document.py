"""The robustness document: how far the answer of a run holds within the error bars of the model."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record

ROBUSTNESS_SCHEMA = DocumentName.ROBUSTNESS.version(1)


class VariedConstant(Record):
    """A constant of the model that was varied: it is multiplied by a factor from low to high."""

    group: str = Field(description="chip, network, power or area")
    name: str = Field(description="what it multiplies")
    low: float = Field(description="smallest factor")
    high: float = Field(description="largest factor")
    source: str = Field(description="what the range rests on")


class RobustDesign(Record):
    """One near-optimal design over all scenarios. A regret is the share of the scenario's best that is missed."""

    id: str = Field(description="short stable name of the architecture within its space")
    architecture: dict[str, Any] = Field(description="hardware fields, as in an architecture YAML file")
    alike: int = Field(description="near-optimal designs with the same units and memory, this one included")
    throughput_samples_per_s: float = Field(description="at the constants of the model")
    tdp_w: float = Field(description="at the constants of the model, TDP margin included")
    area_mm2: float = Field(description="at the constants of the model")
    price: float = Field(
        description="share of the best objective that it misses at the constants of the model"
    )
    best_probability: float = Field(description="share of scenarios in which no design compared is better")
    mean_regret: float = Field(description="over all scenarios")
    worst_regret: float = Field(description="largest of all scenarios")
    least_value: float = Field(description="objective in its worst scenario")
    throughput_range_samples_per_s: tuple[float, float] = Field(
        description="5th and 95th percentile of throughput"
    )
    tdp_range_w: tuple[float, float] = Field(description="5th and 95th percentile of TDP")
    over_power_probability: float | None = Field(
        description="share of scenarios above the power budget, if any"
    )
    over_area_probability: float | None = Field(
        description="share of scenarios above the area budget, if any"
    )


class Robustness(Record):
    """The designs near the best, and how they rank when the constants of the model are wrong together."""

    schema_version: str = Field(
        default=ROBUSTNESS_SCHEMA,
        alias="schema",
        serialization_alias="schema",
        description="of this document",
    )
    summary: str = Field(description="one sentence")
    objective: str = Field(description="what is maximised")
    slack: float = Field(description="designs within this share of the best objective count as near-optimal")
    near_optimal: int = Field(description="architectures found within the slack")
    promising: int = Field(
        description="architectures whose bound was within the slack; all others are proven out"
    )
    complete: bool = Field(description="whether no architecture within the slack is missing")
    scenarios: int = Field(description="how often all constants were drawn together")
    seed: int = Field(description="of the draw")
    rank_correlation: float = Field(
        description="Kendall's tau of a scenario's ranking against that of the model, mean"
    )
    least_rank_correlation: float = Field(description="the same in the scenario that disagrees most")
    winner: str = Field(description="id of the best design at the constants of the model")
    least_regret: str = Field(description="id of the design whose worst regret is smallest")
    best_worst_case: str = Field(description="id of the design that is best in its own worst scenario")
    designs: list[RobustDesign] = Field(
        description="the designs compared, best first at the constants of the model"
    )
    constants: list[VariedConstant] = Field(description="what was varied, and on which grounds")
