"""Highest clock at which an architecture keeps a power cap."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import nominal_clock_hz
from phaze.hardware.silicon.package_power import power_parts_w, relative_voltage

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
    parts = power_parts_w(table)
    clock = table["clock_hz"]
    moving = sum((parts[name] for name in _SWITCHING), np.zeros(len(table)))
    # Everything that moves is proportional to clock x voltage^2; the rest does not depend on the clock.
    slope = moving / _switching_power(table, clock)
    standing = sum((part for name, part in parts.items() if name not in _SWITCHING), np.zeros(len(table)))
    room = (power_w / margin - standing) / slope
    high = clock_limit_hz(table)
    low = np.minimum(LOWEST_SHARE * nominal_clock_hz(table), high)
    found = _largest_below(table, room, low, high)
    return np.where(room >= _switching_power(table, low), found, np.nan)


def _largest_below(table: ArchitectureTable, room: Floats, low: Floats, high: Floats) -> Floats:
    """Bisection from the safe side for the largest clock in [low, high] whose switching power is at most `room`."""
    fits = _switching_power(table, high) * (1.0 + _SAFETY) <= room
    safe, unsafe = low.copy(), high.copy()
    for _ in range(_STEPS):
        middle = 0.5 * (safe + unsafe)
        below = _switching_power(table, middle) <= room
        safe = np.where(below, middle, safe)
        unsafe = np.where(below, unsafe, middle)
    return np.where(fits, high, safe * (1.0 - _SAFETY))


def _switching_power(table: ArchitectureTable, clock_hz: Floats) -> Floats:
    """Relative switching power, f V^2: clock in Hz times the square of the relative voltage."""
    return clock_hz * relative_voltage(table, clock_hz) ** 2
