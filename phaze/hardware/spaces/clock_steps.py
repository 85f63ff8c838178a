"""Clocks below that of a space as one more axis: what firmware may choose from to keep a power."""

from __future__ import annotations

from dataclasses import replace

from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.space_axis import Axis

CLOCK = "clock_hz"
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Clocks on offer, as shares of the space's own: at half of it the voltage is near its floor."""


def with_lower_clocks(space: DesignSpace) -> DesignSpace:
    """The space with lower clocks beside its own, to whole MHz; a space that varies the clock as it is."""
    if CLOCK in space.fields_varied:
        return space
    own = float(space.base.value(CLOCK) or 0.0)
    steps = (own, *(round(share * own / 1e6) * 1e6 for share in SHARES[1:]))
    return replace(space, axes=(*space.axes, Axis((CLOCK,), tuple((hz,) for hz in steps))))
