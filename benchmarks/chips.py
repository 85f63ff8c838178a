"""How long one operator takes on a simple accelerator: systolic arrays, vector lanes, one shared memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Work:
    """What an operator computes.

    `gemms` products of `rows` x `inner` by `inner` x `columns`, followed by `elements` of vector work
    (elements times passes over each); `moved_bytes` is what the vector part reads and writes.
    """

    gemms: int = 0
    rows: int = 0
    inner: int = 0
    columns: int = 0
    elements: int = 0
    moved_bytes: int = 0

    @property
    def unit(self) -> str:
        """Unit name of the instance format."""
        return "+".join(name for name, used in (("TC", self.gemms), ("VC", self.elements)) if used)


@dataclass(frozen=True)
class Chip:
    """An accelerator: `array` x `array` weight-stationary tensor cores, vector cores with `lanes`."""

    tensor_cores: int
    vector_cores: int
    array: int
    lanes: int
    clock_hz: float
    bytes_per_s: float

    def single_s(self, work: Work) -> float:
        """Latency on one core of each unit in use."""
        return max(self._tensor_s(work, 1), self._vector_s(work, 1))

    def parallel_s(self, work: Work) -> float:
        """Latency on all cores; a fused operator uses as many of either kind as there are of both."""
        pairs = min(self.tensor_cores, self.vector_cores)
        tensor, vector = (
            (pairs, pairs) if work.gemms and work.elements else (self.tensor_cores, self.vector_cores)
        )
        return max(self._tensor_s(work, tensor), self._vector_s(work, vector))

    def _tensor_s(self, work: Work, cores: int) -> float:
        """Every fold of the weights streams all rows; cores share the folds or the rows, whichever is faster."""
        if not work.gemms:
            return 0.0
        folds = work.gemms * ceil(work.inner / self.array) * ceil(work.columns / self.array)
        fill = 2 * self.array
        by_folds = ceil(folds / cores) * (work.rows + fill)
        by_rows = folds * (ceil(work.rows / cores) + fill)
        return min(by_folds, by_rows) / self.clock_hz

    def _vector_s(self, work: Work, cores: int) -> float:
        """Lanes share the elements; memory is as fast for one core as for all."""
        if not work.elements:
            return 0.0
        compute = ceil(work.elements / (self.lanes * cores)) / self.clock_hz
        return max(compute, work.moved_bytes / self.bytes_per_s)


def random_chip(rng: random.Random, tensor_cores: int, vector_cores: int) -> Chip:
    """A chip of the given cores; the more cores, the smaller each may be."""
    array = rng.choice([32, 64] if tensor_cores > 16 else [64, 128] if tensor_cores > 2 else [128, 256])
    lanes = array * rng.choice([1, 2, 4])
    return Chip(tensor_cores, vector_cores, array, lanes, rng.choice([0.7e9, 0.94e9, 1.4e9]), 1.5e12)
