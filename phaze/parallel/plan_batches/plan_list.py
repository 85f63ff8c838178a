"""Plans of one shape: pipelines under schedules, each cut into stages in several ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Rows
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan

Cuts = tuple[tuple[int, ...], ...]
"""Stages of a pipeline in each of several ways."""


@dataclass(frozen=True)
class PlanList:
    """Plans (S,): pipelines under a schedule, `runs` (R,), whose stages are cut in one of the ways `cuts` (R,).

    `run`, `cut` (S,): which run each plan is, and in which of its ways it is cut. Plans are made when they are asked
    for: most are only counted and bounded.
    """

    runs: tuple[ParallelPlan, ...]
    cuts: tuple[Cuts, ...]
    run: Rows
    cut: Rows

    @classmethod
    def of(cls, runs: Iterable[tuple[ParallelPlan, Cuts]]) -> PlanList:
        """Every run in each of its ways."""
        some, cuts = tuple(zip(*runs, strict=True)) or ((), ())
        counts = np.array([len(each) for each in cuts], dtype=np.intp)
        run = np.repeat(np.arange(len(some)), counts)
        return cls(some, cuts, run, np.arange(len(run)) - (np.cumsum(counts) - counts)[run])

    def __len__(self) -> int:
        """Plans."""
        return len(self.run)

    def __getitem__(self, row: int) -> ParallelPlan:
        """One of them."""
        run = int(self.run[row])
        return changed_plan(self.runs[run], stages=self.cuts[run][int(self.cut[row])])

    def __iter__(self) -> Iterator[ParallelPlan]:
        """Every one."""
        return map(self.__getitem__, range(len(self)))

    def take(self, rows: Rows) -> PlanList:
        """Some of them."""
        used, run = np.unique(self.run[rows], return_inverse=True)
        some = used.tolist()
        runs, cuts = tuple(self.runs[at] for at in some), tuple(self.cuts[at] for at in some)
        return PlanList(runs, cuts, run.ravel(), self.cut[rows])
