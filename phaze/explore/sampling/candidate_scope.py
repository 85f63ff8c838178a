"""From the fields a trial asks about to a candidate: its number, its hardware and the limits it misses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.explore.evaluation.design_candidates import Candidates, SpaceLimits
from phaze.explore.sampling.space_parameters import CAPACITY, Fields
from phaze.hardware.architecture_table import ArchitectureTable


@dataclass(frozen=True, slots=True)
class SampledPoint:
    """A candidate by its number in the whole grid of the space, and by what share it misses each limit."""

    number: int
    missed: Mapping[str, float]

    @property
    def allowed(self) -> bool:
        """Whether it keeps every limit, so that it is worth evaluating."""
        return all(amount <= 0 for amount in self.missed.values())


@dataclass(frozen=True)
class CandidateScope:
    """The candidates of a search and their limits."""

    candidates: Candidates

    @cached_property
    def grid(self) -> Candidates:
        """The candidates without the constraints of the space: whatever a sampler can ask about has a number."""
        return dataclasses.replace(self.candidates, space=self.candidates.space.unconstrained)

    @cached_property
    def _limits(self) -> SpaceLimits:
        return SpaceLimits(self.candidates.space, self.candidates.budgets)

    def points(self, asked: Sequence[Fields]) -> list[SampledPoint]:
        """The candidates with these fields."""
        numbers = [number_of(self.grid, fields) for fields in asked]
        missed = self._limits.missed(self.table(numbers))
        return [
            SampledPoint(number, {name: float(amount[i]) for name, amount in missed.items()})
            for i, number in enumerate(numbers)
        ]

    def table(self, numbers: Sequence[int]) -> ArchitectureTable:
        """The hardware of some points."""
        return self.grid.table(np.array(numbers, dtype=np.int64))


def number_of(candidates: Candidates, fields: Fields) -> int:
    """The number of the candidate with these fields. Raises InputError where the space does not have it."""
    space, sizes = candidates.space, candidates.space.hbm_capacities_bytes
    settled = space.settled(fields)
    number = space.number({name: value for name, value in settled.items() if value is not None})
    return (
        number * len(sizes) + [value == fields[CAPACITY] for value in sizes].index(True) if sizes else number
    )
