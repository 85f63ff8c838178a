"""From architectures that may matter to those that do: bounds tighten, schedules become exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Rows
from phaze.explore.certified.common_screening import CommonDesign, Incumbents, Survivors
from phaze.explore.certified.workload_bounds import WorkloadBounds
from phaze.explore.request.search_progress import Clock, Progress
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES

BATCH, EXACT_BATCH = 1024, 64  # architectures tightened, and scheduled exactly, together
CLASSES, SEEDS = 32, 2  # power classes, and survivors of each that are settled before anything else
BOUNDED, PLACED, SEARCHED, SETTLED = range(4)


class CommonRefinement:
    """Tightens and settles survivors, those with most to gain first; `members`, one per workload, know them all."""

    def __init__(
        self,
        left: Survivors,
        members: Sequence[WorkloadBounds],
        incumbents: Incumbents,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._left = left
        self._members = members
        self._incumbents = incumbents
        self._clock = clock
        self._progress = progress
        self._stage = np.full(len(left.numbers), BOUNDED)
        self.found: dict[int, CommonDesign] = {}
        for w, member in enumerate(members):
            self._hope(w, member, np.arange(len(left.numbers)))

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Survivors that are neither settled nor dominated, (A,)."""
        left = self._left
        return np.asarray((self._stage != SETTLED) & self._incumbents.matters(left.hoped, left.tdp_w))

    def run(self) -> None:
        """Go on until nothing is undecided or time is over."""
        if not self._clock.over:
            self._look(self._samples(), SEARCHED, SolveLimits(self._clock.left, FEW_STATES))
        while not self._clock.over and len(at := self._promising(BOUNDED, BATCH)):
            self._look(at, PLACED, None)
        for stage, states in ((PLACED, FEW_STATES), (SEARCHED, math.inf)):
            while not self._clock.over and len(at := self._promising(stage, EXACT_BATCH)):
                self._look(at, stage + 1, SolveLimits(self._clock.left, states))

    def _samples(self) -> Rows:
        """The survivors that hope for most in every power class, so that the others have something to meet."""
        left = self._left
        hope = self._incumbents.hope(left.hoped)
        classes = np.array_split(np.argsort(left.tdp_w, kind="stable"), min(CLASSES, len(left.tdp_w)))
        return np.concatenate([c[np.argsort(-hope[c], kind="stable")[:SEEDS]] for c in classes])

    def _promising(self, stage: int, count: int) -> Rows:
        """Undecided survivors of a stage, most to gain first."""
        left = self._left
        at = np.flatnonzero(self.undecided & (self._stage == stage))
        gain = self._incumbents.gain(left.hoped[:, at], left.tdp_w[at])
        done = len(self.found)
        self._progress.update(
            "evaluating" if stage else "refining",
            done,
            done + len(at),
            f"{len(self._incumbents.known.tdp_w)} frontier steps",
        )
        return at[np.argsort(-gain, kind="stable")[:count]]

    def _look(self, at: Rows, stage: int, effort: SolveLimits | None) -> None:
        """One workload after the other, without the architectures that the ones before have ruled out."""
        left = self._left
        self._stage[at] = stage
        for w, member in enumerate(self._members):
            at = at[self._incumbents.matters(left.hoped[:, at], left.tdp_w[at])]
            needed = self._incumbents.needed(w, left.hoped[:, at], left.tdp_w[at])
            if effort is None:
                member.tighten(at, needed)
            else:
                member.settle(at, needed, effort)
            self._hope(w, member, at)
        self._write_down(at)

    def _hope(self, w: int, member: WorkloadBounds, at: Rows) -> None:
        self._left.hoped[w, at] = np.minimum(self._left.hoped[w, at], member.hoped(at))

    def _write_down(self, at: Rows) -> None:
        """Take over what is reached on every workload; settled where no point of any is better."""
        throughput = np.stack([member.reached(at) for member in self._members])
        exact = np.logical_and.reduce([member.exact(at) for member in self._members])
        self._stage[at[exact]] = SETTLED
        scores = self._incumbents.rule.score(throughput)
        for i in np.flatnonzero(scores > 0):
            row = int(at[i])
            configs = [member.config(row) for member in self._members]
            common = CommonDesign(
                number=int(self._left.numbers[row]),
                score=float(scores[i]),
                throughputs=tuple(throughput[:, i].tolist()),
                configs=tuple(s for s in configs if s is not None),
                tdp_w=float(self._left.tdp_w[row]),
                area_mm2=float(self._left.area_mm2[row]),
            )
            self.found[common.number] = common
            self._incumbents.add(common)

    def settled(self) -> dict[int, CommonDesign]:
        """Those whose best point is known for every workload."""
        sure = {int(n) for n in self._left.numbers[self._stage == SETTLED]}
        return {number: common for number, common in self.found.items() if number in sure}
