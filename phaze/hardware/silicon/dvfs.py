"""Clocks under a power cap: the highest at full load, and what the same cap leaves to products of other formats."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    fp32_on_vector,
    macs,
    narrow_speed,
    nominal_clock_hz,
    peak_clock_hz,
    vector_alus,
)
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.heat import heat_share, is_cooled, leakage_growth, uncooled
from phaze.hardware.silicon.package_power import (
    energy_constants,
    leakage_share,
    power_parts_w,
    relative_voltage,
)

LOWEST_SHARE = 0.1
"""Lowest clock considered, as a share of the node's nominal one; the voltage is at its floor there."""

_SWITCHING = ("mac", "operands", "vector", "buffer", "background")
_STEPS = 40  # halves an interval of at most 10 x to below 1e-11 of the clock
_NARROW = ("fp8", "int8", "fp4")
_SAFETY = 1e-10  # relative; keeps rounding from lifting the power over the cap


def clock_limit_hz(table: ArchitectureTable) -> Floats:
    """Highest clock allowed: the node's nominal clock and, where published, the chip's own peak clock.

    A real chip whose sustained clock is known to lie above the nominal one keeps that clock.
    """
    nominal = nominal_clock_hz(table)
    peak = table["peak_clock_hz"]
    own = np.maximum(table["clock_hz"], np.minimum(nominal, peak))
    return np.where(np.isnan(peak), nominal, own)


def fit_clock(table: ArchitectureTable, power_w: float | Floats, margin: float = 1.0) -> Floats:
    """Highest clock in Hz whose TDP times `margin` is at most `power_w`, to 1e-9 relative and never above it.

    The power is one for all, or one for each architecture.

    NaN where even `LOWEST_SHARE` of the nominal clock draws too much.
    """
    law = _PowerByClock.of(table)
    high = clock_limit_hz(table)
    low = np.minimum(LOWEST_SHARE * nominal_clock_hz(table), high)
    limit: Floats = np.broadcast_to(power_w / margin, low.shape)
    found = _largest_below(law, limit, low, high)
    return np.where(limit >= law.power_w(low), found, np.nan)


def product_clock_hz(table: ArchitectureTable, operands: str | None) -> Floats:
    """Clock in Hz, (A,), at which products of a format draw what those of the own format draw at the sustained clock.

    P(clock) = (products of the format + background + scheduling + buffer) clock V^2 + leakage(V) + what stays, solved
    for P at `clock_hz` in the tensor cores' own format; at most the peak clock. Firmware holds the power, not the
    clock: fp32 on the vector ALUs of a GPU, and 8 bits at twice the rate, run at clocks of their own. Chips that are
    not GPUs keep theirs. Source: docs/decisions/0047-power-and-clock.md.
    """
    clock = np.asarray(table["clock_hz"], dtype=np.float64)
    if operands not in (*_NARROW, "fp32") or not np.any(table["simt"]):
        return clock
    change = np.where(table["simt"], _load_of_format(table, operands), 1.0)
    own = _PowerByClock.of(table)
    other = replace(own, switching=own.switching * change)
    found = _largest_below(other, own.power_w(clock), np.zeros(len(table)), peak_clock_hz(table))
    return np.where(change == 1.0, clock, found)


def _load_of_format(table: ArchitectureTable, operands: str | None) -> Floats:
    """Switching energy per cycle in products of few bits or of fp32 over that in the tensor cores' own, (A,)."""
    parts, e, clock = power_parts_w(table), energy_constants(table), table["clock_hz"]
    own = sum((parts[name] for name in _SWITCHING), np.zeros(len(table)))
    products = parts["mac"] + parts["operands"]
    if operands in _NARROW:
        rate = narrow_speed(table, str(operands)) * np.where(operands == "fp4", e.fp4_share, 1.0)
        narrow = macs(table) * clock * rate * (e.narrow_mac_j + e.narrow_operand_j_per_mac)
        faster = ~table["vector_products"] & (narrow_speed(table, str(operands)) > 1.0)
        return np.where(faster, (own - products + narrow) / own, 1.0)
    alus = vector_alus(table) * clock * e.alu_cycle_j
    busy = (own - products - parts["vector"] + alus) / own
    return np.where(fp32_on_vector(table), busy, 1.0)


@dataclass(frozen=True)
class _PowerByClock:
    """TDP of architectures at other clocks: a part that goes with clock x voltage^2, leakage, and one that stays."""

    table: ArchitectureTable
    switching: Floats
    leakage: Floats
    standing: Floats

    @classmethod
    def of(cls, table: ArchitectureTable) -> _PowerByClock:
        parts, clock = power_parts_w(uncooled(table)), table["clock_hz"]
        voltage = relative_voltage(table, clock)
        none = np.zeros(len(table))
        moving = sum((parts[name] for name in _SWITCHING), none)
        others = sum((part for name, part in parts.items() if name not in (*_SWITCHING, "leakage")), none)
        leakage = parts["leakage"] / leakage_share(table, voltage)
        return cls(table, moving / (clock * voltage**2), leakage, others)

    def power_w(self, clock_hz: Floats) -> Floats:
        """Watts, (A,), at a clock of each; inf where its cooling carries no more than a lower one gives."""
        voltage = relative_voltage(self.table, clock_hz)
        leakage = self.leakage * leakage_share(self.table, voltage)
        steady = self.switching * clock_hz * voltage**2 + self.standing
        if not np.any(is_cooled(self.table)):
            return np.asarray(steady + leakage)
        area = area_mm2(self.table)
        carried = heat_share(self.table, area, steady, leakage) <= 1.0
        heated = steady + leakage * leakage_growth(self.table, area, steady, leakage)
        return np.where(carried, heated, np.inf)


def _largest_below(law: _PowerByClock, limit_w: Floats, low: Floats, high: Floats) -> Floats:
    """Bisection from the safe side for the largest clock in [low, high] whose power is at most the limit."""
    fits = law.power_w(high) * (1.0 + _SAFETY) <= limit_w
    safe, unsafe = low.copy(), high.copy()
    for _ in range(_STEPS):
        middle = 0.5 * (safe + unsafe)
        below = law.power_w(middle) <= limit_w
        safe = np.where(below, middle, safe)
        unsafe = np.where(below, unsafe, middle)
    return np.where(fits, high, safe * (1.0 - _SAFETY))
