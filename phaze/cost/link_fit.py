"""Fits the constants of a tier to measured times: least mean |log(predicted / measured)|."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.tiers import LinkLaw

_FIRST, _LAST = 2.0, 1.01  # factors by which constants are tried larger and smaller
_MOST = {"efficiency": 1.0, "in_network": 1.0}


def fit_law(
    start: LinkLaw, constants: Sequence[str], predict: Callable[[LinkLaw], Floats], measured_s: Floats
) -> LinkLaw:
    """The law with some of its constants fitted, from a start that must not be 0 in any of them.

    `predict` gives the seconds of every measurement. Constants are multiplied and divided by a factor while that
    helps; then by a smaller factor (compass search: no derivatives, and the fastest algorithm may change).
    """
    best, factor = start, _FIRST
    error = _error(predict(best), measured_s)
    while factor > _LAST:
        improved = False
        for move in _moves(constants, factor):
            tried = _moved(best, move)
            found = _error(predict(tried), measured_s)
            if found < error * (1 - 1e-4):
                best, error, improved = tried, found, True
        factor = factor if improved else factor**0.5
    return best


def _moves(constants: Sequence[str], factor: float) -> Iterator[dict[str, float]]:
    """One constant larger or smaller, or two at once: what one costs another may have to give back."""
    steps = [{name: step} for name in constants for step in (factor, 1 / factor)]
    yield from steps
    yield from (one | other for one, other in combinations(steps, 2) if one.keys() != other.keys())


def _moved(law: LinkLaw, move: Mapping[str, float]) -> LinkLaw:
    values = {name: min(getattr(law, name) * step, _MOST.get(name, np.inf)) for name, step in move.items()}
    return replace(law, **values)


def _error(predicted_s: Floats, measured_s: Floats) -> float:
    return float(np.mean(np.abs(np.log(predicted_s / measured_s))))
