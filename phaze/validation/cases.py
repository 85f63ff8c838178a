"""Rows of a data set as work on chips, and what the model says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.cost.kernels.kernel import kernels_s
from phaze.cost.model import CostModel
from phaze.cost.roofline import roofline_s
from phaze.cost.rung import Rung
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.network import Network, load_network
from phaze.workload.work import Pass, Work

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """Kept rows of a set: measured values (rows,) and, per rung, predicted ones; excluded rows by reason.

    A prediction is NaN where a rung has nothing to say of a row.
    """

    measured: Floats
    predicted: Mapping[Rung, Floats]
    excluded: Mapping[str, int]


@dataclass
class Cases:
    """Collects the rows of a set, work on a chip with its measured time each, and counts those left out."""

    _works: dict[str, list[tuple[int, Work]]] = field(default_factory=dict)
    _chips: dict[str, Architecture] = field(default_factory=dict)
    _measured: list[float] = field(default_factory=list)
    _excluded: Counter[str] = field(default_factory=Counter)

    def keep(self, chip: Architecture, work: Work, measured_s: float) -> None:
        """Take a row in."""
        self._chips[chip.name] = chip
        self._works.setdefault(chip.name, []).append((len(self._measured), work))
        self._measured.append(measured_s)

    def drop(self, reason: str) -> None:
        """Leave a row out."""
        self._excluded[reason] += 1

    def judge(self) -> Judged:
        """Predict all rows taken in."""
        network = load_network("default")
        predicted = {rung: np.empty(len(self._measured)) for rung in Rung}
        for name, rows in self._works.items():
            where = [i for i, _ in rows]
            works = tuple(work for _, work in rows)
            for rung, seconds in _predict(self._chips[name], works, network).items():
                predicted[rung][where] = seconds
        return Judged(np.array(self._measured), predicted, dict(self._excluded))


def _predict(chip: Architecture, works: tuple[Work, ...], network: Network) -> dict[Rung, Floats]:
    """Seconds of each operator alone on an otherwise idle chip, in the faster of its modes."""
    table, pass_ = to_table([chip]), Pass(works, ())
    latencies = CostModel(table, network).costs(pass_).latencies(np.array([0]))
    overlapped = np.minimum(latencies.single_s, latencies.parallel_s)[0]
    kernels = kernels_s(works, table, Rung.ANALYTIC)[0]
    return {
        Rung.ROOFLINE: roofline_s(pass_, table, network)[0],
        Rung.ANALYTIC: np.where(np.isnan(kernels), overlapped, kernels),
        Rung.CALIBRATED: kernels_s(works, table, Rung.CALIBRATED)[0],
    }
