"""Highest clock at which an architecture keeps a power cap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import nominal_clock_hz
from phaze.hardware.silicon.package_power import leakage_share, power_parts_w, relative_voltage

LOWEST_SHARE = 0.1
"""Lowest clock considered, as a share of the node's nominal one; the voltage is at its floor there."""

_SWITCHING = ("mac", "operands", "vector", "buffer", "background")
_STEPS = 40  # halves an interval of at most 10 x to below 1e-11 of the clock
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


@dataclass(frozen=True)
class _PowerByClock:
    """TDP of architectures at other clocks: a part that goes with clock x voltage^2, leakage, and one that stays."""

    table: ArchitectureTable
    switching: Floats
    leakage: Floats
    standing: Floats

    @classmethod
    def of(cls, table: ArchitectureTable) -> _PowerByClock:
        parts, clock = power_parts_w(table), table["clock_hz"]
        voltage = relative_voltage(table, clock)
        none = np.zeros(len(table))
        moving = sum((parts[name] for name in _SWITCHING), none)
        others = sum((part for name, part in parts.items() if name not in (*_SWITCHING, "leakage")), none)
        leakage = parts["leakage"] / leakage_share(table, voltage)
        return cls(table, moving / (clock * voltage**2), leakage, others)

    def power_w(self, clock_hz: Floats) -> Floats:
        """Watts, (A,), at a clock of each."""
        voltage = relative_voltage(self.table, clock_hz)
        leakage = self.leakage * leakage_share(self.table, voltage)
        return np.asarray(self.switching * clock_hz * voltage**2 + leakage + self.standing)


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
