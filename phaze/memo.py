"""Results that were worked out before, of functions whose result their arguments alone decide.

What is remembered is what the function gave: a search that recalls takes the same way as one that works everything
out, and ends in the same answer to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from phaze.arrays import Floats

_NUMBER = np.dtype("<f8")


class MemoStore(Protocol):
    """Keeps values under the digests of what they were worked out from."""

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """What is known of some keys."""

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember; a value that is there already stays."""


@dataclass(frozen=True)
class Memo:
    """Numbers in a store; one of another size than expected does not count as known."""

    store: MemoStore

    def array(self, key: str, shape: tuple[int, ...], work_out: Callable[[], Floats]) -> Floats:
        """The array of a key, of that shape; worked out and remembered where it is not known."""
        if 0 in shape:
            return work_out()
        data = self.store.get([key]).get(key, b"")
        if (known := _unpacked(data, shape)) is not None:
            return known
        found = work_out()
        self.store.put({key: _packed(found)})
        return found

    def numbers(self, keys: Sequence[str]) -> dict[str, float]:
        """Single numbers that are known."""
        found = ((key, _unpacked(data, ())) for key, data in self.store.get(keys).items())
        return {key: float(value) for key, value in found if value is not None}

    def remember(self, numbers: Mapping[str, float]) -> None:
        """Keep single numbers."""
        if numbers:
            self.store.put({key: _packed(np.array(value)) for key, value in numbers.items()})


def _packed(array: Floats) -> bytes:
    return np.ascontiguousarray(array, dtype=_NUMBER).tobytes()


def _unpacked(data: bytes, shape: tuple[int, ...]) -> Floats | None:
    """The array, or None where the bytes are not one of that shape."""
    if len(data) != _NUMBER.itemsize * math.prod(shape):
        return None
    return np.frombuffer(data, dtype=_NUMBER).reshape(shape).astype(np.float64)
