"""What pipelines cost whose stages choose among some designs, in one setting: the numbers the program works on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.explore.candidates import Block
from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Setting
from phaze.placement.options import Options
from phaze.placement.planner import Planner, Rates
from phaze.scheduling.layers import LayerTimes
from phaze.scheduling.passes import Effort
from phaze.solvers.placement.mixed import Line, MixedChain

Key = tuple[int, int | None]
"""Tier between stages, and microbatches in flight where they are fewer than the depth."""
FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass
class Pipelines:
    """Designs of a block (`evaluator` is of its table) as device types of a chain; K of them."""

    evaluator: Evaluator
    block: Block
    setting: Setting
    effort: Effort
    _chains: dict[Key, MixedChain] = field(default_factory=dict)

    @cached_property
    def times(self) -> LayerTimes:
        """Layer times of every design, from real schedules."""
        return self.evaluator.timed(self.setting).exact(np.arange(len(self.block)), self.effort)[1]

    @property
    def rates(self) -> Rates:
        """Link bandwidth and optimizer speed of every design."""
        return self.evaluator.rates

    @cached_property
    def _memories(self) -> list[tuple[Planner, Rows]]:
        """A planner for every memory capacity, and the designs that have it."""
        found = self.evaluator.capacities(np.arange(len(self.block)))
        return [(self.evaluator.planner(self.setting, capacity), at) for capacity, at in found]

    @property
    def any_planner(self) -> Planner:
        """A planner for what does not depend on the memory capacity."""
        return self._memories[0][0]

    def planner(self, row: int) -> Planner:
        """The planner of one design."""
        return self.evaluator.planner(self.setting, float(self.evaluator.capacity_bytes[row]))

    @property
    def options(self) -> Options:
        """Data degrees and depths to choose from."""
        return self.any_planner.options

    def line(self, option: int) -> Line:
        """The pipeline of one option."""
        o = self.options
        limit = self.any_planner.memory.limit(int(o.stages[option]), int(o.microbatches[option]))
        return self._line(option, limit)

    def loosest_line(self, option: int) -> Line:
        """The same as if no stage ever held more than one microbatch: nothing that fits is left out."""
        return self._line(option, 1)

    def _line(self, option: int, in_flight: int | None) -> Line:
        rate, latency = self._weight_rates
        return Line(
            chain=self._chain((int(self.options.pipeline_tier[option]), in_flight)),
            stages=int(self.options.stages[option]),
            slots=float(self.options.slots[option]),
            rate_s=rate[:, option],
            latency_s=float(latency[option]),
        )

    @cached_property
    def _weight_rates(self) -> tuple[FloatArray, FloatArray]:
        return self.any_planner.weight_rates(self.rates, self.options)

    def _chain(self, key: Key) -> MixedChain:
        if key not in self._chains:
            self._chains[key] = self._costed(key)
        return self._chains[key]

    def _costed(self, key: Key) -> MixedChain:
        layers, types = len(self.any_planner.index), len(self.block)
        inner, last = np.empty((types, layers, layers)), np.empty((types, layers))
        group, deepest = np.empty(types, dtype=np.int64), []
        for g, (planner, at) in enumerate(self._memories):
            problem = planner.problem(self.times.take(at), self.rates.take(at), *key)
            inner[at] = problem.ends_s[:, None, 1:] - problem.starts_s[:, :-1, None]
            last[at], group[at] = problem.last_s, g
            deepest.append(problem.limits.inner)
        return MixedChain(
            inner, last, np.stack(deepest), group, self.any_planner.parameters, self.block.tdp_w
        )
