"""The winner's neighbours: every axis of the space moved by one option, and what forbids the move."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.explore.documents.explanation_document import Binding, Neighbour
from phaze.explore.evaluation.design_candidates import Candidates, SpaceLimits
from phaze.explore.explaining.explained_winner import ExplainedWinner
from phaze.explore.request.objective_floor import floor_throughput
from phaze.hardware.architecture import to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.budgets import Limit
from phaze.hardware.hardware_fields import FieldKind, FieldValue, field_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.dvfs import clock_limit_hz
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.clock_steps import CLOCK
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.hardware.spaces.space_axis import Axis, Option
from phaze.tolerances import SAME

END = "end of the axis"
MEMORY = "memory"
FLOOR = "least throughput"
_CAPACITY = "hbm_capacity_bytes"
_BETTER = 1e-3  # relative; a smaller gain is not worth a limit


@dataclass(frozen=True)
class AxisStep:
    """One step along an axis: the new values of its fields."""

    axis: Axis
    direction: str
    option: Option
    in_space: bool

    @property
    def name(self) -> str:
        """Fields of the axis."""
        return "+".join(self.axis.fields)


def neighbours(winner: ExplainedWinner) -> list[Neighbour]:
    """All neighbours of the winner, evaluated whether they are allowed or not."""
    steps = list(axis_steps(winner))
    if not steps:
        return []
    table = _table(winner, steps)
    request = winner.request
    margin = request.budgets.tdp_margin
    found = winner.worth(table)
    throughput = found.throughput
    power, area = tdp_w(table, margin), area_mm2(table)
    drawn_limit_w = request.budgets.drawn_limit_w
    limited = power if drawn_limit_w is None else winner.drawn_w(table)
    forbidden = _forbidden(winner, steps, table, throughput)
    if drawn_limit_w is not None:
        over = np.flatnonzero(limited > drawn_limit_w * (1 + SAME)).tolist()
        forbidden = [[*names, Limit.POWER.value] if i in over else names for i, names in enumerate(forbidden)]
    limit_w, limit_mm2 = (
        math.inf if limit is None else limit for limit in (request.budgets.power_w, request.budgets.area_mm2)
    )
    return [
        Neighbour(
            axis=step.name,
            direction=step.direction,
            values=dict(zip(step.axis.fields, step.option, strict=True)),
            in_space=step.in_space,
            throughput_samples_per_s=float(throughput[i]) or None,
            gain=float(found.objective[i]) / winner.value - 1.0 if throughput[i] else None,
            tdp_w=float(power[i]),
            area_mm2=float(area[i]),
            over_power_w=max(0.0, float(limited[i]) - limit_w),
            over_area_mm2=max(0.0, float(area[i]) - limit_mm2),
            forbidden_by=forbidden[i],
        )
        for i, step in enumerate(steps)
    ]


def binding_limits(found: Sequence[Neighbour]) -> list[Binding]:
    """The limits that stop a better neighbour; first those that do it alone and cost most."""
    better = [n for n in found if n.forbidden_by and (n.gain or 0.0) > _BETTER]
    rows = []
    for limit in dict.fromkeys(limit for n in better for limit in n.forbidden_by):
        alone = [n for n in better if n.forbidden_by == [limit]]
        stopped = alone or [n for n in better if limit in n.forbidden_by]
        rows.append(
            Binding(
                limit=limit,
                axes=list(dict.fromkeys(n.axis for n in stopped)),
                alone=bool(alone),
                best_gain=max(n.gain or 0.0 for n in stopped),
            )
        )
    return sorted(rows, key=lambda row: (not row.alone, -row.best_gain, row.limit))


def axis_steps(winner: ExplainedWinner) -> Iterator[AxisStep]:
    """One step up and down every axis that varies at the winner; past its end by the last step's ratio.

    Only an axis of one number goes on past its end, and the clock up to what the node allows.
    """
    fields = winner.architecture.fields
    highest_hz = float(clock_limit_hz(to_table([winner.architecture]))[0])
    for axis in axes(winner.request.space):
        if not axis.varies_for(fields):
            continue
        options = _ordered(axis)
        here = tuple(fields[name] for name in axis.fields)
        at = options.index(here) if here in options else None
        if at is None:
            raise InputError(
                f"{winner.architecture.name} is not in space {winner.request.space.name}: "
                f"{' and '.join(axis.fields)} cannot be {', '.join(map(str, here))}"
            )
        for direction, step in (("down", -1), ("up", 1)):
            if 0 <= at + step < len(options):
                yield AxisStep(axis, direction, options[at + step], in_space=True)
            elif (option := _beyond(axis, options, at, step)) is not None:
                if axis.fields == (CLOCK,) and _number(option) > highest_hz:
                    continue
                yield AxisStep(axis, direction, option, in_space=False)


def axes(space: DesignSpace) -> tuple[Axis, ...]:
    """The axes of a space, memory sizes among them."""
    if not space.hbm_capacities_bytes:
        return space.axes
    return (*space.axes, Axis((_CAPACITY,), tuple((size,) for size in space.hbm_capacities_bytes)))


def _ordered(axis: Axis) -> tuple[Option, ...]:
    """Options of one field by value, those of several fields as listed."""
    if len(axis.fields) > 1 or isinstance(axis.options[0][0], str):
        return axis.options
    return tuple(sorted(axis.options, key=_number))


def _number(option: Option) -> float:
    """The only value of an option that is a number; 0 where the field is absent."""
    (value,) = option
    return float(value or 0.0)


def _beyond(axis: Axis, options: Sequence[Option], at: int, step: int) -> Option | None:
    """The option after the last, in the ratio of the last two; None where there is no such value."""
    field = field_table()[axis.fields[0]]
    if len(axis.fields) > 1 or len(options) < 2 or field.kind not in (FieldKind.INTEGER, FieldKind.NUMBER):
        return None
    last, before = _number(options[at]), _number(options[at - step])
    wanted = last * last / before if before else last
    try:
        value = field.parse(round(wanted) if field.kind is FieldKind.INTEGER else wanted, axis.fields[0])
    except InputError:
        return None
    return None if value == options[at][0] else (value,)


def _table(winner: ExplainedWinner, steps: Sequence[AxisStep]) -> ArchitectureTable:
    """The hardware of all neighbours, at the clocks that the budgets ask for."""
    space = winner.request.space
    rows = [_moved(winner, step) for step in steps]
    fields = tuple(rows[0])
    around = DesignSpace(
        name=space.name,
        base=space.base,
        axes=(Axis(fields, tuple(tuple(row[name] for name in fields) for row in rows)),),
        ties={},
    )
    return Candidates(around, winner.request.budgets).table(range(len(steps)))


def _moved(winner: ExplainedWinner, step: AxisStep) -> dict[str, FieldValue | None]:
    """All varied fields after a step, those that follow it included.

    An axis that begins to vary through the step keeps the winner's values if it offers them, else takes its first.
    """
    space = winner.request.space
    moved = zip(step.axis.fields, step.option, strict=True)
    fields: dict[str, FieldValue | None] = {**winner.architecture.fields, **dict(moved)}
    for axis in space.axes:
        here = tuple(fields[name] for name in axis.fields)
        if axis.when and here not in axis.options and axis is not step.axis:
            fields |= zip(axis.fields, axis.options[0], strict=True)
    memory = {_CAPACITY: fields[_CAPACITY]} if space.hbm_capacities_bytes else {}
    return space.settled(fields) | memory


def _forbidden(
    winner: ExplainedWinner, steps: Sequence[AxisStep], table: ArchitectureTable, throughput: Floats
) -> list[list[str]]:
    """Names of all limits that each neighbour breaks."""
    missed = SpaceLimits(winner.request.space, winner.request.budgets).missed(table)
    masks = {name: amount > 0 for name, amount in missed.items()}
    masks[MEMORY] = throughput == 0
    floor = floor_throughput(winner.request, winner.request.task)
    masks[FLOOR] = (throughput > 0) & (throughput < floor)
    masks[END] = np.array([not step.in_space for step in steps])
    return [[name for name, mask in masks.items() if mask[i]] for i in range(len(steps))]
