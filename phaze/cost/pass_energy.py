"""Energy of a pass by event counts: arithmetic, operand delivery, buffers, HBM, links.

Power that does not depend on what runs (background, leakage, HBM refresh) is a matter of time and is
given apart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.collective_times import link_wire_bytes
from phaze.cost.cost_model import PassCosts
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.silicon.package_power import energy_constants
from phaze.workload.work import NARROW, Pass
from phaze.workload.workload import Numerics


@dataclass(frozen=True)
class Events:
    """Event counts of some work on one device; numbers or (A,) arrays. `narrow_macs`: of 8 bits or less."""

    macs: float | Floats = 0.0
    narrow_macs: float | Floats = 0.0
    alu_cycles: float | Floats = 0.0
    buffer_bytes: float | Floats = 0.0
    hbm_bytes: float | Floats = 0.0
    link_bytes: float | Floats = 0.0  # sent plus received

    def __add__(self, other: Events) -> Events:
        """Both together."""
        return Events(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float | Floats) -> Events:
        """The same work several times, on every architecture as often or (A,) times."""
        return Events(*(getattr(self, f.name) * times for f in fields(self)))


def pass_events(costs: PassCosts, rows: Rows) -> Events:
    """Events of one pass over one microbatch on the given architectures of the model's table."""
    where = np.asarray(rows, dtype=np.intp)
    works, f = costs.pass_.works, costs.factors
    return Events(
        macs=float(sum(g.macs for w in works for g in w.gemms if g.operands not in NARROW)),
        narrow_macs=float(sum(g.macs for w in works for g in w.gemms if g.operands in NARROW)),
        alu_cycles=sum(w.vector_cycles for w in works),
        buffer_bytes=costs.tables.buffer_bytes.sum(axis=1)[f.tensor_of[where]],
        hbm_bytes=costs.tables.hbm_bytes.sum(axis=1)[f.memory_of[where]],
        link_bytes=_collective_bytes(costs.pass_),
    )


def optimizer_events(parameters: float, numerics: Numerics) -> Events:
    """Events of one optimizer step over the parameters of one device."""
    traffic = parameters * numerics.optimizer_traffic_bytes
    return Events(
        alu_cycles=parameters * numerics.optimizer_vector_cycles, buffer_bytes=traffic, hbm_bytes=traffic
    )


def dynamic_j(events: Events, table: ArchitectureTable) -> Floats:
    """Dynamic energy of some events on the architectures of a table in J, (A,), one device.

    E = sum over kinds of events of count x energy; of HBM: bytes x 8 x pJ per bit of its generation (HBM2: O'Connor,
    MICRO 2017). Source of the constants: `phaze.hardware.silicon.package_power`. A byte on a link is charged at both
    ends: here for what the device sends and for what it receives.
    """
    e = energy_constants(table)
    total: Floats = (
        events.macs * (e.mac_j + e.operand_j_per_mac)
        + events.narrow_macs * (e.narrow_mac_j + e.narrow_operand_j_per_mac)
        + events.alu_cycles * e.alu_cycle_j
        + events.buffer_bytes * e.global_buffer_j_per_byte
        + events.hbm_bytes * e.hbm_j_per_byte
        + events.link_bytes * e.link_j_per_byte
    )
    return total


def static_w(table: ArchitectureTable) -> Floats:
    """Watts that flow whatever runs, (A,): background as far as it is not gated, leakage, HBM refresh."""
    e = energy_constants(table)
    total: Floats = e.background_w * e.idle_background + e.leakage_w + e.hbm_background_w
    return total


def _collective_bytes(pass_: Pass) -> float:
    """Bytes a device sends and receives in the collectives of a pass."""
    return 2 * sum(link_wire_bytes(w.link) for w in pass_.works if w.link is not None)
