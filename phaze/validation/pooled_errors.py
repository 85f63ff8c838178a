"""Errors of the model pooled by kind of figure, from all data sets that were compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import yaml

from phaze.arrays import Floats
from phaze.cost.fidelity import Fidelity
from phaze.validation.model_validation import Compared, said_rows
from phaze.validation.stated_errors import KINDS, Kind, Stated, StatedError

RUNGS = (Fidelity.ANALYTIC, Fidelity.CALIBRATED)
COMPOSED = frozenset({"e2e_vtrain_single_node"})
"""Sets whose times are composed of others (decisions/0023): no runs."""


def pooled(compared: Sequence[Compared]) -> Stated:
    """Errors of all rows of a kind together, for every kind that some set measures."""
    found: dict[str, dict[Fidelity, StatedError]] = {}
    for name, kind in KINDS.items():
        sets = [one for one in compared if _measures(one, kind)]
        by_rung = {rung: _pooled([_errors_pct(one, rung) for one in sets]) for rung in RUNGS}
        if told := {rung: error for rung, error in by_rung.items() if error is not None}:
            found[name] = told
    return found


def _measures(one: Compared, kind: Kind) -> bool:
    told = one.comparisons[Fidelity.ANALYTIC]
    return told.metric == kind.metric and told.name.startswith(kind.names) and told.name not in COMPOSED


def _errors_pct(one: Compared, rung: Fidelity) -> Floats:
    kept = said_rows(one.judged, rung)
    if rung not in kept.predicted or not len(kept.measured):
        return np.empty(0)
    return np.abs(100.0 * (kept.predicted[rung] / kept.measured - 1.0))


def _pooled(errors: Sequence[Floats]) -> StatedError | None:
    some = [each for each in errors if len(each)]
    if not some:
        return None
    every = np.concatenate(some)
    median, p90 = (round(float(np.percentile(every, share)), 1) for share in (50, 90))
    return StatedError(rows=len(every), sets=len(some), median_pct=median, p90_pct=p90)


_HEAD = """# Errors by kind of figure and rung, percent of what was measured, pooled over all data sets of the kind.
# Source: `dse validate --data DIR --out DIR` writes this file beside the validation page (docs/validation.md).
"""


def written(stated: Stated) -> str:
    """The file that `stated_errors` reads."""
    plain = {
        name: {rung.value: error.model_dump() for rung, error in by_rung.items()}
        for name, by_rung in stated.items()
    }
    return _HEAD + yaml.safe_dump(plain, sort_keys=False)
