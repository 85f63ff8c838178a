"""Compare the model with every data set of a folder: rows that cannot be judged left out and named, errors scored,
against the thresholds that are shipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from phaze.arrays import Floats
from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.errors import MALFORMED, InputError
from phaze.validation.data_set_registry import DATA_SETS, DataSet, Metric
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measurement_columns import Columns, read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.own import own_tables
from phaze.validation.validation_document import Comparison, ValidationReport, peers
from phaze.yaml_file import parse_yaml


@dataclass(frozen=True, slots=True)
class Score:
    """Errors in percent of the measured value: mean, median and 90th percentile of their sizes, and signed mean.

    `rank_correlation` is Spearman's: 1 where the model puts the rows in the measured order; None for
    fewer than two distinct values.
    """

    mape_pct: float
    median_ape_pct: float
    p90_ape_pct: float
    bias_pct: float
    rank_correlation: float | None


def score(predicted: Floats, measured: Floats) -> Score:
    """Score of (rows,) predictions. Raises ValueError without rows or for a measurement that is not positive."""
    if not len(measured) or not np.all(measured > 0):
        msg = "scores need at least one row, and measured values above 0"
        raise ValueError(msg)
    error = 100.0 * (predicted / measured - 1.0)
    size = np.abs(error)
    return Score(
        mape_pct=float(size.mean()),
        median_ape_pct=float(np.median(size)),
        p90_ape_pct=float(np.percentile(size, 90)),
        bias_pct=float(error.mean()),
        rank_correlation=_spearman(predicted, measured),
    )


def _spearman(x: Floats, y: Floats) -> float | None:
    """Correlation of the ranks; equal values share their mean rank."""
    ranks = [_ranks(values) for values in (x, y)]
    if any(np.ptp(r) == 0 for r in ranks):
        return None
    x_ranks, y_ranks = ranks
    return float(np.corrcoef(x_ranks, y_ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Floats = last - (counts - 1) / 2
    return shared[place]


def f1_score(predicted: Floats, measured: Floats) -> float:
    """Harmonic mean of precision and recall of (rows,) predictions, 1 for yes and 0 for no; 0 where all say no."""
    right = float(predicted @ measured)
    called = float(predicted.sum() + measured.sum())
    return 2 * right / called if called else 0.0


@lru_cache(maxsize=1)
def thresholds() -> dict[str, dict[Metric, dict[Fidelity, float]]]:
    """Largest mean absolute percentage error, by data set, metric and rung; of yes or no the least F1."""
    file = resources.files("phaze.validation").joinpath("thresholds.yaml")
    content = parse_yaml(file.read_text(encoding="utf-8"), "validation/thresholds.yaml")
    return TypeAdapter(dict[str, dict[Metric, dict[Fidelity, float]]]).validate_python(content)


def threshold_pct(name: str, metric: Metric, rung: Fidelity) -> float | None:
    """The limit of one comparison in percent; None where there is none."""
    return thresholds().get(name, {}).get(metric, {}).get(rung)


Judge = Callable[[Columns], Judged]

MOST_NAMED = 5
"""Bad rows that are named one by one."""

MOST_FOUND = 20
"""Where a table is given up: most of its rows are of another kind."""

_FAULTS = (*MALFORMED, InputError)


def judge_good_rows(judge: Judge, columns: Columns) -> Judged:
    """Judgement of the rows that a set can judge; the others are left out, each with its line and the reason.

    A set judges row by row, so that a bad one is found by halves. Raises InputError where too many rows are bad.
    """
    with np.errstate(all="ignore"):  # what is not finite is left out
        found = dict(islice(_faults(judge, columns, range(columns.rows)), MOST_FOUND + 1))
        if len(found) > MOST_FOUND or (found and len(found) == columns.rows):
            row, why = next(iter(found.items()))
            raise InputError(f"{columns.path}, {columns.place(row)}: cannot be judged ({why})")
        judged = judge(columns.only([row for row in range(columns.rows) if row not in found]))
    sentences = [f"{columns.place(row)}: cannot be judged ({why})" for row, why in sorted(found.items())]
    return replace(judged, excluded={**judged.excluded, **_named((*columns.bad, *sentences))})


def _faults(judge: Judge, columns: Columns, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The rows that cannot be judged, and why."""
    try:
        judge(columns.only(rows))
    except _FAULTS as error:
        if len(rows) == 1:
            yield rows[0], _reason(error)
        elif rows:
            half = len(rows) // 2
            yield from _faults(judge, columns, rows[:half])
            yield from _faults(judge, columns, rows[half:])


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    shown = text if len(text) <= 200 else f"{text[:197]}..."
    return shown if isinstance(error, InputError | ValueError) else f"{type(error).__name__}: {shown}"


