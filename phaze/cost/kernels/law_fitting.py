"""Constants of laws from measurements, of kernels and of links: least mean |log(predicted / measured)|."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import combinations
from typing import TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.hardware.network_tiers import LinkLaw

L = TypeVar("L")

_RANGE = 8.0  # times or parts of where a constant starts
_HOLD = (
    0.005  # weight of the mean squared log distance from the start: decides where measurements say nothing
)
_CALLS = 120  # evaluations of the law per constant at most


def fit_constants(law: L, predict_s: Callable[[L], Floats], measured_s: Floats) -> L:
    """The law with all constants that are above 0 refitted.

    `predict_s` gives (rows,) seconds for a law of other constants. Constants that are shares, at most 1 at the
    start, stay so. Raises InputError where scipy is missing.
    """
    if not is_dataclass(law) or isinstance(law, type):
        msg = f"{law!r} is not a law: a dataclass of numbers"
        raise TypeError(msg)
    free = [f.name for f in fields(law) if isinstance(v := getattr(law, f.name), float) and v > 0]
    start = np.array([getattr(law, name) for name in free])
    low, high = start / _RANGE, np.where((start > 1 / _RANGE) & (start <= 1), 1.0, start * _RANGE)

    def at(logs: Floats) -> L:
        values = np.clip(start * np.exp(logs), low, high)
        changed: L = replace(law, **dict(zip(free, values.tolist(), strict=True)))
        return changed

    def loss(logs: Floats) -> float:
        errors = np.abs(np.log(predict_s(at(logs)) / measured_s))
        return float(errors.mean() + _HOLD * np.mean(logs**2))

    return at(_least(loss, len(free)))


def _least(loss: Callable[[Floats], float], size: int) -> Floats:
    """Minimum of a function of some logarithms, by the simplex of Nelder and Mead, started twice."""
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise InputError("fitting needs scipy: pip install '.[calibrate]' in a clone of phaze") from error
    point: Floats = np.zeros(size)
    for width in (0.3, 0.1):
        simplex = point + width * np.vstack([np.zeros(size), np.eye(size)])
        options = {
            "initial_simplex": simplex,
            "maxfev": _CALLS * size,
            "xatol": 1e-3,
            "fatol": 1e-5,
            "adaptive": True,
        }
        point = minimize(loss, point, method="Nelder-Mead", options=options).x
    return point


_FIRST, _LAST = 2.0, 1.01  # factors by which constants are tried larger and smaller
_MOST = {"efficiency": 1.0, "in_network": 1.0}


def fit_link_law(
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
