"""Rectangles of given areas that fill a rectangle, as square as may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, mm or any other length."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """Width times height."""
        return self.width * self.height


def treemap(areas: Sequence[float], room: Rect) -> list[Rect]:
    """One rectangle per area, in their order, filling `room`; the areas are taken as shares of it.

    Squarified: rows along the shorter side, each as long as that makes its rectangles squarer (Bruls, Huizing,
    van Wijk, 2000). Areas are best given from large to small, and must be greater than zero.
    """
    factor = room.area / sum(areas) if areas else 1.0
    left = [area * factor for area in areas]
    placed: list[Rect] = []
    while left:
        count = 1
        side = min(room.width, room.height)
        while count < len(left) and _worst(left[: count + 1], side) <= _worst(left[:count], side):
            count += 1
        row, room = _row(left[:count], room)
        placed += row
        left = left[count:]
    return placed


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of sides among rectangles of these areas, put along `side`."""
    depth = sum(row) / side
    return max(max(depth**2 / area, area / depth**2) for area in row)


def _row(row: Sequence[float], room: Rect) -> tuple[list[Rect], Rect]:
    """The rectangles of a row along the shorter side of the room, and what is left of it."""
    upright = room.width >= room.height
    depth = sum(row) / (room.height if upright else room.width)
    placed, at = [], 0.0
    for area in row:
        length = area / depth
        if upright:
            placed.append(Rect(room.x, room.y + at, depth, length))
        else:
            placed.append(Rect(room.x + at, room.y, length, depth))
        at += length
    if upright:
        return placed, Rect(room.x + depth, room.y, room.width - depth, room.height)
    return placed, Rect(room.x, room.y + depth, room.width, room.height - depth)
