"""Energy of a pass by event counts: arithmetic, operand delivery, buffers, HBM, links.

Power that does not depend on what runs (background, leakage, HBM refresh) is a matter of time and is
given apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.cost.collective_times import link_wire_bytes
from phaze.cost.cost_model import PassCosts
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import fp32_on_vector
from phaze.hardware.silicon.package_power import energy_constants
from phaze.workload.work import Format, Pass, Work
from phaze.workload.workload import Numerics


@dataclass(frozen=True)
class Events:
    """Event counts of some work on one device; numbers or (A,) arrays. `narrow_macs`: of 8 bits, `fp4_macs`: of 4.

    `kernel_s`: seconds in which kernels of a SIMT chip run.
    """

    macs: float | Floats = 0.0
    narrow_macs: float | Floats = 0.0
    fp4_macs: float | Floats = 0.0
    alu_cycles: float | Floats = 0.0
    buffer_bytes: float | Floats = 0.0
    hbm_bytes: float | Floats = 0.0
    link_bytes: float | Floats = 0.0  # sent plus received
    kernel_s: float | Floats = 0.0

    def __add__(self, other: Events) -> Events:
        """Both together."""
        return Events(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float | Floats) -> Events:
        """The same work several times, on every architecture as often or (A,) times."""
        return Events(*(getattr(self, f.name) * times for f in fields(self)))


def pass_events(costs: PassCosts, rows: Rows) -> Events:
    """Events of one pass over one microbatch on the given architectures of the model's table.

    Kernels of SIMT chips skip what a causal mask hides, and draw power as long as they run.
    """
    where = np.asarray(rows, dtype=np.intp)
    works, f = costs.pass_.works, costs.factors
    macs = {width: float(sum(of_each)) for width, of_each in _macs(works).items()}
    everything = Events(
        **macs,
        alu_cycles=sum(w.vector_cycles for w in works),
        buffer_bytes=costs.tables.tensor.buffer_bytes.sum(axis=1)[f.tensor_of[where]],
        hbm_bytes=costs.tables.hbm_bytes.sum(axis=1)[f.memory_of[where]],
        link_bytes=_collective_bytes(costs.pass_),
    )
    simt = f.simt_of[where] >= 0
    return _as_kernels(everything, costs, where, simt) if simt.any() else everything


def product_events(pass_: Pass) -> Events:
    """Multiply-accumulates of one pass over one microbatch that no causal mask hides: no chip does less."""
    computing = [w for w in pass_.works if w.link is None]
    return Events(**{width: float(of_each.sum()) for width, of_each in _visible_macs(computing).items()})


def _as_kernels(everything: Events, costs: PassCosts, rows: Rows, simt: Flags) -> Events:
    """The same events, those of SIMT chips as their kernels run them."""
    computing = [w for w in costs.pass_.works if w.link is None]
    macs = {width: float(of_each.sum()) for width, of_each in _visible_macs(computing).items()}
    kernel_s = costs.kernel_s
    issued = energy_constants(costs.simt.side.table).kernel_alu_cycles_per_s[:, None] * kernel_s
    beyond = _beyond_issued(computing, issued).sum(axis=1)
    number = np.maximum(costs.factors.simt_of[rows], 0)
    return replace(
        everything,
        **{width: np.where(simt, seen, getattr(everything, width)) for width, seen in macs.items()},
        alu_cycles=np.where(simt, beyond[number], everything.alu_cycles),
        kernel_s=np.where(simt, kernel_s.sum(axis=1)[number], 0.0),
    )


def _macs(works: Sequence[Work]) -> dict[str, Floats]:
    """Multiply-accumulates of each operator, (O,), by the width of their operands: the counts of `Events`."""
    widths: dict[str, tuple[Format, ...]] = {
        "narrow_macs": (Format.FP8, Format.INT8),
        "fp4_macs": (Format.FP4,),
    }
    found = {
        name: np.array([sum(g.macs for g in w.gemms if g.operands in formats) for w in works], np.float64)
        for name, formats in widths.items()
    }
    every = np.array([w.macs for w in works], dtype=np.float64)
    return {"macs": every - sum(found.values()), **found}


def _visible_macs(works: Sequence[Work]) -> dict[str, Floats]:
    """Those of each operator that no causal mask hides."""
    return {width: _seen(works) * of_each for width, of_each in _macs(works).items()}


def _seen(works: Sequence[Work]) -> Floats:
    """Share of each operator that no causal mask hides."""
    return np.array([1.0 if w.flash is None else w.flash.visible for w in works], dtype=np.float64)


def _beyond_issued(works: Sequence[Work], issued: Floats) -> Floats:
    """ALU cycles of each operator, (..., O), beyond those that a running kernel is charged with anyway."""
    beyond: Floats = np.maximum(_seen(works) * np.array([w.vector_cycles for w in works]) - issued, 0.0)
    return beyond


def optimizer_events(parameters: float, numerics: Numerics) -> Events:
    """Events of one optimizer step over the parameters of one device."""
    traffic = parameters * numerics.optimizer_traffic_bytes
    return Events(
        alu_cycles=parameters * numerics.optimizer_vector_cycles, buffer_bytes=traffic, hbm_bytes=traffic
    )


def dynamic_j(events: Events, table: ArchitectureTable) -> Floats:
    """Dynamic energy of some events on the architectures of a table in J, (A,), one device.

    E = sum over kinds of events of count x energy; of HBM: bytes x 8 x pJ per bit of its generation (HBM2: O'Connor,
    MICRO 2017), and of a GPU seconds in which kernels run x watts. Source of the constants:
    `phaze.hardware.silicon.package_power`. A byte on a link is charged at both ends: here for what the device sends
    and for what it receives.
    """
    e = energy_constants(table)
    total: Floats = (
        events.macs * (e.mac_j + e.operand_j_per_mac)
        + (events.narrow_macs + events.fp4_macs * e.fp4_share) * (e.narrow_mac_j + e.narrow_operand_j_per_mac)
        + events.alu_cycles * e.alu_cycle_j
        + events.buffer_bytes * e.global_buffer_j_per_byte
        + events.hbm_bytes * e.hbm_j_per_byte
        + events.link_bytes * e.link_j_per_byte
        + events.kernel_s * e.kernel_w
    )
    return total


def kernel_j(costs: PassCosts, table: ArchitectureTable) -> Floats:
    """Dynamic energy in J, (O,), of each kernel of a pass on a chip, a table of one.

    Beyond what a running kernel draws (`running_w`), at the clock of the table.
    """
    f, t = costs.factors, costs.tables
    buffer, hbm = t.tensor.buffer_bytes[f.tensor_of[:1]], t.hbm_bytes[f.memory_of[:1]]
    found: Floats = kernel_events_j(costs.pass_.works, table, buffer, hbm)[0]
    return found


def kernel_events_j(
    works: Sequence[Work], table: ArchitectureTable, buffer_bytes: Floats, hbm_bytes: Floats
) -> Floats:
    """Joules of the events of kernels, (A, O), on the architectures of a table at their clocks.

    `buffer_bytes` and `hbm_bytes` are (A, O). ALU cycles come on top of those that a running kernel issues for loads,
    stores and addresses; products in fp32 take one each where the vector ALUs have them.
    """
    e, macs = energy_constants(table), _visible_macs(works)
    wide = np.array([sum(g.macs for g in w.gemms if g.operands is Format.FP32) for w in works], np.float64)
    on_vector = np.where(fp32_on_vector(table) & table["simt"], 1.0, 0.0)[:, None] * wide
    cycles = _seen(works) * np.array([w.vector_cycles for w in works], dtype=np.float64) + on_vector
    return np.asarray(
        _products_j(macs | {"macs": macs["macs"] - on_vector}, table)
        + cycles * e.alu_cycle_j[:, None]
        + buffer_bytes * e.global_buffer_j_per_byte[:, None]
        + hbm_bytes * e.hbm_j_per_byte[:, None]
    )


def _products_j(macs: Mapping[str, Floats], table: ArchitectureTable) -> Floats:
    """Joules of multiply-accumulates by the width of their operands, (A, O)."""
    e = energy_constants(table)
    narrow_j = e.narrow_mac_j + e.narrow_operand_j_per_mac
    each_j = {
        "macs": e.mac_j + e.operand_j_per_mac,
        "narrow_macs": narrow_j,
        "fp4_macs": e.fp4_share * narrow_j,
    }
    each = [each_j[width][:, None] * of_each for width, of_each in macs.items()]
    return np.asarray(np.sum(each, axis=0))


def running_w(table: ArchitectureTable) -> Floats:
    """Watts that a chip draws as long as a kernel runs, whatever it does, (A,)."""
    total: Floats = static_w(table) + energy_constants(table).kernel_w
    return total


def static_w(table: ArchitectureTable) -> Floats:
    """Watts that flow whatever runs, (A,): background as far as it is not gated, leakage, HBM refresh."""
    e = energy_constants(table)
    total: Floats = e.background_w * e.idle_background + e.leakage_w + e.hbm_background_w
    return total


def _collective_bytes(pass_: Pass) -> float:
    """Bytes a device sends and receives in the collectives of a pass."""
    return 2 * sum(link_wire_bytes(w.link) for w in pass_.works if w.link is not None)
