"""Judge what is given: `phaze.evaluate`, `phaze.compare`, and `phaze.validate` for the model itself; and what they
come back with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of, dataframe, design_rows
from phaze.api.self_display import Shown
from phaze.inputs.option_reading import as_list

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.explore.documents.result_document import Design, ResultDocument, WorkloadResult
    from phaze.inputs.options.plan_options import CompareOptions, EvaluateOptions
    from phaze.validation.validation_document import Comparison, ValidationReport


_SETS = ("name", "metric", "rung", "rows", "mape_pct", "median_ape_pct", "bias_pct", "threshold_pct")


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
        from phaze.report.terminal.design_tables import performance, placement

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
        from phaze.report.terminal.side_by_side import comparison_blocks

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
        from phaze.report.terminal.check_tables import errors_table

        yield errors_table(self.report)


def evaluate(options: EvaluateOptions) -> Evaluated:
    """Evaluate one architecture under its best plan, or one that is given, as `dse evaluate` does.

    The best plan of the space `plans` as a `framework` runs it; what is fixed stays fixed. `out`: keep the answer in
    this folder, here as in `compare`.

    Raises InputError where an argument is not valid, InfeasibleError where the workload does not fit.
    """
    from phaze.inputs.evaluate_inputs import evaluate_given
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        document = record_question(evaluate_given(options), "evaluate", options)
        keep(document)
    return Evaluated(document)


def compare(options: CompareOptions) -> Compared:
    """Compare architectures, each under its own best placement, as `dse compare` does.

    Raises InputError where an argument is not valid, InfeasibleError where none of them can run the workload.
    """
    from phaze.inputs.evaluate_inputs import check_some_can, compare_given
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        found = compare_given(options)
        keep(record_question(found.document, "compare", options))
    check_some_can(found.rows, options.workload)
    return Compared(found.rows)


@speaks_python
def validate(
    data: str | Path | None = None,
    *,
    sets: str | Sequence[str] = (),
    rung: str = "analytic",
    leave_out: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Validated:
    """Compare the model with measured hardware, as `dse validate` does.

    `data`: the folder of measurements (CSV files), else the one that DSE_DATA in the environment names, and the tables
    of an H100 that come with phaze. `sets`: some of the data sets only. `leave_out`: fit constants anew without each
    device, source, run and framework in turn, which the calibrated rung then shows. `progress` is told which one is on.
    An error above its threshold is an answer, see `passed`.

    Raises InputError where there is no such folder, set or rung.
    """
    from phaze.cost.fidelity import Fidelity, check_judged
    from phaze.inputs.named_choices import choose
    from phaze.inputs.recorded.input_files import measurements_folder
    from phaze.validation.fits.left_out import with_left_out
    from phaze.validation.model_validation import compare, report

    level = choose(Fidelity, rung, "--rung")
    check_judged(level)
    folder = measurements_folder(Path(data) if data is not None else None)
    compared = compare(folder, as_list(sets), progress, own=data is None)
    if leave_out:
        compared = with_left_out(compared, progress or (lambda _: None))
    return Validated(report(folder, as_list(sets), level, compared))
