"""Constants of a law from measurements: least mean |log(predicted / measured)|, held near where they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError

L = TypeVar("L")

_RANGE = 8.0  # times or parts of where a constant starts
_HOLD = (
    0.005  # weight of the mean squared log distance from the start: decides where measurements say nothing
)
_CALLS = 120  # evaluations of the law per constant at most


def fit(law: L, predict_s: Callable[[L], Floats], measured_s: Floats) -> L:
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
    """Where a function of some logarithms is least, by the simplex of Nelder and Mead, started twice."""
    try:
        from scipy.optimize import minimize
    except ImportError as error:
        raise InputError("fitting needs scipy: python -m pip install 'phaze-dse[calibrate]'") from error
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
