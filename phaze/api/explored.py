"""What a search comes back with: the certified one, or a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.rows import columns_of, design_rows, known_row
from phaze.api.shown import Shown
from phaze.api.table import Records, Table
from phaze.api.words import in_python

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.explore.document import Certificate, Comparison, Design, FrontierPoint, ResultDocument
    from phaze.explore.exploration import Answer
    from phaze.explore.portfolio.report import ScorePoint
    from phaze.explore.sweep import SweepPlan, SweepResult

_KEYS = ("id", "score", "tdp_w", "area_mm2", "throughput_samples_per_s", "mfu", "energy_per_sample_j")
_PLACED = ("architecture", "workload", "tdp_w", "area_mm2", "throughput_samples_per_s", "mfu")
_KNOWN = ("name", "tdp_w", "area_mm2", "clock_hz", "throughput_samples_per_s", "mfu")


@dataclass(frozen=True, repr=False)
class Explored(Shown):
    """The best architecture of a space, with its certificate, the frontier and everything that was evaluated.

    `document` is what `dse run --json` prints; `folder`: the run directory, where one was asked for.
    """

    document: ResultDocument
    answer: Answer
    folder: Path | None = None

    @property
    def best(self) -> Design:
        """The winner: architecture, area, power, and what it does for every workload."""
        return self.document.best

    @property
    def certificate(self) -> Certificate:
        """How far any other point of the space could be better."""
        return self.document.certificate

    @property
    def frontier(self) -> Table[FrontierPoint | ScorePoint]:
        """Designs that no other one beats; of several workloads in combined score and power."""
        from phaze.runs.directory import flat

        portfolio = self.document.portfolio
        points: tuple[FrontierPoint | ScorePoint, ...]
        points = tuple(portfolio.frontier) if portfolio else tuple(self.document.frontier)
        return Table("Frontier", points, columns_of([flat(point) for point in points]), _KEYS)

    @property
    def designs(self) -> Table[dict[str, Any]]:
        """Every evaluated design, a mapping of columns each."""
        columns = self.answer.designs
        return Table("Evaluated designs", Records(columns), columns, _KEYS)

    @property
    def next_best(self) -> Table[Design]:
        """The best designs after the winner; of the columns a row for each workload."""
        designs = tuple(self.document.next_best)
        columns = columns_of(list(design_rows((design.id, design) for design in designs)))
        return Table("Next best", designs, columns, _PLACED)

    @property
    def comparison(self) -> Table[Comparison]:
        """Known chips beside the winner, under the same budgets."""
        known = tuple(self.document.comparison)
        return Table("Known chips", known, columns_of([known_row(chip) for chip in known]), _KNOWN)

    def to_dataframe(self) -> pd.DataFrame:
        """The frontier as a pandas data frame."""
        return self.frontier.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.questions import score_table
        from phaze.report.tables import answer, frontier_of

        yield in_python(answer(self.document))
        if self.document.portfolio:
            yield score_table(self.document.portfolio, self.best.id)
        elif self.document.frontier:
            yield frontier_of(self.document)


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """What an Optuna study came to: `result` as rows, `plan` as it was asked."""

    result: SweepResult
    plan: SweepPlan
    folder: Path | None = None

    @property
    def designs(self) -> Table[dict[str, Any]]:
        """Every feasible design in the order found."""
        return self._table("Feasible designs", self.result.designs)

    @property
    def frontier(self) -> Table[dict[str, Any]]:
        """The designs that no other one beats on all objectives."""
        return self._table("Frontier", self.result.frontier)

    @property
    def trials(self) -> int:
        """How many trials the study has, infeasible ones included."""
        return self.result.trials

    def to_dataframe(self) -> pd.DataFrame:
        """The feasible designs as a pandas data frame."""
        return self.designs.to_dataframe()

    def _table(self, title: str, rows: tuple[dict[str, Any], ...]) -> Table[dict[str, Any]]:
        return Table(title, rows, columns_of(rows), _KEYS)

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.sweep import sweep_table

        result = self.result
        yield sweep_table(result.frontier, self.plan.objectives, result.trials, result.infeasible)
