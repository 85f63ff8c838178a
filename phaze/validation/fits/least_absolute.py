"""Constants fitted anew from derivatives of all predictions, and errors on what was left out of a fit.

Gauss and Newton: the mean |log(predicted / measured)| is made least, so that nobody types such a figure in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats

STEP = 0.1
"""Of the logarithm of a constant, for derivatives."""

_FAR = 1.5  # the farthest that a refit moves one
_HOLD = 0.02  # weight of that distance: decides where no run says anything
_ROUNDS = 30  # of least squares that approach least absolute errors


@dataclass(frozen=True)
class LeftOut:
    """Mean absolute percentage error on what was left out of a fit, and what adds most to it."""

    error_pct: float
    most: str


Errors = Mapping[str, LeftOut]
"""By what was left out: run, device, source, framework."""


def refit(errors: Floats, slopes: Floats) -> Floats:
    """Changes of the logarithms of constants (K,) that make the mean absolute value of errors + slopes x change least.

    `errors`: logarithms of predicted over measured values (R,); `slopes`: their derivatives (R, K).
    """
    change: Floats = np.zeros(slopes.shape[1])
    for _ in range(_ROUNDS):
        weight = 1 / np.maximum(np.abs(errors + slopes @ change), 1e-3)
        normal = (slopes * weight[:, None]).T @ slopes + _HOLD * len(errors) * np.eye(len(change))
        found = np.linalg.solve(normal, (slopes * weight[:, None]).T @ errors)
        change = np.array([-min(max(one, -_FAR), _FAR) for one in found.tolist()])
    return change


def percent(errors: Floats) -> float:
    """Mean absolute percentage error of logarithms of predicted over measured values."""
    return float(100 * np.abs(np.exp(errors) - 1).mean())


def worst(names: Sequence[str], fitted: Floats, left: Floats) -> str:
    """Which name's rows grow most, all its rows together, and from what error to what."""
    growth = np.abs(np.expm1(left)) - np.abs(np.expm1(fitted))
    of = np.array(names)
    worst = max(dict.fromkeys(names), key=lambda name: float(growth[of == name].sum()))
    rows = of == worst
    return f"{worst} ({rows.sum()} of {len(rows)} rows): {percent(fitted[rows]):.1f} -> {percent(left[rows]):.1f} %"
