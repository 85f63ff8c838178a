"""What a result says of a cluster whose number of devices was free."""

from __future__ import annotations

from pydantic import Field

from phaze.explore.record import Record


class ClusterChoice(Record):
    """One number of devices of the grid."""

    devices: int
    power_per_device_w: float | None = Field(description="what one accelerator may draw with so many of them")
    price_per_device_usd: float | None = Field(description="what one may cost to make with so many of them")
    status: str = Field(
        description="searched; bounded: cannot be better; infeasible: nothing fits, fast enough; open: time was over"
    )
    upper_bound_samples_per_s: float = Field(description="no design is faster with so many devices")
    throughput_samples_per_s: float | None = Field(description="of the best design, where searched")
    id: str | None = Field(description="of the best design, where searched")


class ClusterReport(Record):
    """The best number of devices within budgets for the whole cluster."""

    power_budget_w: float | None
    cost_budget_usd: float | None
    overhead: float = Field(description="power of the cluster over that of its accelerators")
    devices: int
    power_w: float = Field(description="accelerators at their TDP, times the overhead")
    cost_usd: float = Field(description="of making the accelerators")
    choices: list[ClusterChoice] = Field(description="every number of devices of the grid, ascending")
