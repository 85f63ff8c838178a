"""Published die sizes and thermal design powers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from phaze.cost.rung import Rung
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.area import area_mm2
from phaze.hardware.power import tdp_w
from phaze.validation.cases import Judged
from phaze.validation.chips import chip_of
from phaze.validation.columns import Columns
from phaze.validation.sets.products import NO_TEMPLATE


def areas(columns: Columns) -> Judged:
    """Die area in mm2."""
    return _figures(columns, "die_mm2", lambda chip: float(area_mm2(to_table([chip]))[0]))


def powers(columns: Columns) -> Judged:
    """Thermal design power in W against the model's peak power at the sustained clock."""
    return _figures(columns, "tdp_w", lambda chip: float(tdp_w(to_table([chip]))[0]))


def _figures(columns: Columns, column: str, figure: Callable[[Architecture], float]) -> Judged:
    published, predicted, kept = columns.numbers(column), [], []
    excluded: Counter[str] = Counter()
    for row, name in enumerate(columns["chip"]):
        chip = chip_of(name)
        if np.isnan(published[row]):
            excluded["not published"] += 1
        elif chip is None:
            excluded[NO_TEMPLATE] += 1
        else:
            kept.append(row)
            predicted.append(figure(chip))
    return Judged(published[kept], {Rung.ANALYTIC: np.array(predicted)}, dict(excluded))
