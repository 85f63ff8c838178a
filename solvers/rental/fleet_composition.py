"""Composition of a fleet: how many replicas of each configuration, and which share of each workload they take.

min T over integers y_c and shares x_cw with sum over c of x_cw = 1, sum over w of x_cw f_w / h_cw <= T y_c,
x_cw <= y_c, sum over c of price_c y_c <= budget, and devices as far as there are (arXiv 2502.00722, equations 1 to 7).
T y is no linear term, so T is bisected with a mixed-integer program for each value (HiGHS), which seeks the least
price; the T of what it finds is worked out exactly, and ends the search where no smaller one is feasible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.scheduling.mode_relaxation import silent_highs

GAP = 1e-6
"""Relative width of T that is left open: HiGHS keeps rows to 1e-7."""

_MOST_STEPS = 200


@dataclass(frozen=True)
class RentalConfig:
    """A replica of some devices: its price for an hour, devices of each kind, requests per second of each workload."""

    name: str
    price_usd: float
    devices: Mapping[str, int]
    rates_per_s: Sequence[float]


@dataclass(frozen=True)
class RentalProblem:
    """Configurations, requests of every workload, a budget for an hour, and devices of every kind there are.

    A rate of 0: the configuration cannot serve that workload.
    """

    configs: tuple[RentalConfig, ...]
    requests: tuple[float, ...]
    budget_usd: float
    available: Mapping[str, int]


@dataclass(frozen=True)
class Composition:
    """The best fleet: replicas and shares (C, W); `lower_bound_s`: no fleet takes less. Without one, all is empty."""

    seconds: float
    lower_bound_s: float
    price_usd: float
    replicas: tuple[int, ...] = ()
    shares: Floats | None = None
    programs: int = 0

    @property
    def feasible(self) -> bool:
        """Whether there is one."""
        return math.isfinite(self.seconds)


def compose(problem: RentalProblem, within_s: float | None = None) -> Composition:
    """The fleet that serves all requests in the least time; with `within_s` (infinite: any), the cheapest in time."""
    if within_s is not None:
        found = _Program(problem, within_s if math.isfinite(within_s) else None).solve()
        return _told(problem, found, 1, found is not None)
    programs, best, low = 0, _Program(problem, None).solve(), 0.0
    if best is None:
        return _told(problem, None, 1, False)
    best_s = composition_seconds(problem, best)
    for programs in range(1, _MOST_STEPS):  # noqa: B007 - how many there were is told
        if best_s - low <= GAP * best_s:
            break
        middle = max(0.5 * (low + best_s), low) if best_s - low > 0.02 * best_s else best_s * (1 - GAP)
        found = _Program(problem, middle).solve()
        if found is None:
            low = middle
        else:
            best, best_s = found, min(best_s, composition_seconds(problem, found))
    return _told(problem, best, programs + 1, True, low)


def composition_seconds(problem: RentalProblem, replicas: Sequence[int]) -> float:
    """Least seconds in which given replicas serve all requests, by a linear program; infinite where they cannot."""
    return _shared(problem, replicas)[0]


def _told(
    problem: RentalProblem, found: Sequence[int] | None, programs: int, feasible: bool, low: float = 0.0
) -> Composition:
    if found is None or not feasible:
        return Composition(math.inf, math.inf, math.inf, programs=programs)
    seconds, shares = _shared(problem, found)
    price = sum(n * c.price_usd for n, c in zip(found, problem.configs, strict=True))
    return Composition(seconds, low, price, tuple(found), shares, programs)


def _shared(problem: RentalProblem, replicas: Sequence[int]) -> tuple[float, Floats]:
    """Seconds and shares (C, W) of given replicas: min T, all else as in the module."""
    import highspy

    count, kinds = len(problem.configs), len(problem.requests)
    highs, none = silent_highs(), np.zeros((count, kinds))
    for c, w in np.ndindex(count, kinds):
        open_ = replicas[c] > 0 and problem.configs[c].rates_per_s[w] > 0
        highs.addVar(0.0, 1.0 if open_ else 0.0)
    highs.addVar(0.0, highspy.kHighsInf)
    last = count * kinds
    highs.changeColCost(last, 1.0)
    _all_served(highs, count, kinds)
    for c, config in enumerate(problem.configs):
        if replicas[c] > 0:
            columns, values = _work(problem, config, c, kinds)
            highs.addRow(
                -highspy.kHighsInf, 0.0, len(columns) + 1, [*columns, last], [*values, -float(replicas[c])]
            )
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return math.inf, none
    found = np.array(highs.getSolution().col_value)
    return float(found[last]), found[:last].reshape(count, kinds)


def _all_served(highs: Any, count: int, kinds: int) -> None:  # noqa: ANN401 - HiGHS
    """Shares of every workload sum to 1."""
    for w in range(kinds):
        highs.addRow(1.0, 1.0, count, [c * kinds + w for c in range(count)], [1.0] * count)


def _work(problem: RentalProblem, config: RentalConfig, c: int, kinds: int) -> tuple[list[int], list[float]]:
    """Columns of a configuration's shares, and the seconds that one replica takes for each whole workload."""
    served = [w for w in range(kinds) if config.rates_per_s[w] > 0]
    return [c * kinds + w for w in served], [problem.requests[w] / config.rates_per_s[w] for w in served]


class _Program:
    """Whether a fleet within the budget serves everything within some seconds, and the cheapest one; None: any time."""

    def __init__(self, problem: RentalProblem, within_s: float | None) -> None:
        """Shares first, then numbers of replicas."""
        import highspy

        self._highs, self._status = silent_highs(), highspy.HighsModelStatus
        highs, infinite = self._highs, highspy.kHighsInf
        count, kinds = len(problem.configs), len(problem.requests)
        self._replicas = range(count * kinds, count * kinds + count)
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("mip_rel_gap", 0.0)
        for c, w in np.ndindex(count, kinds):
            highs.addVar(0.0, 1.0 if problem.configs[c].rates_per_s[w] > 0 else 0.0)
        for c, config in enumerate(problem.configs):
            most = [problem.available.get(kind, 0) // n for kind, n in config.devices.items() if n > 0]
            highs.addVar(0.0, float(min(most, default=0)))
            highs.changeColCost(self._replicas[c], config.price_usd)
            highs.changeColIntegrality(self._replicas[c], highspy.HighsVarType.kInteger)
        _all_served(highs, count, kinds)
        for c, config in enumerate(problem.configs):
            y = self._replicas[c]
            if within_s is not None:
                columns, values = _work(problem, config, c, kinds)
                highs.addRow(-infinite, 0.0, len(columns) + 1, [*columns, y], [*values, -within_s])
            for w in range(kinds):
                highs.addRow(-infinite, 0.0, 2, [c * kinds + w, y], [1.0, -1.0])
        prices = [config.price_usd for config in problem.configs]
        highs.addRow(-infinite, problem.budget_usd, count, list(self._replicas), prices)
        for kind, there in problem.available.items():
            taken = [float(config.devices.get(kind, 0)) for config in problem.configs]
            highs.addRow(-infinite, float(there), count, list(self._replicas), taken)

    def solve(self) -> tuple[int, ...] | None:
        """Replicas of every configuration, or None where there is no fleet."""
        self._highs.run()
        if self._highs.getModelStatus() != self._status.kOptimal:
            return None
        values = self._highs.getSolution().col_value
        return tuple(round(values[y]) for y in self._replicas)
