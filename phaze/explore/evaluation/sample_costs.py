"""Money and carbon of a sample: of points of a search and of reported designs by one formula, cluster rates at work.

It grows with seconds and joules, so that optimistic ones give optimistic money and carbon.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.documents.result_document import SampleCost, WorkloadResult
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.economics.cluster_rates import ClusterRates, cluster_rates

MILLION = 1e6
COLUMNS = (
    *("cost_per_sample_usd", "cost_per_million_tokens_usd"),
    *("carbon_per_sample_kg", "carbon_per_million_tokens_kg"),
)
"""Of design tables and frontier points: money, then carbon."""


@dataclass(frozen=True)
class SampleCosts:
    """Rates of a task's cluster of (A,) architectures, and the tokens of one sample, where it has any."""

    rates: ClusterRates
    tokens: int | None

    @classmethod
    def of(cls, task: Task, table: ArchitectureTable, area_mm2: Floats, tdp_w: Floats) -> SampleCosts:
        """Of architectures of some area and TDP, (A,) each, as many as the task has devices."""
        rates = cluster_rates(table, area_mm2, tdp_w, task.devices, task.network, task.economics)
        return cls(rates, task.workload.sequence_length)

    def columns(
        self, rows: Rows, seconds: Floats, joules: Floats, asked: Collection[str] = COLUMNS
    ) -> dict[str, Any]:
        """Columns of design tables from seconds and joules of a sample on the architectures at some rows, (A,) each.

        Those of money where one of them is `asked` for, and those of carbon alike.
        """
        found: dict[str, Floats] = {}
        for rates, per_sample, per_tokens in zip(
            (self.rates.usd, self.rates.kg), COLUMNS[::2], COLUMNS[1::2], strict=True
        ):
            if per_sample in asked or per_tokens in asked:
                found[per_sample] = rates.take(rows).total(seconds, joules)
                if self.tokens is not None:
                    found[per_tokens] = found[per_sample] * (MILLION / self.tokens)
        return found

    def of_plan(self, row: int, seconds: float, joules: float) -> dict[str, float | None]:
        """The columns of one architecture, from seconds and joules of a sample; none where its dies fit on no wafer."""
        found = self.columns(np.array([row]), np.array([seconds]), np.array([joules]))
        return {name: float(each[0]) for name, each in found.items() if isfinite(each[0])}

    def told(self, result: WorkloadResult) -> SampleCost | None:
        """The record of the one architecture, from its result; None where its dies fit on no wafer."""
        seconds = result.iteration_time_s / result.global_batch
        joules = result.energy_per_iteration_j / result.global_batch
        usd, kg, site = (
            {name: float(part[0]) for name, part in rates.parts(seconds, joules).items()}
            for rates in (self.rates.usd, self.rates.kg, self.rates.joules)
        )
        if not all(isfinite(part) for part in (*usd.values(), *kg.values())):
            return None
        return SampleCost(
            cost_parts_usd=usd,
            carbon_parts_kg=kg,
            energy_parts_j=site,
            tokens=self.tokens,
            chip_usd=float(self.rates.price_usd[0]),
            device_usd=float(self.rates.capital_usd[0]),
            **_totals(usd, kg, site, self.tokens),
        )


def _totals(
    usd: dict[str, float], kg: dict[str, float], site: dict[str, float], tokens: int | None
) -> dict[str, float]:
    """Sums of the parts, in their order, for a sample and for a million tokens."""
    totals = {
        "cost_per_{}_usd": sum(usd.values()),
        "carbon_per_{}_kg": sum(kg.values()),
        "energy_per_{}_j": sum(site.values()),
    }
    found = {name.format("sample"): total for name, total in totals.items()}
    if tokens is not None:
        found |= {name.format("million_tokens"): total * (MILLION / tokens) for name, total in totals.items()}
    return found


def cost_columns(cost: SampleCost | None) -> dict[str, float | None]:
    """The columns of a frontier point from a design's record; all None where there is none."""
    return {name: None if cost is None else getattr(cost, name) for name in COLUMNS}
