"""The clocks of a space: one for every design, none above what the node allows, or lower ones as one more axis."""

from __future__ import annotations

from dataclasses import replace

from phaze.errors import InputError
from phaze.hardware.architecture import to_table
from phaze.hardware.derived_figures import nominal_clock_hz
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.space_axis import Axis, Option

CLOCK = "clock_hz"
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Clocks on offer, as shares of the space's own: at half of it the voltage is near its floor."""
NEARLY = 0.06
"""Relative difference of two clocks of which one is enough."""


def with_lower_clocks(space: DesignSpace) -> DesignSpace:
    """The space with lower clocks beside its own, to whole MHz: of what boards draw firmware finds the clock.

    One that varies the clock has those shares of its highest beside that are not nearly one of its own; one whose
    clock goes with other fields stays as it is.
    """
    axis = next((axis for axis in space.axes if CLOCK in axis.fields), None)
    own = [float(space.base.value(CLOCK) or 0.0)] if axis is None else [_hz(o) for o in axis.options]
    if CLOCK in space.ties or (axis is not None and (axis.fields != (CLOCK,) or axis.when)):
        return space
    shares = [round(share * max(own) / 1e6) * 1e6 for share in SHARES[1:]]
    between = [hz for hz in shares if all(abs(hz - one) > NEARLY * one for one in own)]
    steps = Axis((CLOCK,), tuple((hz,) for hz in sorted([*own, *between], reverse=True)))
    others = tuple(one for one in space.axes if one is not axis)
    return replace(space, axes=(*others, steps))


def with_one_clock(space: DesignSpace, clock_hz: float, where: str) -> DesignSpace:
    """The space with every design at that clock, in Hz, whether it offers it or not.

    Raises InputError, which begins with `where`, if it varies the clock together with other fields.
    """
    _check_alone(space, where)
    axes = tuple(axis for axis in space.axes if CLOCK not in axis.fields)
    return replace(space, axes=axes).fixed(clock_hz=clock_hz)


def with_highest_clock(space: DesignSpace, where: str) -> DesignSpace:
    """The space with every design at the highest clock it offers; one that does not vary it as it is.

    Raises InputError as `with_one_clock` does.
    """
    _check_alone(space, where)
    offered = [_hz(option) for axis in space.axes if CLOCK in axis.fields for option in axis.every_option]
    return with_one_clock(space, max(offered), where) if offered else space


def without_overdrive(space: DesignSpace) -> DesignSpace:
    """The space without clocks that take more than the nominal voltage of its node, unless all of them do."""
    limit = float(nominal_clock_hz(to_table([space.base]))[0])
    return replace(space, axes=tuple(_up_to(axis, limit) for axis in space.axes))


def _check_alone(space: DesignSpace, where: str) -> None:
    """Raises InputError where other fields of a space go with the clock, or it with them."""
    beside = {name for axis in space.axes if CLOCK in axis.fields for name in axis.fields}
    beside |= {
        name
        for axis in space.axes
        if any(condition.field == CLOCK for condition in axis.when)
        for name in axis.fields
    }
    beside |= {name for pair in space.ties.items() if CLOCK in pair for name in pair}
    if others := sorted(beside - {CLOCK}):
        raise InputError(
            f"{where}: space {space.name} varies {CLOCK} together with {', '.join(others)}; hold one of its clocks "
            f"with --fix {CLOCK}=..."
        )


def _up_to(axis: Axis, limit_hz: float) -> Axis:
    """The axis without clocks above a limit; as it is where none would be left, or where it is of other fields."""
    if axis.fields != (CLOCK,):
        return axis
    kept = tuple(option for option in axis.options if _hz(option) <= limit_hz)
    return replace(axis, options=kept or axis.options)


def _hz(option: Option) -> float:
    """The clock of an option; 0 where it has none."""
    return float(option[0] or 0.0)
