"""Report on the network as part of a design: the best one, its share of power and price, every one looked at."""

from __future__ import annotations

from pydantic import Field

from phaze.explore.documents.document_record import Record


class NetworkChoice(Record):
    """One network of the space."""

    network: str = Field(description="its name: topology and size of scale-up domains, adapters")
    values: dict[str, int | float | str] = Field(
        description="on the axes of the network, bandwidths in byte/s"
    )
    status: str = Field(
        description="searched; bounded: cannot be better; infeasible: nothing keeps the budgets beside it, or fits; "
        "open: time was over"
    )
    architectures_within: int = Field(description="those that keep the budgets beside it")
    upper_bound: float | None = Field(
        description="of the objective as the certificate has it; null where nothing is known yet"
    )
    objective_value: float | None = Field(
        description="of its best design, where one was better than all before"
    )
    id: str | None = Field(description="of that design")


class NetworkReport(Record):
    """The network of the best design."""

    network: str = Field(description="its name among the choices")
    scale_up_devices: int | None = Field(description="devices of a scale-up domain")
    scale_up_topology: str = Field(description="how the devices of a scale-up domain are wired")
    scale_up_dims: list[int] = Field(description="extents of a torus")
    scale_up_bandwidth_bytes_per_s: float = Field(
        description="of a device and direction: the chip's own links"
    )
    scale_out_bandwidth_bytes_per_s: float = Field(description="of a device's adapter")
    oversubscription: float = Field(description="of the fat tree between domains")
    network_power_per_device_w: float = Field(
        description="a device's share of switches, optics and adapters; its link interfaces are in its TDP"
    )
    power_per_device_w: float = Field(description="TDP and that share: what a budget of power limits")
    network_price_per_device_usd: float = Field(
        description="a device's share of links, switches and adapters"
    )
    choices: list[NetworkChoice] = Field(description="every network of the space")
