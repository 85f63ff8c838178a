"""Divisions of tensors among ranks, and how reshapes carry them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Shape = tuple[int, ...]

Parts = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Division:
    """Axis of a tensor that is divided, and its (units, elements of a unit) side by side."""

    axis: int
    parts: Parts


class WholeError(Exception):
    """Something needs all of a divided axis."""


def divided_units(division: Division) -> int:
    """Units of the divided axis, of all that lie side by side in it."""
    return sum(n for n, _ in division.parts)


def carried_division(known: Division, before: Shape, after: Shape) -> Division:
    """The division of a tensor of the same elements (or fewer, or copies along other axes) in another shape.

    Raises WholeError where no axis holds the same units.
    """
    (heads, size), at = known.parts[0], known.axis
    alike, last = set(known.parts) == {(heads, size)}, at == len(before) - 1
    near = [axis for axis in _nearest(at, len(before), len(after)) if axis or not at]
    if alike and last and size > 1 and len(after) > len(before) and after[-1] == size:  # heads stand apart
        found = [
            Division(axis, ((heads, 1),)) for axis in near if after[axis] == heads and axis < len(after) - 1
        ]
    elif not last and len(after) < len(before) and after[-1] == before[at] * before[-1]:  # and together again
        found = [Division(len(after) - 1, tuple((n, each * before[-1]) for n, each in known.parts))]
    else:
        found = [Division(axis, known.parts) for axis in near if after[axis] == before[at]]
        if alike:
            found += [Division(axis, ((heads, 1),)) for axis in near if after[axis] == heads]
            whole = [axis for axis in near if after[axis] % heads == 0 and len(known.parts) == 1]
            found += [Division(axis, ((heads, after[axis] // heads),)) for axis in whole]
    if not found:
        raise WholeError
    return found[0]


def _nearest(axis: int, before: int, after: int) -> Iterable[int]:
    """Axes of a shape, the last first where it was the last, else from the place it was at."""
    if axis == before - 1:
        return range(after - 1, -1, -1)
    return sorted(range(after), key=lambda i: abs(i - axis))