def _named(sentences: Sequence[str]) -> Counter[str]:
    """The first rows by their sentences, the others by their number."""
    named = Counter(sentences[:MOST_NAMED])
    if further := len(sentences) - MOST_NAMED if len(sentences) > MOST_NAMED else 0:
        named["further bad rows"] = further
    return named


@dataclass(frozen=True)
class Compared:
    """One data set: its rows, measured and predicted, and the figures of every rung."""

    judged: Judged
    comparisons: Mapping[Fidelity, Comparison]

    @property
    def title(self) -> str:
        """Name of the set, and of the metric where that is not a latency."""
        return self.comparisons[Fidelity.ANALYTIC].title


def compare(
    folder: Path | None,
    names: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
    refused: Callable[[InputError], None] | None = None,
    *,
    own: bool = False,
) -> tuple[Compared, ...]:
    """Judge the model on the data sets of a folder, or on those of `names`; bad rows are left out with their reason.

    The project's own tables are compared where `own` says so, and where no folder is given. `refused` gets the errors
    of files that cannot be read; the others are compared. Raises InputError for a
    folder without data sets, an unknown name, and without `refused` for files that cannot be read.
    """
    files = (own_tables() if own else {}) | data_files(folder)
    _check(OWN if folder is None else str(folder), files, names)
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
    return Compared(judged, {rung: _figures(data_set, judged, rung) for rung in JUDGED})


def validate(
    folder: Path,
    names: Collection[str] = (),
    rung: Fidelity = Fidelity.ANALYTIC,
    progress: Callable[[str], None] | None = None,
) -> ValidationReport:
    """The report of one rung on the data sets of a folder; errors as `compare`."""
    return report(folder, names, rung, compare(folder, names, progress))


def report(
    folder: Path | None, names: Collection[str], rung: Fidelity, compared: Sequence[Compared]
) -> ValidationReport:
    """The report of one rung; files of the folder that nothing is compared with are named."""
    known = {s.name for s in DATA_SETS}
    others = tuple(name for name in data_files(folder) if name not in known and not names)
    return ValidationReport(sets=tuple(one.comparisons[rung] for one in compared), not_compared=others)


OWN = "the tables of phaze itself"


def data_files(folder: Path | None) -> dict[str, Path]:
    """Files by the name of their set: those of the folder, and of its subfolders `validation*` where it has such."""
    if folder is None:
        return own_tables()
    return {
        path.stem: path for where in ("validation*/*.csv", "*.csv") for path in sorted(folder.glob(where))
    }


def _check(folder: str, files: Collection[str], names: Collection[str]) -> None:
    known = {s.name for s in DATA_SETS}
    if not known.intersection(files):
        raise InputError(f"{folder}: no data set here; files such as {DATA_SETS[-1].name}.csv are looked for")
    for name in names:
        if name not in known or name not in files:
            near = get_close_matches(name, sorted(known.intersection(files)), n=3, cutoff=0.3)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise InputError(f"{folder}: no data set {name!r} that the model is compared with{hint}")


def _figures(data_set: DataSet, judged: Judged, rung: Fidelity) -> Comparison:
    if data_set.metric is Metric.FITS:
        return _agreement(data_set, judged, rung)
    judged = said_rows(judged, rung)
    errors, roofline = _score(judged, rung), _score(judged, Fidelity.ROOFLINE)
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
    )


def _agreement(data_set: DataSet, judged: Judged, rung: Fidelity) -> Comparison:
    """Figures of a yes or no; a rung without an answer has no rows."""
    said = judged.predicted.get(rung)
    return Comparison(
        name=data_set.name,
        metric=data_set.metric,
        rung=rung,
        rows=0 if said is None else len(said),
        excluded=sum(judged.excluded.values()) + (len(judged.measured) if said is None else 0),
        excluded_reasons=dict(judged.excluded),
        **dict.fromkeys(Score.__dataclass_fields__),
        roofline_mape_pct=None,
        threshold_pct=None,
        f1=None if said is None or not len(said) else f1_score(said, judged.measured),
        least_f1=threshold_pct(data_set.name, data_set.metric, rung),
    )


def said_rows(judged: Judged, rung: Fidelity) -> Judged:
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


def _score(judged: Judged, rung: Fidelity) -> Score | None:
    if rung not in judged.predicted or not len(judged.measured):
        return None
    return score(judged.predicted[rung], judged.measured)
