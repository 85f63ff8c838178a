"""Energy of a pass by event counts: arithmetic, operand delivery, buffers, HBM, links.

Power that does not depend on what runs (background, leakage, HBM refresh) is a matter of time and is
given apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.cost.collectives.collective_times import link_wire_bytes
from phaze.cost.cost_model import PassCosts
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import boost_clock_hz, fp32_on_vector, multiprocessors
from phaze.hardware.silicon.package_power import energy_constants, once, tdp_w
from phaze.workload.work import Format, Pass, Work
from phaze.workload.workload import Numerics


@dataclass(frozen=True)
class Events:
    """Event counts of some work on one device; numbers or (A,) arrays. `narrow_macs`: of 8 bits, `fp4_macs`: of 4.

    `kernel_s`: seconds in which kernels of a SIMT chip run of which nothing else is known; `kernels_j`: joules of
    others, whose events are not counted beside that.
    """

    macs: float | Floats = 0.0
    narrow_macs: float | Floats = 0.0
    fp4_macs: float | Floats = 0.0
    alu_cycles: float | Floats = 0.0
    buffer_bytes: float | Floats = 0.0
    hbm_bytes: float | Floats = 0.0
    link_bytes: float | Floats = 0.0  # sent plus received
    kernel_s: float | Floats = 0.0
    kernels_j: float | Floats = 0.0

    def __add__(self, other: Events) -> Events:
        """Both together."""
        return Events(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float | Floats) -> Events:
        """The same work several times, on every architecture as often or (A,) times."""
        return Events(*(getattr(self, f.name) * times for f in fields(self)))


def pass_events(costs: PassCosts, rows: Rows, stretch: Floats | float = 1.0) -> Events:
    """Events of one pass over one microbatch on the given architectures of the model's table.

    Kernels of SIMT chips skip what a causal mask hides, and draw power as long as they run. `stretch`, (O,) or one
    for all: how much longer a framework's kernels take than those of the cost model.
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
    return _as_kernels(everything, costs, where, simt, stretch) if simt.any() else everything


def product_events(pass_: Pass) -> Events:
    """Multiply-accumulates of one pass over one microbatch that no causal mask hides: no chip does less."""
    computing = [w for w in pass_.works if w.link is None]
    return Events(**{width: float(of_each.sum()) for width, of_each in _visible_macs(computing).items()})


def _as_kernels(
    everything: Events, costs: PassCosts, rows: Rows, simt: Flags, stretch: Floats | float
) -> Events:
    """The same events, those of SIMT chips as the joules of their kernels."""
    joules = np.zeros(len(rows))
    joules[simt] = _kernels_j(costs, rows[simt], stretch)
    counted = ("macs", "narrow_macs", "fp4_macs", "alu_cycles", "buffer_bytes", "hbm_bytes")
    kept = {name: np.where(simt, 0.0, getattr(everything, name)) for name in counted}
    return replace(everything, **kept, kernels_j=joules)


def _kernels_j(costs: PassCosts, rows: Rows, stretch: Floats | float) -> Floats:
    """Joules of all kernels of a pass on SIMT architectures beyond what flows whatever runs, (R,).

    Each draws what it asks for at the boost clock, where the board has room, and else its limit, the power at full
    load: firmware lowers the clock. No less than its products take at the sustained clock.
    """
    f, t, at = costs.factors, costs.tables, costs.computing
    works = [costs.pass_.works[o] for o in at]
    number = f.simt_of[rows]
    table = costs.simt.side.table
    # The table of all keeps what follows from it.
    own = table if np.array_equal(number, np.arange(len(table))) else table.take(number)
    every = np.broadcast_to(np.asarray(stretch, dtype=np.float64), (len(costs.pass_.works),))
    seconds = costs.kernel_s[number] * every[at]
    buffer, hbm = t.tensor.buffer_bytes[f.tensor_of[rows]], t.hbm_bytes[f.memory_of[rows]]
    asked = kernel_events_j(works, boosted(own), buffer[:, at], hbm[:, at])
    running, limit = once(own, "board", _board_w)
    drawing = running[:, None] * busy_share(works, own) * seconds
    drawn = np.minimum(asked + drawing, limit[:, None] * seconds)
    least = _products_j(_visible_macs(works), own)
    total: Floats = np.maximum(drawn, least).sum(axis=1)
    return total


