"""The metrics a design is judged by: name, column, unit, which way is better, and what must be known for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InputError
from phaze.workload.workload import Workload

Row = Mapping[str, Any]
Figure = float | NDArray[np.float64]


class Needs(StrEnum):
    """What a metric is a function of; each includes those before it."""

    ARCHITECTURE = "architecture"  # known without evaluating anything
    THROUGHPUT = "throughput"  # a bound on the iteration time bounds it
    PLAN = "plan"  # degrees and stages


@dataclass(frozen=True)
class Metric:
    """One metric: its name on the command line, the column (or result field) that holds it, its direction.

    `formula` works it out of other columns, for one row or for whole columns. More throughput, less energy and
    less memory never make a metric worse: bounds on them bound it. `linear`: under one plan it is a sum of what its
    work takes and of what goes on for the time of an iteration.
    """

    name: str
    column: str
    label: str
    unit: str
    maximise: bool
    needs: Needs = Needs.PLAN
    formula: Callable[[Row], Figure] | None = None
    linear: bool = False

    def of(self, columns: Row) -> Figure:
        """The metric, in `unit`, of one row of a design table or of columns of equal length.

        Its own column, where there is one, else by its formula. Raises InputError where a column it needs is missing.
        """
        by_formula = self.formula if self.column not in columns else None
        try:
            figure: Figure = by_formula(columns) if by_formula else columns[self.column]
        except KeyError as error:
            raise InputError(f"the design table has no column {error}, needed for {self.name}") from error
        return figure

    def value(self, row: Row) -> float:
        """The metric of one row, in `unit`. Raises InputError where the row does not have it."""
        value = self.of(row)
        if value is None:
            raise InputError(f"design {row.get('id')} has no {self.column}, needed for {self.name}")
        return float(value)


def _score_per_tdp(columns: Row) -> Figure:
    ratio: Figure = columns["score"] / columns["tdp_w"]
    return ratio


def _throughput_per_tdp(columns: Row) -> Figure:
    ratio: Figure = columns["throughput_samples_per_s"] / columns["tdp_w"]
    return ratio


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "throughput",
            "throughput_samples_per_s",
            "throughput",
            "samples/s",
            maximise=True,
            needs=Needs.THROUGHPUT,
        ),
        Metric(
            "throughput_per_tdp",
            "throughput_samples_per_s_per_w",
            "throughput per watt",
            "samples/s/W",
            maximise=True,
            needs=Needs.THROUGHPUT,
            formula=_throughput_per_tdp,
        ),
        Metric("mfu", "mfu", "model FLOPs utilisation", "1", maximise=True, needs=Needs.THROUGHPUT),
        Metric("tdp", "tdp_w", "power of one accelerator", "W", maximise=False, needs=Needs.ARCHITECTURE),
        Metric("area", "area_mm2", "silicon area", "mm2", maximise=False, needs=Needs.ARCHITECTURE),
        Metric(
            "cost_per_chip",
            "price_usd",
            "manufacturing cost of one accelerator",
            "USD",
            maximise=False,
            needs=Needs.ARCHITECTURE,
        ),
        Metric("score", "score", "combined score", "", maximise=True, needs=Needs.THROUGHPUT),
        Metric(
            "score_per_tdp",
            "score_per_w",
            "combined score per watt",
            "/W",
            maximise=True,
            needs=Needs.THROUGHPUT,
            formula=_score_per_tdp,
        ),
        Metric(
            "energy_per_sample",
            "energy_per_sample_j",
            "energy per sample",
            "J",
            maximise=False,
            linear=True,
        ),
        Metric("memory", "memory_bytes", "peak memory", "bytes", maximise=False),
        *(
            Metric(f"{what}_per_{of}", f"{what}_per_{of}_{unit}", label, word, maximise=False, linear=True)
            for what, unit, word in (("cost", "usd", "USD"), ("carbon", "kg", "kg CO2e"))
            for of, label in (
                ("sample", f"{what} per sample"),
                ("million_tokens", f"{what} per million tokens"),
            )
        ),
    )
}


PRICED = frozenset(name for name in METRICS if name.startswith(("cost_per_", "carbon_per_"))) - {
    "cost_per_chip"
}
"""Metrics that follow from the rates of the whole cluster."""
PER_TOKEN = frozenset(name for name in PRICED if name.endswith("_tokens"))
"""Those of workloads whose samples have tokens."""


def metric(name: str) -> Metric:
    """The metric of that name; InputError lists the names there are."""
    if name not in METRICS:
        raise InputError(f"unknown metric {name!r}; choose from {', '.join(METRICS)}")
    return METRICS[name]


def check_tokens(names: Iterable[str], workload: Workload) -> None:
    """Raises InputError where a metric is per token and samples of the workload have none."""
    for name in names:
        if name in PER_TOKEN and workload.sequence_length is None:
            instead = name.replace("million_tokens", "sample")
            raise InputError(f"{workload.name} has no tokens: ask for {instead} instead of {name}")
