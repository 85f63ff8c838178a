"""From layer times to the time of one iteration: data and pipeline degrees and stage cuts, optimised exactly.

One planner serves one chain (microbatch size and tensor width fixed), one recompute choice and one memory
capacity, for any number of architectures at once. Under 1F1B

    iteration = slots x max over stages(load) + max over stages(parameters) x rate + latency

with slots = ceil(m / d) + S - 1, a stage's load the sum of its layers' times plus the transfers at its two
ends, and rate = gradient reduction plus optimizer step per parameter.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.placement.basis import Basis, FloatArray, IntArray, Rates
from phaze.placement.checker import Premises, check_plan
from phaze.placement.iterations import Iterations
from phaze.placement.options import NEVER_S
from phaze.placement.plan import Plan
from phaze.placement.quick import QuickBound
from phaze.scheduling.layers import LayerTimes

__all__ = ["Planner", "Rates"]


class Planner(Basis):
    """Placement of one chain on one cluster for architectures of one memory capacity."""

    @cached_property
    def _quick(self) -> QuickBound:
        return QuickBound(self)

    def quick_bound(self, times: LayerTimes, rates: Rates) -> FloatArray:
        """A cheap lower bound on the iteration time, (A,) seconds; infinite where nothing can fit in memory."""
        return self._quick.seconds(_finite(times), rates)

    def work_bound(self, forward_s: FloatArray, backward_s: FloatArray) -> FloatArray:
        """A still cheaper one, (A,) seconds, from the times of all layers together, (A,) each."""
        return self._quick.work_seconds(np.minimum(forward_s, NEVER_S), np.minimum(backward_s, NEVER_S))

    @property
    def fits(self) -> bool:
        """Whether some placement fits in memory."""
        layers = np.zeros((1, len(self.chain.layers)))
        one = np.ones(1)
        return bool(np.isfinite(self.iteration_s(LayerTimes(layers, layers), Rates(one, one))[0][0]))

    def least_memory_bytes(self, precision: float = 1e-3) -> float:
        """Smallest memory with which some placement fits, to that relative precision; infinite without any degrees.

        What is returned fits.
        """
        if not len(self.options.stages):
            return float(np.inf)
        deepest = self.most_held
        low, last = 0.0, len(self.index) - 1
        high = max(self.memory.peak_bytes(0, last, deepest, recompute=redo) for redo in (False, True))
        while high - low > precision * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if replace(self, memory_bytes=middle).fits else (middle, high)
        return high

    def iteration_s(
        self, times: LayerTimes, rates: Rates, give_up_s: FloatArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        """The least iteration time, (A,) seconds, exact for these layer times, and the option that reaches it.

        Infinite, with option -1, where nothing fits or `give_up_s` (A,) cannot be beaten.
        """
        if not len(self.roomy.stages):
            return np.full(len(times.forward_s), np.inf), np.full(len(times.forward_s), -1)
        return Iterations(self, _finite(times), rates).solve(give_up_s)

    def hopeful(self, times: LayerTimes, rates: Rates, give_up_s: FloatArray) -> NDArray[np.bool_]:
        """Whether it is open, by bounds that make no partition, that `give_up_s` (A,) can be beaten, (A,)."""
        if not len(self.roomy.stages):
            return np.zeros(len(give_up_s), dtype=np.bool_)
        return Iterations(self, _finite(times), rates).hopeful(give_up_s)

    def value(self, times: LayerTimes, rates: Rates, choice: IntArray) -> FloatArray:
        """Iteration time (A,) of a given option per architecture."""
        return Iterations(self, _finite(times), rates).value(choice)

    def best(self, times: LayerTimes, rates: Rates) -> Plan | None:
        """The best plan of one architecture, checked, or None where nothing fits.

        Raises PlanError where the plan does not stand the independent check: a defect of ours.
        """
        return self.plans(times, rates, np.array([np.inf]))[0]

    def plans(self, times: LayerTimes, rates: Rates, give_up_s: FloatArray) -> list[Plan | None]:
        """The same for many architectures, `give_up_s` (A,); few of them have options to themselves."""
        if not len(self.roomy.stages):
            return [None] * len(give_up_s)
        search = Iterations(self, _finite(times), rates)
        plans = search.plans(search.solve(give_up_s)[1])
        for row, plan in enumerate(plans):
            if plan is not None:
                one = np.array([row])
                check_plan(plan, self.premises(times.take(one), rates.take(one)))
        return plans

    def premises(self, times: LayerTimes, rates: Rates) -> Premises:
        """What the plan of the first architecture is checked against."""
        return Premises(
            chain=self.chain,
            forward_s=times.forward_s[0].tolist(),
            backward_s=times.backward_s[0].tolist(),
            numerics=self.numerics,
            cluster=self.cluster,
            memory_bytes=self.memory_bytes,
            link_bytes_per_s=float(rates.link_bytes_per_s[0]),
            optimizer_s=float(rates.optimizer_s[0]),
            fixed=self.fixed,
        )


def _finite(times: LayerTimes) -> LayerTimes:
    """Layer times that can be added up; a collective without links takes infinitely long."""
    return LayerTimes(np.minimum(times.forward_s, NEVER_S), np.minimum(times.backward_s, NEVER_S))
