"""Errors on what constants of frameworks were not fitted on: each run, device, framework left out in turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, log
from statistics import geometric_mean

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.cost.fidelity import Fidelity
from phaze.parallel.framework import Framework, list_frameworks, load_framework
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.validation.fits.least_absolute import STEP, Errors, LeftOut, percent, refit, worst
from phaze.validation.measured.published_runs import PublishedRun, RunGroup, best_iteration, estimator
from phaze.validation.model_validation import Compared

FOLDS = 12
"""Parts that runs are left out in, where there are more of them."""
_NAMED = 4
"""Constants that are named, at most."""

_TIED = {"dispatch_backward_s": "dispatch_s"}
"""Constants that were fitted as one with another."""


@dataclass(frozen=True)
class Constant:
    """A constant with the same value in some frameworks, which a fit moves together."""

    name: str
    value: float
    frameworks: frozenset[str]


@dataclass(frozen=True)
class FittedRuns:
    """Runs of one comparison, the constants that were fitted to it, and what the model says with others."""

    title: str
    runs: Sequence[PublishedRun]
    _known: dict[RunGroup, Estimator] = field(default_factory=dict)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Those that the frameworks of the runs say were fitted to them."""
        found: dict[tuple[str, float], set[str]] = {}
        for framework in {run.framework.name: run.framework for run in self.runs}.values():
            for name in fitted_to(framework, self.title):
                if name in _TIED:
                    continue
                found.setdefault((name, float(getattr(framework, name))), set()).add(framework.name)
        return tuple(Constant(name, value, frozenset(who)) for (name, value), who in sorted(found.items()))

    def errors(self, values: Mapping[Constant, float], which: Collection[int] | None = None) -> Floats:
        """Logarithms of predicted over measured values, of some runs, with other values of constants."""
        each = range(len(self.runs)) if which is None else which
        return np.array([self._error(self.runs[i], values) for i in each])

    def _error(self, run: PublishedRun, values: Mapping[Constant, float]) -> float:
        new = {c.name: v for c, v in values.items() if run.framework.name in c.frameworks}
        new |= {
            both: new[one]
            for both, one in _TIED.items()
            if one in new and both in fitted_to(run.framework, self.title)
        }
        changed = _replaced(run, new)
        found = best_iteration(changed, estimator(changed, Fidelity.CALIBRATED, self._known))
        return log(run.figure(found) / run.measured)

    def left_out(self) -> dict[str, LeftOut]:
        """Errors with each run (or part of the runs), device and framework left out of the fit in turn."""
        constants = self.constants
        if not constants or not len(self.runs):
            return {}
        errors = self.errors({})
        slopes = np.stack([self._slope(errors, constant) for constant in constants], axis=1)
        chips = [run.chip.name for run in self.runs]
        folds = {"run": [str(i % FOLDS) for i in range(len(self.runs))], "device": chips}
        found = {
            kind: LeftOut(percent(left), worst(chips, errors, left))
            for kind, names in folds.items()
            if (left := _each_out(errors, slopes, names)) is not None
        }
        unseen = self._unseen(constants)
        changed = ", ".join(
            f"{c.name} {c.value:.3g} -> {elsewhere(c.name, self.title):.3g}" for c in constants[:_NAMED]
        )
        most = f"{worst([run.framework.name for run in self.runs], errors, unseen)}; {changed}"
        return found | {"framework": LeftOut(percent(unseen), most)}

    def _slope(self, errors: Floats, constant: Constant) -> Floats:
        """Derivatives of the errors by the logarithm of a constant (of what it stretches, where it is a factor)."""
        which = [i for i, run in enumerate(self.runs) if run.framework.name in constant.frameworks]
        slope = np.zeros(len(errors))
        moved = self.errors({constant: constant.value * exp(STEP)}, which)
        slope[which] = (moved - errors[which]) / STEP
        return slope

    def _unseen(self, constants: Sequence[Constant]) -> Floats:
        """Errors where the constants are those of the other frameworks, whose fits never saw this comparison."""
        return self.errors({one: elsewhere(one.name, self.title) for one in constants})


def _each_out(errors: Floats, slopes: Floats, names: Sequence[str]) -> Floats | None:
    """Errors with what has each of the names left out; None where all have the same."""
    kinds = sorted(set(names))
    if len(kinds) < 2:
        return None
    left = np.empty(len(errors))
    for kind in kinds:
        out: Flags = np.array([name == kind for name in names])
        change = refit(errors[~out], slopes[~out])
        left[out] = errors[out] + slopes[out] @ change
    return left


def _replaced(run: PublishedRun, new: Mapping[str, float]) -> PublishedRun:
    return replace(run, framework=run.framework.model_copy(update=dict(new))) if new else run


def fitted_to(framework: Framework, title: str) -> tuple[str, ...]:
    """Names of a framework's constants that were fitted to a comparison."""
    return tuple(name for one in framework.fitted if one.to == title for name in one.constants)


@cache
def elsewhere(name: str, title: str) -> float:
    """A constant of a framework that nobody ran: the mean of those fitted to other comparisons, else its default.

    Geometric for factors, whose default is 1; plain for shares and times, whose default is 0.
    """
    default = float(Framework.model_fields[name].default)
    found = [
        float(getattr(framework, name))
        for framework in map(load_framework, list_frameworks())
        if any(one.to != title and name in one.constants for one in framework.fitted)
        and name not in fitted_to(framework, title)
    ]
    if not found:
        return default
    return geometric_mean(found) if default == 1.0 else float(np.mean(found))


def frameworks_left_out(
    compared: Sequence[Compared], progress: Callable[[str], None]
) -> Iterator[tuple[str, Errors]]:
    """Errors by title of every comparison of training runs that constants were fitted to."""
    for one in compared:
        runs = [run for run in one.judged.runs if isinstance(run, PublishedRun)]
        title = f"{one.comparisons[Fidelity.CALIBRATED].name} {one.comparisons[Fidelity.CALIBRATED].metric}"
        fitted = FittedRuns(title, runs)
        if fitted.constants:
            progress(f"{title}: left out")
            yield one.title, fitted.left_out()
