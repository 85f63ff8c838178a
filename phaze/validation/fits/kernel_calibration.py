"""Constants of the laws of kernels from a user's own measurements of a chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import CalibrationFile, Constants, OwnConstants
from phaze.cost.kernels.kernel_laws import alone_s
from phaze.cost.kernels.law_fitting import fit_constants
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.validation.data_set_registry import SECONDS
from phaze.validation.measured.measured_cases import Row
from phaze.validation.model_validation import compare, score

L = TypeVar("L")

ASIDE = 5  # every fifth row is not fitted but judged on
FEWEST = 10  # rows for which a law is fitted
MOST = 1500  # rows that are fitted; of more, evenly spaced ones


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """One law: rows fitted and kept aside, and mean absolute errors in percent on the latter."""

    file: str
    fitted: int
    aside: int
    before_pct: float
    after_pct: float


@dataclass(frozen=True)
class Recorder(Constants):
    """Notes which laws are asked for."""

    asked: dict[str, object] = field(default_factory=dict)

    def law(self, kind: type[L], file: str) -> L | None:
        """As `Constants`, noted down."""
        found = Constants.law(self, kind, file)
        if found is not None:
            self.asked[file] = found
        return found


@dataclass(frozen=True)
class Calibrator:
    """Fits the laws that some rows on one chip need, one after the other."""

    chip: Architecture
    rows: Sequence[Row]

    def fit(
        self, progress: Callable[[str], None] = lambda _: None
    ) -> tuple[CalibrationFile, list[FittedLaw]]:
        """New constants, and what they are worth. Raises InputError where no law has rows enough."""
        own: dict[str, Mapping[str, float]] = {}
        judged: list[FittedLaw] = []
        for file, (law, rows) in self._rows_by_law().items():
            progress(f"{file.removesuffix('.yaml')}: {len(rows)} rows")
            kept = [row for i, row in enumerate(rows) if i % ASIDE]
            aside = rows[::ASIDE]
            some = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST)).astype(np.intp))
            found = self._fitted(file, law, [kept[i] for i in some])
            before, after = (self._error_pct(aside, file, constants) for constants in ({}, found))
            if after < before:
                own[file] = found
            judged.append(FittedLaw(file, len(some), len(aside), before, min(after, before)))
        if not judged:
            raise InputError(f"{self.chip.name}: no operator has the {FEWEST} rows that fitting a law takes")
        return CalibrationFile(chip=self.chip.name, family=self._family, laws=own), judged

    @property
    def _family(self) -> str:
        return str(self.chip.value("family"))

    def _rows_by_law(self) -> dict[str, tuple[Any, list[Row]]]:
        """Laws, and the rows that need one of them alone; those with the most rows first."""
        table = to_table([self.chip])
        found: dict[str, tuple[Any, list[Row]]] = {}
        for row in self.rows:
            recorder = Recorder(self._family)
            alone_s(row.works, table, recorder)
            if len(recorder.asked) == 1:
                ((file, law),) = recorder.asked.items()
                found.setdefault(file, (law, []))[1].append(row)
        enough = {file: pair for file, pair in found.items() if len(pair[1]) >= FEWEST}
        return dict(sorted(enough.items(), key=lambda item: -len(item[1][1])))

    def _fitted(self, file: str, law: Any, rows: Sequence[Row]) -> dict[str, float]:  # noqa: ANN401 - any law
        predict, measured = Predictor(self.chip, rows), np.array([row.measured_s for row in rows])
        best = fit_constants(
            law, lambda new: predict(Constants(self._family, {file: numbers(new)})), measured
        )
        return numbers(best)

    def _error_pct(self, rows: Sequence[Row], file: str, constants: Mapping[str, float]) -> float:
        own: OwnConstants = {file: constants} if constants else {}
        predicted = Predictor(self.chip, rows)(Constants(self._family, own))
        return score(predicted, np.array([row.measured_s for row in rows])).mape_pct


class Predictor:
    """Seconds of rows on a chip by given constants, as their timers show them."""

    def __init__(self, chip: Architecture, rows: Sequence[Row]) -> None:
        self._table: ArchitectureTable = to_table([chip])
        self._works = tuple(work for row in rows for work in row.works)
        self._where = [i for i, row in enumerate(rows) for _ in row.works]
        self._lag, self._floor = (
            np.array([getattr(row.timer, k) for row in rows]) for k in ("lag_s", "floor_s")
        )
        self._stretch = np.array([row.stretch for row in rows])

    def __call__(self, constants: Constants) -> Floats:
        """Seconds of every row, (R,)."""
        seconds = np.zeros(len(self._lag))
        np.add.at(seconds, self._where, alone_s(self._works, self._table, constants))
        shown: Floats = np.maximum(self._lag + self._stretch * seconds, self._floor)
        return shown


def numbers(law: Any) -> dict[str, float]:  # noqa: ANN401 - any law
    """The constants of a law that are numbers."""
    values = {f.name: getattr(law, f.name) for f in fields(law)}
    return {name: v for name, v in values.items() if isinstance(v, float)}


def rows_of(
    folder: Path, chip: Architecture, progress: Callable[[str], None] | None = None
) -> tuple[Row, ...]:
    """All rows of a folder that were measured on a chip. Raises InputError where there are none, and for bad rows."""
    compared = compare(folder, progress=progress)
    if bad := next((why for one in compared for why in one.judged.excluded if why.startswith("line ")), None):
        raise InputError(f"{folder}: constants are fitted to whole tables only; {bad}")
    timed = (one for one in compared if one.comparisons[Fidelity.ANALYTIC].metric in SECONDS)
    found = tuple(row for one in timed for row in one.judged.rows if row.chip.name == chip.name)
    if not found:
        raise InputError(f"{folder}: no rows that were measured on {chip.name}")
    return found
