"""Collectives among devices on one switch, as communication libraries run them.

Per device: a launch, a step per further device, the bytes on the wire at a share of the link's bandwidth
that grows with the number of devices, and a ramp: messages of middling size do not fill the pipeline of
chunks, which costs the geometric mean of the wire time and a constant of the family.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import wire_bytes
from phaze.workload.work import Link

Floats = NDArray[np.float64]

_PAIR, _MANY = 2, 8  # devices at which the two efficiencies hold


@dataclass(frozen=True, slots=True)
class SwitchLaw:
    """Constants of one link family: `pair`, `many`: shares of the bandwidth among two and eight devices."""

    launch_s: float
    step_s: float
    pair: float
    many: float
    ramp_s: float


def switched_s(links: list[Link], bandwidth_bytes_per_s: float, law: SwitchLaw) -> Floats:
    """Seconds of each collective, launch included."""
    wire_s = np.array([wire_bytes(x.collective, x.payload_bytes, x.group.size) for x in links])
    wire_s = wire_s / bandwidth_bytes_per_s
    devices = np.array([x.group.size for x in links], dtype=np.float64)
    grown = (1 / _PAIR - 1 / devices) / (1 / _PAIR - 1 / _MANY)
    efficiency = law.pair + (law.many - law.pair) * grown
    seconds: Floats = law.launch_s + law.step_s * (devices - 1) + wire_s / efficiency
    return seconds + np.sqrt(law.ramp_s * wire_s)
