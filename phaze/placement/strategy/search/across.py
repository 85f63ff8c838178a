"""The fastest strategy of each of many architectures of one memory capacity and one link bandwidth, exact.

Strategies of one shape of layers are looked at for all architectures side by side, those first that promise most to
most of them: bounds of all that fit into the memory, then pipelines simulated. It is the model of `Estimator`: what
differs is the axis of architectures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.placement.options import NEVER_S
from phaze.placement.strategy.search.options import ROUNDING, Depth, ShapeOptions, longest_s
from phaze.placement.strategy.search.pipeline import Fitted, Pipeline, Times
from phaze.placement.strategy.strategy import Strategy

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Counts = NDArray[np.int64]
_AT_ONCE = 2048  # architectures that are bounded together


@dataclass
class Tally:
    """Work of a search: strategies whose pipelines were simulated, once for every architecture."""

    simulated: int = 0


@dataclass(frozen=True)
class Across:
    """All strategies of one shape on architectures of one capacity and link bandwidth; what they share is kept.

    `found`: strategies that were simulated.
    """

    options: ShapeOptions
    capacity_bytes: float
    link_bytes_per_s: float
    tally: Tally = field(default_factory=Tally)
    found: list[Fitted] = field(default_factory=list)
    _kept: dict[Any, Any] = field(default_factory=dict)

    # -- the search ------------------------------------------------------------------------------------------

    def least_s(self, times: Times) -> Floats:
        """Seconds that no iteration of any strategy beats, (A,); memory does not count."""
        return np.asarray(self._depths_s(times).min(axis=1, initial=inf))

    def best(self, times: Times, give_up_s: Floats) -> tuple[Floats, Counts]:
        """Least seconds of an iteration (A,), and the strategy that takes them by its place in `found`.

        Infinite, with -1, where nothing fits or `give_up_s` (A,) is not beaten. Of strategies that take equally long
        the first one.
        """
        best, choice = give_up_s.copy(), np.full(len(times), -1, dtype=np.int64)
        queue = _Queue(self._depths_s(times), list(self.options.depths))
        while (wanted := queue.wanted(best)) is not None:
            one, at, hope_s = wanted
            if isinstance(one, Fitted):
                self._try(one, times, at, best, choice)
            else:
                queue.add(at, self._narrower(one, times.take(at), hope_s))
        return np.where(choice != -1, best, inf), choice

    def bound_s(self, times: Times, give_up_s: Floats) -> Floats:
        """At most the least seconds of an iteration (A,), from bounds of all that fits.

        Where it is not below `give_up_s` (A,), that; infinite where nothing fits at all.
        """
        if not self.fits_any:
            return np.full(len(times), inf)
        parts = [
            np.arange(start, min(start + _AT_ONCE, len(times))) for start in range(0, len(times), _AT_ONCE)
        ]
        found = [self._bounded_s(times.take(at), give_up_s[at]) for at in parts]
        return np.concatenate(found) if found else np.zeros(0)

    def _bounded_s(self, times: Times, give_up_s: Floats) -> Floats:
        """The same of few architectures: depths and strategies that promise most come first."""
        best, depths_s = give_up_s.copy(), self._depths_s(times)
        order = np.argsort(np.minimum(depths_s, best[:, None]).sum(axis=0), kind="stable")
        for number in order.tolist():
            at = np.flatnonzero(depths_s[:, number] < best)
            if not len(at):
                continue
            depth, some = self.options.depths[number], times.take(at)
            bounds = longest_s(*self._forms(depth), some.terms) * (1 - ROUNDING)
            for place in np.argsort(bounds.min(axis=0), kind="stable").tolist():
                left = np.flatnonzero(bounds[:, place] < best[at])
                if not len(left):
                    continue
                strategy = self.options.strategies(depth)[place]
                last_s = self._pipeline(strategy).exchanged.least_s
                left = left[bounds[left, place] + last_s < best[at[left]]]
                if len(left):
                    part = some.take(left)
                    for one in self._fitted(strategy):
                        best[at[left]] = np.minimum(best[at[left]], one.bound_s(part))
        return best

    def _depths_s(self, times: Times) -> Floats:
        """At most the seconds of an iteration of each depth, (A, depths); memory does not count."""
        rows = times.rows
        return self.options.depths_s(rows[:, 0] + rows[:, 1] * self.options.again + rows[:, 2])

    def _narrower(
        self, one: Depth | Strategy, times: Times, hope_s: Floats
    ) -> list[tuple[Strategy | Fitted, Floats]]:
        """What a depth or a strategy stands for, with bounds (A,) that are never below `hope_s`."""
        if isinstance(one, Strategy):
            fitted = self._fitted(one)
            return [(f, np.maximum(f.bound_s(times), hope_s)) for f in fitted]
        each, (forms, first) = self.options.strategies(one), self._forms(one)
        bounds = np.maximum(longest_s(forms, first, times.terms) * (1 - ROUNDING), hope_s[:, None])
        return list(zip(each, bounds.T, strict=True))

    def _forms(self, depth: Depth) -> tuple[Floats, Counts]:
        """Forms of all strategies of a depth, (3 K + 2, f), and the first of each."""
        key, kept = ("forms", depth.stages), self.options.kept
        if key not in kept:
            forms = [self.options.forms(s) for s in self.options.strategies(depth)]
            sizes = [form.shape[1] for form in forms]
            kept[key] = np.concatenate(forms, axis=1), np.cumsum([0, *sizes[:-1]])
        found: tuple[Floats, Counts] = kept[key]
        return found

    def value(self, times: Times, choice: Counts) -> Floats:
        """Seconds of an iteration of a given strategy on each architecture, (A,); infinite where there is none."""
        seconds = np.full(len(times), inf)
        for number in np.unique(choice[choice >= 0]).tolist():
            rows = np.flatnonzero(choice == number)
            seconds[rows] = self.found[number].iteration_s(times.take(rows))
        return seconds

    @property
    def fits_any(self) -> bool:
        """Whether some strategy fits into the memory."""
        if "fits" not in self._kept:
            each = (s for depth in self.options.depths for s in self.options.strategies(depth))
            self._kept["fits"] = any(self._fitted(s) for s in each)
        found: bool = self._kept["fits"]
        return found

    # -- steps -----------------------------------------------------------------------------------------------

    def _try(self, one: Fitted, times: Times, at: Rows, best: Floats, choice: Counts) -> None:
        """One strategy on the architectures at some rows; where it is better than the best it takes its place."""
        self.tally.simulated += len(at)
        seconds = one.iteration_s(times.take(at))
        better = (seconds < best[at]) & (seconds < NEVER_S)
        for row in np.flatnonzero((seconds == best[at]) & (choice[at] >= 0)).tolist():
            better[row] = one.rank < self.found[int(choice[at[row]])].rank
        if better.any():
            best[at[better]], choice[at[better]] = seconds[better], self._place(one)

    def _place(self, one: Fitted) -> int:
        """The place of a strategy among those that are found."""
        known: dict[Strategy, int] = self._kept.setdefault("places", {})
        if one.strategy not in known:
            known[one.strategy] = len(self.found)
            self.found.append(one)
        return known[one.strategy]

    def _fitted(self, strategy: Strategy) -> list[Fitted]:
        """What ranks divide and which are neighbours, as fits into the memory, without what another is better than."""
        key = "fitted", strategy
        if key not in self._kept:
            self._kept[key] = self._pipeline(strategy).fitted(self.capacity_bytes)
        found: list[Fitted] = self._kept[key]
        return found

    def _pipeline(self, strategy: Strategy) -> Pipeline:
        """What does not depend on the capacity, kept for all of them."""
        key = strategy, self.link_bytes_per_s
        pipelines: dict[Any, Pipeline] = self.options.kept
        if key not in pipelines:
            pipelines[key] = Pipeline.of(self.options, strategy, self.link_bytes_per_s)
        return pipelines[key]


class _Queue:
    """Depths, strategies and those that fit, with bounds for every architecture, (A,) each."""

    def __init__(self, hope_s: Floats, each: list[Depth | Strategy | Fitted]) -> None:
        self._hope_s, self._each = hope_s, each

    def wanted(self, best: Floats) -> tuple[Depth | Strategy | Fitted, Rows, Floats] | None:
        """What most architectures that may find something better look at next; all to which it matters; their bounds.

        These are done with it.
        """
        open_ = self._hope_s < best[:, None]
        rows = np.flatnonzero(open_.any(axis=1))
        if not len(rows):
            return None
        first = np.where(open_[rows], self._hope_s[rows], inf).argmin(axis=1)
        number = int(np.bincount(first).argmax())
        at = np.flatnonzero(open_[:, number])
        bounds = self._hope_s[at, number]
        self._hope_s[at, number] = inf
        return self._each[number], at, bounds

    def add(self, at: Rows, found: Sequence[tuple[Strategy | Fitted, Floats]]) -> None:
        """Strategies with their bounds on some architectures."""
        columns = np.full((len(self._hope_s), len(found)), inf)
        for column, (_, bounds) in enumerate(found):
            columns[at, column] = bounds
        self._hope_s = np.concatenate([self._hope_s, columns], axis=1)
        self._each += [one for one, _ in found]
