"""Report on two designs for the stages of a pipeline: the best pair, what it buys, how far any could be better."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.explore.documents.document_record import Record
from phaze.explore.documents.strategy_report import PerStage


class PairDesign(Record):
    """One of the two designs, and how many of it the pipelines take."""

    id: str = Field(description="name of the architecture within the space")
    stages: int = Field(description="of every pipeline")
    devices: int = Field(description="of the cluster, all pipelines together")
    tdp_w: float
    area_mm2: float
    architecture: dict[str, Any]


class TwoDesigns(Record):
    """The best with at most two designs: `best` of the document where no pair is faster, and then without designs."""

    throughput_samples_per_s: float
    gain: float = Field(description="over the best design for all stages: what the second design buys")
    upper_bound: float = Field(description="samples/s that no pipeline of two designs exceeds")
    gap: float = Field(description="(upper_bound - throughput_samples_per_s) / throughput_samples_per_s")
    optimal: bool
    designs: list[PairDesign] = Field(description="empty where a second design buys nothing")
    pipeline: PerStage | None = Field(description="its stages, with gain over the best design for all")
    settings: int = Field(description="shapes of layers that have pipelines of two or more stages")
    settings_opened: int = Field(
        description="those that bounds did not rule out before designs were told apart"
    )
    designs_told_apart: int = Field(description="designs of these settings by least times, memory and link")
    designs_worked_out: int = Field(description="those whose layers were scheduled")
    pairs_searched: int = Field(description="pairs whose pipelines were searched")
    scope: list[str] = Field(description="what the bound speaks of, beside the certificate's scope")
