"""Rows of a data set as work on chips, what the model says of them, and what the way of measuring adds to their
time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.roofline_model import roofline_s
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network, load_network
from phaze.workload.work import Pass, Work
from phaze.yaml_file import parse_yaml


@dataclass(frozen=True, slots=True)
class Timer:
    """A kernel starts `lag_s` after the clock; nothing is measured below `floor_s`, nor finer than `tick_s`."""

    lag_s: float = 0.0
    floor_s: float = 0.0
    tick_s: float = 0.0

    def reading_s(self, kernel_s: float) -> float:
        """Seconds that the timer shows for kernels of that many seconds."""
        shown = max(self.floor_s, self.lag_s + kernel_s)
        return shown if self.tick_s == 0 else max(1, round(shown / self.tick_s)) * self.tick_s


EXACT = Timer()
"""Shows kernels as they are."""


class _Host(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    lag_s: float = 0.0
    floor_s: float = 0.0


class _Set(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    tick_s: float = 0.0
    operators: Mapping[str, float] = {}
    hosts: tuple[_Host, ...] = ()


@lru_cache(maxsize=1)
def _sets() -> Mapping[str, _Set]:
    file = resources.files("phaze.validation").joinpath("timers.yaml")
    content = parse_yaml(file.read_text(encoding="utf-8"), "validation/timers.yaml")
    return TypeAdapter(dict[str, _Set]).validate_python(content)


@lru_cache(maxsize=1024)
def timer_of(data_set: str, device: str, operator: str = "") -> Timer:
    """Timer of an operator's rows of a data set: the first host whose expression is found in "device operator"."""
    one = _sets().get(data_set, _Set())
    timer = Timer(tick_s=one.tick_s)
    work = one.operators.get(operator, 1.0)
    for host in one.hosts:
        if re.search(host.name, f"{device} {operator}"):
            return replace(timer, lag_s=host.lag_s * work, floor_s=host.floor_s * work)
    return timer


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: kernels one after the other on a chip, and the timer that showed `measured_s`.

    `stretch`: how much longer the library's kernels take than those that the laws know.
    """

    chip: Architecture
    works: tuple[Work, ...]
    measured_s: float
    timer: Timer = EXACT
    stretch: float = 1.0

    def shown_s(self, kernels_s: float) -> float:
        """What its timer shows where the laws say so many seconds."""
        return self.timer.reading_s(self.stretch * kernels_s)


@dataclass(frozen=True)
class Judged:
    """Kept rows of a set: measured values (rows,) and, per rung, predicted ones; excluded rows by reason.

    A prediction is NaN where a rung has nothing to say of a row. `rows`: what was measured, for sets of
    operators; `runs`: training runs (`PublishedRun`) or exchanges (`Exchanges`) of other sets. `assumed`: rows whose
    source leaves something out that was chosen for the best.
    """

    measured: Floats
    predicted: Mapping[Fidelity, Floats]
    excluded: Mapping[str, int]
    rows: tuple[Row, ...] = ()
    assumed: int = 0
    runs: tuple[object, ...] = ()


@dataclass
class Cases:
    """Collects the rows of a set, work on a chip with its measured time each, and counts those left out.

    The predicted time of a row is that of its kernels one after the other, as its timer shows it; the
    roofline knows of no timer.
    """

    _rows: list[Row] = field(default_factory=list)
    _excluded: Counter[str] = field(default_factory=Counter)

    def keep(
        self,
        chip: Architecture,
        work: Work | Sequence[Work],
        measured_s: float,
        timer: Timer = EXACT,
        stretch: float = 1.0,
    ) -> None:
        """Take a row in: one kernel, or several one after the other."""
        works = (work,) if isinstance(work, Work) else tuple(work)
        self._rows.append(Row(chip, works, measured_s, timer, stretch))

    def drop(self, reason: str) -> None:
        """Leave a row out."""
        self._excluded[reason] += 1

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows taken in."""
        return tuple(self._rows)

    @property
    def excluded(self) -> dict[str, int]:
        """Rows left out, by reason."""
        return dict(self._excluded)

    def judge(self) -> Judged:
        """Predict all rows taken in."""
        network = load_network("default")
        predicted = {rung: np.zeros(len(self._rows)) for rung in JUDGED}
        for chip in {row.chip.name: row.chip for row in self._rows}.values():
            kernels = [
                (i, w) for i, row in enumerate(self._rows) if row.chip.name == chip.name for w in row.works
            ]
            where = [i for i, _ in kernels]
            for rung, seconds in _predict(chip, tuple(work for _, work in kernels), network).items():
                np.add.at(predicted[rung], where, seconds)
        for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED):
            shown = [row.shown_s(s) for row, s in zip(self._rows, predicted[rung], strict=True)]
            predicted[rung] = np.array(shown)
        measured = np.array([row.measured_s for row in self._rows])
        return Judged(measured, predicted, dict(self._excluded), tuple(self._rows))


def _predict(chip: Architecture, works: tuple[Work, ...], network: Network) -> dict[Fidelity, Floats]:
    """Seconds of each operator alone on an otherwise idle chip, in the faster of its modes.

    Where nothing is fitted for an operator on a chip, the calibrated rung is the analytic one.
    """
    table = to_table([chip])
    analytic, calibrated = (kernels_s(works, table, r)[0] for r in (Fidelity.ANALYTIC, Fidelity.CALIBRATED))
    silent = np.flatnonzero(np.isnan(analytic))
    if len(silent):
        analytic[silent] = _overlapped_s(tuple(works[i] for i in silent), table, network)
    return {
        Fidelity.ROOFLINE: roofline_s(Pass(works, ()), table, network)[0],
        Fidelity.ANALYTIC: analytic,
        Fidelity.CALIBRATED: np.where(np.isnan(calibrated), analytic, calibrated),
    }


def _overlapped_s(works: tuple[Work, ...], table: ArchitectureTable, network: Network) -> Floats:
    """Seconds of operators that no law of kernels costs, as inside a whole model, in the faster mode."""
    latencies = CostModel(table, network).costs(Pass(works, ())).latencies(np.array([0]))
    fastest: Floats = np.minimum(latencies.single_s, latencies.parallel_s)[0]
    return fastest
