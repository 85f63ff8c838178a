"""Compare the model with every data set of a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from phaze.cost.rung import Rung
from phaze.errors import InputError
from phaze.validation.bad_rows import judge_good_rows
from phaze.validation.cases import Judged
from phaze.validation.columns import read_columns
from phaze.validation.document import Comparison, ValidationReport
from phaze.validation.peers import peers
from phaze.validation.registry import DATA_SETS, DataSet, Metric
from phaze.validation.score import Score, score
from phaze.validation.tables import TABLES
from phaze.validation.thresholds import threshold_pct
from phaze.validation.unseen import unseen


@dataclass(frozen=True)
class Compared:
    """One data set: its rows, measured and predicted, and the figures of every rung."""

    judged: Judged
    comparisons: Mapping[Rung, Comparison]

    @property
    def title(self) -> str:
        """Name of the set, and of the metric where that is not a latency."""
        return self.comparisons[Rung.ANALYTIC].title


def compare(
    folder: Path,
    names: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
    refused: Callable[[InputError], None] | None = None,
) -> tuple[Compared, ...]:
    """Judge the model on the data sets of a folder, or on those of `names`; bad rows are left out with their reason.

    `refused` is told of files that cannot be read, and the others are compared. Raises InputError for a folder
    without data sets, an unknown name, and without `refused` for files that cannot be read.
    """
    files = _files(folder)
    _check(folder, files, names)
    wanted = [s for s in DATA_SETS if s.name in files and (not names or s.name in names)]
    compared = []
    for data_set in wanted:
        if progress is not None:
            progress(f"{data_set.name} ({data_set.metric})")
        try:
            compared.append(_compared(data_set, files[data_set.name]))
        except InputError as error:
            if refused is None:
                raise
            refused(error)
    return tuple(compared)


def _compared(data_set: DataSet, file: Path) -> Compared:
    judged = judge_good_rows(data_set.judge, read_columns(file, TABLES[data_set.name]))
    return Compared(judged, {rung: _figures(data_set, judged, rung) for rung in Rung})


def validate(
    folder: Path,
    names: Collection[str] = (),
    rung: Rung = Rung.ANALYTIC,
    progress: Callable[[str], None] | None = None,
) -> ValidationReport:
    """The report of one rung on the data sets of a folder; errors as `compare`."""
    return report(folder, names, rung, compare(folder, names, progress))


def report(
    folder: Path, names: Collection[str], rung: Rung, compared: Sequence[Compared]
) -> ValidationReport:
    """The report of one rung; files of the folder that nothing is compared with are named."""
    known = {s.name for s in DATA_SETS}
    others = tuple(name for name in _files(folder) if name not in known and not names)
    return ValidationReport(sets=tuple(one.comparisons[rung] for one in compared), not_compared=others)


def _files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.csv"))}


def _check(folder: Path, files: Collection[str], names: Collection[str]) -> None:
    known = {s.name for s in DATA_SETS}
    if not known.intersection(files):
        raise InputError(f"{folder}: no data set here; files such as {DATA_SETS[-1].name}.csv are looked for")
    for name in names:
        if name not in known or name not in files:
            near = get_close_matches(name, sorted(known.intersection(files)), n=3, cutoff=0.3)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise InputError(f"{folder}: no data set {name!r} that the model is compared with{hint}")


def _figures(data_set: DataSet, judged: Judged, rung: Rung) -> Comparison:
    judged = _said(judged, rung)
    errors, roofline = _score(judged, rung), _score(judged, Rung.ROOFLINE)
    figures = asdict(errors) if errors else dict.fromkeys(Score.__dataclass_fields__)
    return Comparison(
        name=data_set.name,
        metric=data_set.metric,
        rung=rung,
        rows=len(judged.measured),
        excluded=sum(judged.excluded.values()),
        excluded_reasons=dict(judged.excluded),
        assumed=judged.assumed,
        **figures,
        roofline_mape_pct=roofline.mape_pct if roofline else None,
        threshold_pct=threshold_pct(data_set.name, data_set.metric, rung),
        peers=peers().get(data_set.name, ()),
        unseen_pct=dict(unseen().get(data_set.name, {})) if _fitted(data_set, rung) else {},
    )


def _fitted(data_set: DataSet, rung: Rung) -> bool:
    """Whether a rung has fitted constants for what a set measures."""
    fitted = (Metric.LATENCY, Metric.LATENCY_BACKWARD, Metric.TIME)
    return rung is not Rung.ROOFLINE and data_set.metric in fitted


def _said(judged: Judged, rung: Rung) -> Judged:
    """The rows that the rung has a prediction for; the others are excluded and counted."""
    silent = np.full(len(judged.measured), np.nan)
    said = np.isfinite(judged.predicted.get(rung, silent))
    kept = said & np.isfinite(judged.measured) & (judged.measured > 0)
    reasons = dict(judged.excluded)
    if not said.all():
        reasons[f"nothing {rung} for this chip and operator"] = int((~said).sum())
    if unmeasured := int((said & ~kept).sum()):
        reasons["nothing above 0 was measured"] = unmeasured
    predicted = {name: values[kept] for name, values in judged.predicted.items()}
    rows = tuple(row for row, keep in zip(judged.rows, kept, strict=False) if keep)
    return Judged(judged.measured[kept], predicted, reasons, rows, judged.assumed)


def _score(judged: Judged, rung: Rung) -> Score | None:
    if rung not in judged.predicted or not len(judged.measured):
        return None
    return score(judged.predicted[rung], judged.measured)
