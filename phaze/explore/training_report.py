"""What a result says of a whole training run."""

from __future__ import annotations

from pydantic import Field

from phaze.explore.record import Record


class TrainingRun(Record):
    """A whole training run on the winner: time, energy and money, each from stated assumptions."""

    samples: float = Field(description="sequences or images seen in all")
    tokens: float | None = Field(description="samples x sequence length, where the model has one")
    duration_s: float = Field(description="samples over throughput; restarts and failures are not in it")
    energy_j: float = Field(description="accelerators, as the model counts it")
    facility_energy_j: float = Field(description="energy_j x power usage effectiveness")
    electricity_usd: float
    chips_usd: float = Field(description="manufacturing cost of all devices x duration / lifetime")
    total_usd: float = Field(
        description="electricity_usd + chips_usd; hosts, network and staff are not in it"
    )
    chip_usd: float = Field(description="manufacturing cost of one accelerator")
    usd_per_kwh: float
    power_usage_effectiveness: float
    lifetime_s: float = Field(description="over which an accelerator is written off")
