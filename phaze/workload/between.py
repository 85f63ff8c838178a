"""The layers of one microbatch from those of three others, which spares building them.

What a size depends on the microbatch by is a sum of what does not and what is proportional to it, the largest or
smallest of several such, or a quotient rounded up. Each of these is a straight line between two microbatches where it
is one through a third between them (convex; concave; rounded up, sums of parts bound it from either side). So where
every number of three chains lies on its line, and all else is the same in them, the chain of any microbatch between the
outer two is known to the last bit. Otherwise nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from phaze.workload.work import LayerChain

_PARTS = 8  # of one, in which numbers are whole, so that lines are exact
_LARGEST = 2.0**53  # up to which floats hold whole numbers
_T = TypeVar("_T")


class _BentError(Exception):
    """Something is not on a line."""


def between(chains: Sequence[LayerChain], microbatch: int) -> LayerChain | None:
    """The chain of a microbatch between the smallest and largest of three of one model and sharding, if it is sure."""
    one, other, last = sorted(chains, key=lambda chain: chain.microbatch)
    line = _Line((one.microbatch, other.microbatch, last.microbatch), microbatch)
    try:
        if (one.index, one.names) != (other.index, other.names) or (one.index, one.names) != (
            last.index,
            last.names,
        ):
            return None
        return replace(one, microbatch=microbatch, layers=line.of(one.layers, other.layers, last.layers))
    except _BentError:
        return None


@dataclass(frozen=True)
class _Line:
    """Through the values at three places, one `at` a fourth."""

    places: tuple[int, int, int]
    at: int

    def of(self, one: _T, other: _T, last: _T) -> _T:
        """The same thing with its numbers at the fourth place."""
        if type(one) is not type(other) or type(one) is not type(last):
            raise _BentError
        if isinstance(one, int | float) and not isinstance(one, bool):
            return type(one)(self._number(one, other, last))  # type: ignore[arg-type]
        if isinstance(one, tuple):
            return self._several(one, other, last)  # type: ignore[arg-type,return-value]
        if is_dataclass(one):
            kind: Any = type(one)
            values = (tuple(getattr(each, name) for name in _names(kind)) for each in (one, other, last))
            found: _T = kind(*self._several(*values))
            return found
        if one == other == last:
            return one
        raise _BentError

    def _several(self, *rows: tuple[object, ...]) -> tuple[object, ...]:
        if len({len(row) for row in rows}) > 1:
            raise _BentError
        return tuple(map(self.of, *rows))

    def _number(self, one: float, other: float, last: float) -> float:
        if one == other == last:
            return one
        first, middle, end = self.places
        low, half, high = (_parts(number) for number in (one, other, last))
        if (high - low) * (middle - first) != (half - low) * (end - first):
            raise _BentError
        step, rest = divmod((half - low) * (self.at - first), middle - first)
        if rest:
            raise _BentError
        return (low + step) / _PARTS


def _parts(number: float) -> int:
    """A number in parts of one, without rounding."""
    if abs(number) > _LARGEST or (_PARTS * number) % 1:
        raise _BentError
    return int(_PARTS * number)


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
