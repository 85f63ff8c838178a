"""What a result says of a cluster whose number of devices was free."""

from __future__ import annotations

from pydantic import Field

from phaze.explore.record import Record


class ClusterChoice(Record):
    """One number of devices of the grid."""

    devices: int
    power_per_device_w: float = Field(description="what one accelerator may draw with so many of them")
    status: str = Field(
        description="searched; bounded: cannot be better; infeasible: nothing fits; open: time was over"
    )
    upper_bound_samples_per_s: float = Field(description="no design is faster with so many devices")
    throughput_samples_per_s: float | None = Field(description="of the best design, where searched")
    id: str | None = Field(description="of the best design, where searched")


class ClusterReport(Record):
    """The best number of devices within a budget for the whole cluster."""

    power_budget_w: float
    overhead: float = Field(description="power of the cluster over that of its accelerators")
    devices: int
    power_w: float = Field(description="accelerators at their TDP, times the overhead")
    choices: list[ClusterChoice] = Field(description="every number of devices of the grid, ascending")