def _board_w(table: ArchitectureTable) -> tuple[Floats, Floats]:
    """Watts beyond what flows whatever runs: of a running kernel, and what the board leaves to one, (A,) each."""
    return running_beyond_w(table), np.where(table["simt"], tdp_w(table) - static_w(table), np.inf)


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


def optimizer_events(parameters: float, numerics: Numerics) -> Events:
    """Events of one optimizer step over the parameters of one device."""
    traffic = parameters * numerics.optimizer_traffic_bytes
    return Events(
        alu_cycles=parameters * numerics.optimizer_vector_cycles, buffer_bytes=traffic, hbm_bytes=traffic
    )


def as_kernels(events: Events, seconds: Floats, table: ArchitectureTable) -> Events:
    """Events of work without products that takes so long, (A,): those of SIMT chips as the joules of their kernels."""
    simt = table["simt"]
    if not simt.any():
        return events
    asked = dynamic_j(events, boosted(table)) + running_beyond_w(table) * seconds
    joules = np.minimum(asked, (tdp_w(table) - static_w(table)) * seconds)
    counted = ("alu_cycles", "buffer_bytes", "hbm_bytes")
    kept = {name: np.where(simt, 0.0, getattr(events, name)) for name in counted}
    return replace(events, **kept, kernels_j=np.where(simt, joules, 0.0))


def boosted(table: ArchitectureTable) -> ArchitectureTable:
    """The same architectures, SIMT chips at the clock of kernels that leave the board power."""
    return once(table, "boosted", _boosted)


def _boosted(table: ArchitectureTable) -> ArchitectureTable:
    return table.replace(clock_hz=np.where(table["simt"], boost_clock_hz(table), table["clock_hz"]))


def busy_share(works: Sequence[Work], table: ArchitectureTable) -> Floats:
    """Share of a chip's cores that kernels keep busy, (A, O): of few rows, each walked by one core, that many."""
    rows = np.array([w.rows or np.inf for w in works], dtype=np.float64)
    return np.asarray(np.minimum(1.0, rows / multiprocessors(table)[:, None]))


def running_beyond_w(table: ArchitectureTable) -> Floats:
    """Watts that a running kernel draws at that clock beyond what flows whatever runs, (A,)."""
    return np.where(table["simt"], running_w(boosted(table)) - static_w(table), 0.0)


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
        + events.kernels_j
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


def full_load_w(table: ArchitectureTable) -> Floats:
    """Watts of a device that nothing exceeds for long, (A,): of GPUs, which firmware holds to them; else infinite.

    Links draw beside kernels that stand at the limit already: firmware holds the board, all parts together.
    """
    limit = np.full(len(table), np.inf)
    if len(held := np.flatnonzero(table["simt"])):
        limit[held] = tdp_w(table.take(held))
    return limit


def within_full_load(joules: Floats, seconds: Floats, limit_w: Floats) -> Floats:
    """Joules that devices spend in so many seconds, at most those of full load, (A,); `limit_w`: of all devices."""
    held, most = np.isfinite(limit_w), np.full(np.shape(limit_w), np.inf)
    np.multiply(limit_w, seconds, where=held, out=most)
    return np.asarray(np.minimum(joules, most))


def static_w(table: ArchitectureTable) -> Floats:
    """Watts that flow whatever runs, (A,): background as far as it is not gated, leakage, HBM refresh."""
    e = energy_constants(table)
    total: Floats = e.background_w * e.idle_background + e.leakage_w + e.hbm_background_w
    return total


def _collective_bytes(pass_: Pass) -> float:
    """Bytes a device sends and receives in the collectives of a pass."""
    return 2 * sum(link_wire_bytes(w.link) for w in pass_.works if w.link is not None)
