"""What is known of architectures that are given, of a plan, and of the model itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze.api.rows import columns_of, design_rows, plan_row
from phaze.api.shown import Shown
from phaze.api.table import Table, dataframe

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.explore.document import Design, ResultDocument, WorkloadResult
    from phaze.explore.planning.document import PlanCertificate, PlanDocument, PlanResult
    from phaze.validation.document import Comparison, ValidationReport

_SETS = ("name", "metric", "rung", "rows", "mape_pct", "median_ape_pct", "bias_pct", "threshold_pct")
_PLANS = ("data_parallel", "tensor_parallel", "pipeline_parallel", "iteration_time_s", "memory_bytes")


@dataclass(frozen=True, repr=False)
class Evaluated(Shown):
    """One architecture under its placement; `document` is what `dse evaluate --json` prints."""

    document: ResultDocument

    @property
    def design(self) -> Design:
        """The architecture, its area and power, and what it does."""
        return self.document.best

    @property
    def result(self) -> WorkloadResult:
        """What the workload comes to: time, MFU, memory, energy, placement, where the time goes."""
        (result,) = self.design.workloads.values()
        return result

    def to_dataframe(self) -> pd.DataFrame:
        """One row with all figures and hardware fields as a pandas data frame."""
        return dataframe(columns_of(list(design_rows([(self.design.id, self.design)]))))

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.design import performance, placement

        for name, result in self.design.workloads.items():
            yield performance(name, result)
            yield placement(name, result.placement)


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """Architectures side by side, by name; those that cannot run the workload with the reason."""

    rows: Mapping[str, Design | str]

    @property
    def designs(self) -> dict[str, Design]:
        """Those that can, each under its own best placement."""
        return {name: row for name, row in self.rows.items() if not isinstance(row, str)}

    @property
    def infeasible(self) -> dict[str, str]:
        """Why the others cannot."""
        return {name: row for name, row in self.rows.items() if isinstance(row, str)}

    def to_dataframe(self) -> pd.DataFrame:
        """A row per architecture as a pandas data frame; the column `infeasible` says why one cannot."""
        rows = list(design_rows(self.designs.items()))
        rows += [{"architecture": name, "infeasible": why} for name, why in self.infeasible.items()]
        return dataframe(columns_of(rows))

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.compare import comparison_blocks

        return comparison_blocks(self.rows)


@dataclass(frozen=True, repr=False)
class Validated(Shown):
    """The model against measurements; `report` is what `dse validate --json` prints."""

    report: ValidationReport

    @property
    def passed(self) -> bool:
        """Whether no error is above its threshold."""
        return self.report.passed

    @property
    def sets(self) -> Table[Comparison]:
        """The comparisons, one per data set and metric."""
        rows = [one.model_dump(mode="json") for one in self.report.sets]
        return Table("Errors, %", self.report.sets, columns_of(rows), _SETS)

    def to_dataframe(self) -> pd.DataFrame:
        """The comparisons as a pandas data frame."""
        return self.sets.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.validate import errors_table

        yield errors_table(self.report)


@dataclass(frozen=True, repr=False)
class Planned(Shown):
    """The best training plan and the next ones; `document` is what `dse plan --json` prints."""

    document: PlanDocument

    @property
    def best(self) -> PlanResult:
        """The best plan: strategy, time, MFU, energy, memory, where the time goes."""
        return self.document.best

    @property
    def certificate(self) -> PlanCertificate:
        """How many plans there are, and how each was dealt with."""
        return self.document.certificate

    @property
    def plans(self) -> Table[PlanResult]:
        """The best plan, then the next ones."""
        plans = (self.document.best, *self.document.next_best)
        return Table("Plans", plans, columns_of([plan_row(plan) for plan in plans]), _PLANS)

    def to_dataframe(self) -> pd.DataFrame:
        """The plans as a pandas data frame."""
        return self.plans.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.plan import plan_head, plan_proof, plan_table

        yield plan_head(self.document)
        yield plan_table(self.document.best, self.document.request)
        yield plan_proof(self.document)
