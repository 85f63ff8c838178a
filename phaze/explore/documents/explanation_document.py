"""The explanation document: what `dse explain RUN --json` prints. Field names carry their units."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record

EXPLANATION_SCHEMA = DocumentName.EXPLANATION.version(1)


class Neighbour(Record):
    """The winner with one axis of the space moved by one option, the others held, under its best placement."""

    axis: str = Field(description="varied fields that move together, joined by +")
    direction: str = Field(description="up or down the options of the axis")
    values: dict[str, Any] = Field(description="the fields moved, in SI units, at their new values")
    in_space: bool = Field(description="false: one step beyond the end of the axis, evaluated all the same")
    throughput_samples_per_s: float | None = Field(description="none where no placement fits in memory")
    gain: float | None = Field(
        description="objective over that of the winner, a minimised one as its reciprocal, less 1; none where "
        "nothing fits"
    )
    tdp_w: float = Field(description="power of one accelerator, the TDP margin included")
    area_mm2: float = Field(description="silicon of one accelerator")
    over_power_w: float = Field(description="power above the budget, 0 within it")
    over_area_mm2: float = Field(description="area above the budget, 0 within it")
    forbidden_by: list[str] = Field(
        description="power, area, power density, reticle, shoreline, memory, least throughput, area filter, the "
        "text of a constraint of the space, a field that is fixed, end of the axis; empty: allowed"
    )


class Binding(Record):
    """A limit that keeps the winner from a better neighbour."""

    limit: str = Field(description="as in `forbidden_by`")
    axes: list[str] = Field(description="axes along which a neighbour would be better but for this limit")
    alone: bool = Field(description="whether nothing but this limit stands in their way; else others do, too")
    best_gain: float = Field(description="largest gain among these neighbours, limits aside")


class LayerBottleneck(Record):
    """What one pass of a unique layer waits for; compute, global buffer, HBM, link and fill sum to 1."""

    layer: str = Field(description="kind of layer")
    direction: str = Field(description="forward or backward")
    count: int = Field(description="times one microbatch goes through it, recomputation included")
    time_s: float = Field(description="one time through it")
    share_of_layers: float = Field(description="of the time one microbatch spends in all layers")
    compute: float = Field(description="share bound by tensor or vector cores")
    global_buffer: float = Field(description="share bound by the bandwidth of the global buffer")
    hbm: float = Field(description="share bound by HBM bandwidth, the memory floor of the pass included")
    link: float = Field(description="share in tensor-parallel collectives")
    fill: float = Field(description="share that fills and drains the arrays")
    waiting: float = Field(
        description="share beyond the critical path: operators that depend on nobody wait for cores or memory"
    )

    @property
    def bound_by(self) -> str:
        """The resource with the largest share."""
        names = ("compute", "global_buffer", "hbm", "link", "fill")
        return max(names, key=lambda name: float(getattr(self, name)))


class Sensitivity(Record):
    """How throughput answers to one physical parameter, under the best placement at each value."""

    parameter: str = Field(description="hardware or network field, or a rate worked out from several")
    description: str = Field(description="what is changed, and what is held")
    throughput_less_samples_per_s: float = Field(description="with `step` less of it")
    throughput_more_samples_per_s: float = Field(description="with `step` more of it")
    step: float = Field(description="relative change of the parameter")
    gain: float = Field(description="throughput with `step` more of it, over that of the winner, less 1")
    elasticity: float | None = Field(
        description="d ln throughput / d ln parameter, over both steps; none where nothing fits with less of it"
    )


class BudgetStep(Record):
    """What another budget would buy, everything else as asked."""

    budget: str = Field(description="power or area")
    limit: float = Field(description="the other budget, in W or mm2")
    change: float = Field(description="limit less the budget of the run, in W or mm2")
    throughput_samples_per_s: float = Field(description="best found within it")
    gain: float = Field(description="throughput over that of the winner, less 1")
    proven_gap: float | None = Field(description="nothing within it is better by more; none: not proven")
    id: str = Field(description="the architecture that reaches it")


class Factor(Record):
    """One of the factors that multiply to the ratio of two throughputs."""

    name: str = Field(description="what differs")
    winner: float = Field(
        description="value at the winner; for a loss the share of time or devices that is kept"
    )
    other: float = Field(description="the same at the other design")
    ratio: float = Field(description="winner / other")


class Against(Record):
    """Why a known chip in the same budget is slower, or as fast."""

    name: str = Field(description="name of the chip")
    note: str = Field(description="what was changed so that it keeps the budget")
    throughput_samples_per_s: float = Field(description="of the chip")
    tdp_w: float = Field(description="of the chip at that clock, TDP margin included")
    ratio: float = Field(
        description="throughput of the winner over that of the chip; the product of the factors"
    )
    factors: list[Factor] = Field(description="what the ratio is made of")
    sentence: str = Field(description="the two factors that weigh most, in words")


class Explanation(Record):
    """Why the winner of a run is what it is."""

    schema_version: str = Field(
        default=EXPLANATION_SCHEMA,
        alias="schema",
        serialization_alias="schema",
        description="of this document",
    )
    summary: str = Field(description="one sentence")
    id: str = Field(description="the architecture explained")
    workload: str = Field(description="on which")
    objective: str = Field(description="what the run optimised, and gains of neighbours are about")
    throughput_samples_per_s: float = Field(description="of the winner under its best placement")
    tdp_w: float = Field(description="of the winner, TDP margin included")
    area_mm2: float = Field(description="of the winner")
    binding: list[Binding] = Field(description="limits that stop a better neighbour, the costliest first")
    neighbours: list[Neighbour] = Field(description="one step along every axis, both ways")
    layers: list[LayerBottleneck] = Field(
        description="every unique layer, forward and backward, dearest first"
    )
    breakdown: dict[str, float] = Field(description="parts of the iteration as shares of it")
    sensitivity: list[Sensitivity] = Field(description="by elasticity, largest first")
    budgets: list[BudgetStep] = Field(description="what more or less of a budget would change")
    against: list[Against] = Field(description="known chips within the budgets, the fastest first")
