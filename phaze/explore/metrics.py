"""The metrics a design is judged by: name, column, unit, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phaze.errors import InputError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """One metric: its name on the command line, the column (or result field) that holds it, its direction."""

    name: str
    column: str
    label: str
    unit: str
    maximise: bool

    def value(self, row: Row) -> float:
        """The metric of one row of a design table, in `unit`. InputError where the row does not have it."""
        try:
            if self.name == "throughput_per_tdp":
                return float(row["throughput_samples_per_s"]) / float(row["tdp_w"])
            return float(row[self.column])
        except KeyError as error:
            raise InputError(f"the design table has no column {error}, needed for {self.name}") from error


METRICS = {
    metric.name: metric
    for metric in (
        Metric("throughput", "throughput_samples_per_s", "throughput", "samples/s", maximise=True),
        Metric(
            "throughput_per_tdp",
            "throughput_samples_per_s_per_w",
            "throughput per watt",
            "samples/s/W",
            maximise=True,
        ),
        Metric("mfu", "mfu", "model FLOPs utilisation", "1", maximise=True),
        Metric("tdp", "tdp_w", "power of one accelerator", "W", maximise=False),
        Metric("area", "area_mm2", "silicon area", "mm2", maximise=False),
        Metric("energy_per_sample", "energy_per_sample_j", "energy per sample", "J", maximise=False),
        Metric("memory", "memory_bytes", "peak memory", "bytes", maximise=False),
    )
}


def metric(name: str) -> Metric:
    """The metric of that name; InputError lists the names there are."""
    if name not in METRICS:
        raise InputError(f"unknown metric {name!r}; choose from {', '.join(METRICS)}")
    return METRICS[name]
