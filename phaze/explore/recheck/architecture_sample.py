"""Which architectures a re-check evaluates: those where a mistake of the search would most likely show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Integers
from phaze.errors import InputError
from phaze.explore.certified.workload_bounds import roofline_throughput
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Task


@dataclass(frozen=True)
class Population:
    """The candidates within budget: their numbers, and the throughputs of their rooflines added up in logs."""

    candidates: Candidates
    tasks: Sequence[Task]

    @cached_property
    def _columns(self) -> tuple[Integers, NDArray[np.float64]]:
        numbers, promise = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for block in self.candidates.blocks():
            if len(block):
                roofs = [roofline_throughput(Evaluator(task, block.table)) for task in self.tasks]
                numbers.append(block.numbers)
                promise.append(np.log(roofs).sum(axis=0))
        return np.concatenate(numbers), np.concatenate(promise)

    @property
    def numbers(self) -> Integers:
        """All of them, ascending."""
        return self._columns[0]

    def strata(
        self, winner: dict[str, Any], frontier: Sequence[dict[str, Any]], seed: int
    ) -> dict[str, Iterator[int]]:
        """Numbers to evaluate, by why, best first in each: hardware fields of the winner and the frontier given."""
        numbers, promise = self._columns
        random = np.random.default_rng(seed)
        near = [n for fields in frontier for n in self._neighbours(fields)]
        random.shuffle(near)
        return {
            "neighbour of the winner": iter(self._neighbours(winner)),
            "neighbour of the frontier": iter(near),
            "highest roofline": iter(numbers[np.argsort(-promise, kind="stable")].tolist()),
            "at random": iter(random.permutation(numbers).tolist()),
        }

    def _neighbours(self, fields: dict[str, Any]) -> list[int]:
        """Candidates within budget that differ from a design along one axis."""
        found = []
        for axis in self.candidates.space.axes:
            for option in axis.options:
                moved = {**fields, **dict(zip(axis.fields, option, strict=True))}
                try:
                    moved |= self.candidates.space.settled(moved)
                    found.append(self.candidates.number(moved))
                except InputError:
                    continue  # a combination that the space does not have
        return [n for n in dict.fromkeys(found) if self._within(n)]

    def _within(self, number: int) -> bool:
        at = int(np.searchsorted(self.numbers, number))
        return at < len(self.numbers) and int(self.numbers[at]) == number


def pick_sample(strata: dict[str, Iterator[int]], count: int, known: set[int]) -> dict[int, str]:
    """At most `count` numbers that are not `known`, in turn from every stratum, each with its stratum."""
    found: dict[int, str] = {}
    left = dict(strata)
    while left and len(found) < count:
        for name, numbers in list(left.items()):
            number = next((n for n in numbers if n not in known and n not in found), None)
            if number is None:
                del left[name]
            elif len(found) < count:
                found[number] = name
    return found
