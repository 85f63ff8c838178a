"""Chips in a table of architectures that run one kernel after the other, each on all cores: SIMT chips.

A kernel takes the whole chip: the hardware deals its blocks to every multiprocessor, so that kernels side by side
share cores instead of finding idle ones. An operator therefore has one mode that pays, all cores; the other one
is offered to the scheduler at no less than the whole pass.

So do chips of few systolic arrays whose compiler makes one program of a model, under the calibrated fidelity and where
their family is measured (`phaze.cost.kernels.systolic_programs`). Under the analytic fidelity they are architectures as
the search composes them, whose operators are scheduled on their cores, with losses of software alike for all of them
(`phaze.cost.software_losses`). Under the ideal fidelity every chip is such an architecture, without losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import NO_OWN, OwnConstants
from phaze.cost.kernels.kernel_laws import in_models_s
from phaze.cost.kernels.systolic_programs import measured
from phaze.cost.operator_kinds import Kinds
from phaze.cost.roofline_model import roofline_s
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.workload.work import Pass, Unit, Work

NONE = -1
"""Number of an architecture that does not run kernels."""


@dataclass(frozen=True)
class SimtSide:
    """Distinct architectures that run kernels, (S,); `numbers` finds one by the bytes of its row."""

    table: ArchitectureTable
    numbers: Mapping[bytes, int]
    rung: Fidelity

    @classmethod
    def of(cls, table: ArchitectureTable, rung: Fidelity) -> tuple[SimtSide, Rows]:
        """The distinct ones of a table, and the number of each of its architectures, (A,)."""
        rows = np.flatnonzero(runs_kernels(table, rung))
        numbers: dict[bytes, int] = {}
        kept: list[int] = []
        for row, key in zip(rows, _keys(table, rows), strict=True):
            if numbers.setdefault(key, len(numbers)) == len(kept):
                kept.append(int(row))
        side = cls(table.take(np.array(kept, dtype=np.intp)), numbers, rung)
        found = side.find(table)
        return side, found if found is not None else np.full(len(table), NONE)

    def find(self, table: ArchitectureTable) -> Rows | None:
        """The number of each architecture, (A,); None where one that runs kernels is not known."""
        number = np.full(len(table), NONE, dtype=np.intp)
        rows = np.flatnonzero(runs_kernels(table, self.rung))
        for row, key in zip(rows, _keys(table, rows), strict=True):
            if key not in self.numbers:
                return None
            number[row] = self.numbers[key]
        return number

    def __len__(self) -> int:
        """How many."""
        return len(self.numbers)


@dataclass(frozen=True)
class SimtTimes:
    """Seconds of operators on the architectures of a side; equal operators are costed once."""

    side: SimtSide
    network: Network
    rung: Fidelity
    own: OwnConstants = field(default_factory=lambda: NO_OWN)
    _known: dict[Work, Floats] = field(default_factory=dict)

    def alone_s(self, works: Sequence[Work]) -> Floats:
        """Each operator on all cores, (S, O), none a collective: its kernel, and never less than the roofline."""
        new = [w for w in dict.fromkeys(works) if w not in self._known]
        if new:
            kernels = in_models_s(new, self.side.table, self.rung, self.own)
            least = self.least_s(new)
            self._known.update(zip(new, np.fmax(kernels, least).T, strict=True))
        return np.array([self._known[w] for w in works]).reshape(len(works), len(self.side)).T

    def least_s(self, works: Sequence[Work]) -> Floats:
        """Roofline of each operator, (S, O)."""
        return roofline_s(Pass(tuple(works), ()), self.side.table, self.network)

    def hbm_s(self, works: Sequence[Work]) -> Floats:
        """Seconds to move every tensor of the operators once, (S,)."""
        moved = sum(work.moved_bytes for work in works)
        return moved / hbm_bandwidth_bytes_per_s(self.side.table)

    def pass_least_s(self, works: Sequence[Work], kinds: Kinds) -> Floats:
        """Lower bound of the seconds of a pass, (S, 1): its kernels run one after the other."""
        computing = [k for k, o in enumerate(kinds.first.tolist()) if works[o].unit is not Unit.LINK]
        times = np.bincount(kinds.of_operator, minlength=len(kinds.first))[computing]
        least_s = self.least_s([works[o] for o in kinds.first[computing].tolist()])
        return (least_s @ times)[:, None]


def runs_kernels(table: ArchitectureTable, rung: Fidelity) -> NDArray[np.bool_]:
    """Architectures that run one kernel after the other, (A,)."""
    simt = np.asarray(table["simt"], dtype=np.bool_)
    if rung is Fidelity.IDEAL:
        return np.zeros_like(simt)
    return simt if rung is Fidelity.ANALYTIC else simt | measured(table)


def _keys(table: ArchitectureTable, rows: Rows) -> list[bytes]:
    """The values of some architectures in all fields, as bytes."""
    if not len(rows):
        return []
    columns = [np.asarray(column[rows], dtype=np.float64) for column in table.columns.values()]
    return [row.tobytes() for row in np.stack(columns, axis=1)]
