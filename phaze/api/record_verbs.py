"""Look at runs again: `phaze.certify`, `explain`, `pareto`, `report`, `trace`, `diff`, `replay`; and what they come
back with.

Each takes the folder of a run, or the result that a function came back with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.at_hand import Run, RunAtHand, run_at_hand
from phaze.api.drawn_runs import answer_page, iteration_in_time, packed, runs_together
from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of, dataframe
from phaze.api.self_display import Shown
from phaze.document_names import FrontierFormat, TraceFormat
from phaze.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.explore.documents.certify_document import CertifyReport, Check
    from phaze.explore.documents.explanation_document import Explanation, Sensitivity
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.request.design_metrics import Metric
    from phaze.explore.request.search_progress import Progress
    from phaze.quantity import Quantity
    from phaze.report.charts.frontier_export import Frontier
    from phaze.runs.run_difference import Difference


@dataclass(frozen=True, repr=False)
class Certified(Shown):
    """A run's claims worked out again; `report` is what `dse certify --json` prints."""

    report: CertifyReport

    @property
    def passed(self) -> bool:
        """Whether everything holds that was checked."""
        return self.report.passed

    @property
    def checks(self) -> Table[Check]:
        """The checks, one statement of the run each."""
        rows = [check.model_dump(mode="json") for check in self.report.checks]
        return Table("Checks", tuple(self.report.checks), columns_of(rows), ("name", "passed", "note"))

    def to_dataframe(self) -> pd.DataFrame:
        """The checks as a pandas data frame."""
        return self.checks.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.check_tables import certify_blocks

        return certify_blocks(self.report)


@dataclass(frozen=True, repr=False)
class Explained(Shown):
    """Why the winner of a run is what it is; `explanation` is what `dse explain RUN --json` prints."""

    explanation: Explanation

    @property
    def summary(self) -> str:
        """The answer in a sentence."""
        return self.explanation.summary

    @property
    def sensitivity(self) -> Table[Sensitivity]:
        """What each parameter is worth to throughput."""
        rows = [one.model_dump(mode="json") for one in self.explanation.sensitivity]
        keys = ("description", "elasticity", "gain")
        return Table("Sensitivity", tuple(self.explanation.sensitivity), columns_of(rows), keys)

    def to_dataframe(self) -> pd.DataFrame:
        """The sensitivity as a pandas data frame."""
        return self.sensitivity.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.explanation_tables import explanation_blocks

        return explanation_blocks(self.explanation)


@dataclass(frozen=True, repr=False)
class ParetoFront(Shown):
    """Evaluated designs that no other one beats on some metrics, by rising first metric.

    `found` holds axes, knee and hypervolume; `designs`: everything that was evaluated; `name`: of the run.
    """

    name: str
    found: Frontier
    designs: Sequence[Any]

    @property
    def points(self) -> Table[dict[str, Any]]:
        """The designs of the frontier with all their columns."""
        from phaze.report.charts.frontier_export import with_axes

        rows = [with_axes(row, self.found.axes) for row in self.found.rows]
        keys = ("id", *(axis.column for axis in self.found.axes))
        return Table("Frontier", rows, columns_of(rows), keys)

    @property
    def knee(self) -> str | None:
        """Id of the best compromise; None below three designs."""
        return self.found.knee

    def save(self, path: str | Path) -> Path:
        """Write the frontier as its suffix says: .csv, .json, .parquet, .html or .svg (two metrics).

        Raises InputError for another suffix, and where nobody can write there.
        """
        from phaze.report.charts.frontier_export import frontier_content
        from phaze.runs.atomic_files import check_writable, write_atomically

        target = Path(path)
        known = [form.value for form in FrontierFormat]
        if target.suffix.lower().removeprefix(".") not in known:
            raise InputError(
                f"{target}: the name must end in one of {', '.join(f'.{form}' for form in known)}"
            )
        check_writable(target)
        form = FrontierFormat(target.suffix.lower().removeprefix("."))
        write_atomically(target, frontier_content(form, self.found, self.designs, self.name))
        return target

    def to_dataframe(self) -> pd.DataFrame:
        """The designs of the frontier as a pandas data frame."""
        return self.points.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.charts.frontier_export import frontier_remark

        yield from self.points._blocks()
        yield frontier_remark(self.found)


@dataclass(frozen=True, repr=False)
class Differed(Shown):
    """Two runs side by side; `difference` is what `dse diff --json` prints."""

    difference: Difference

    @property
    def same_question(self) -> bool:
        """Whether both runs were asked the same of the same files."""
        return self.difference.same_question

    @property
    def same_answer(self) -> bool:
        """Whether nothing but times and versions differs in what came out."""
        return self.difference.same_answer

    def to_dataframe(self) -> pd.DataFrame:
        """What differs in the answer as a pandas data frame."""
        return dataframe(columns_of([change.model_dump(mode="json") for change in self.difference.answer]))

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.side_by_side import difference_blocks

        return difference_blocks(self.difference)


@speaks_python
def certify(run: Run, *, samples: int = 200, seed: int = 0, progress: Progress | None = None) -> Certified:
    """Work a run's whole document out again, and designs that it pruned, as `dse certify` does.

    `run`: a folder, or a result of `phaze.explore` or `phaze.explore_service`. `samples`: architectures that the run
    did not evaluate, to evaluate, picked by `seed`. A check that fails is an answer, see `passed`.

    Raises InputError where the run was made by another verb, was changed, or an input has changed since.
    """
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.explore.recheck.certify_run import certify as rechecked
    from phaze.explore.recheck.certify_run import question_changed
    from phaze.explore.recheck.service_recheck import ServiceRecheck
    from phaze.explore.request.search_progress import SilentProgress
    from phaze.inputs.recorded.recorded_request import service_of

    if samples < 0:
        raise InputError(f"samples is {samples}; it must be 0 or more")
    found = run_at_hand(run)
    served = found.document if isinstance(found.document, ServingDocument) else None
    document = served or _answer_of_run(found)
    report = question_changed(found.name, document, seed)
    if report is None and served is not None:
        asked = service_of(served, found.place)
        report = ServiceRecheck(
            found.name, asked, served, samples, seed, progress or SilentProgress()
        ).report()
    elif report is None:
        document = _answer_of_run(found)
        report = rechecked(found.name, found.request(), document, found.designs, samples, seed, progress)
    return Certified(report)


@speaks_python
def explain(
    run: Run, *, budgets: bool = False, time_limit: Quantity = "60s", progress: Progress | None = None
) -> Explained:
    """Explain why the answer of a run is what it is, as `dse explain RUN` does: what binds the winner, what its layers
    wait for, what more of anything would buy, why known chips are slower.

    `run`: a folder, or a result of `phaze.explore`. `budgets`: also search under budgets that are up to 10 % larger,
    each search for `time_limit`.

    Raises InputError where the run is of several workloads, was made by another verb, or was changed.
    """
    from phaze.explore.explaining.run_explanation import explain as explained
    from phaze.inputs.recorded.recorded_request import question_in
    from phaze.quantity import parse_time

    found = run_at_hand(run)
    document = _answer_of_run(found)
    request = question_in(found.request(), document, found.place, "phaze.explain")
    search_s = parse_time(time_limit, "--time-limit") if budgets else None
    return Explained(explained(request, document, progress, search_s))


@speaks_python
def pareto(
    run: Run,
    axes: str | Sequence[str] | None = None,
    *,
    reference: Sequence[float] | None = None,
) -> ParetoFront:
    """The evaluated designs of a run that no other one beats on two or more metrics, as `dse pareto` gives them.

    `run`: a folder, or a result of `phaze.explore` or `phaze.sweep`. `axes`: names of metrics (default: those that the
    run was made over, else power and throughput). `reference`: corner of the hypervolume, a value per metric
    (default: the worst of each).

    Raises InputError where a metric is not known, or the run has no evaluated designs.
    """
    from phaze.report.charts.frontier_export import axes_of_run, frontier, metrics_named

    found = run_at_hand(run)
    names = axes_of_run(found.document) if axes is None else axes
    metrics: list[Metric] = metrics_named(names.split(",") if isinstance(names, str) else names)
    return ParetoFront(found.name, frontier(list(found.designs), metrics, reference), found.designs)


@speaks_python
def report(
    run: Run | Sequence[Run], out: str | Path | None = None, *, progress: Progress | None = None
) -> Path:
    """Write a run as one HTML file, as `dse report` does, and return its path.

    `run`: a folder, or a result of another function; several of `phaze.explore` come side by side on one page. `out`:
    the file (default: report.html in the folder of the run).

    Raises InputError where there is neither a folder nor `out`, and for several of which one is of another function.
    """
    from phaze.explore.request.search_progress import SilentProgress
    from phaze.runs.atomic_files import check_writable, write_atomically

    runs = [run] if isinstance(run, str) or not isinstance(run, Sequence) else run
    found = [run_at_hand(one) for one in runs]
    if not found or (found[1:] and out is None):
        raise InputError("several runs on one page need a file: give out" if found else "no run is given")
    target = _target(found[0], out, "report.html")
    check_writable(target)
    content = runs_together(found) if found[1:] else answer_page(found[0], progress or SilentProgress())[0]
    write_atomically(target, content)
    return target


@speaks_python
def trace(
    run: Run, out: str | Path | None = None, *, workload: str | None = None, per_stage: bool = False
) -> Path:
    """Write one iteration of a run in time, as `dse trace` does, and return the file's path.

    `run`: a folder, or a result of `phaze.explore`. `out`: the file, .svg for a picture, else events in JSON for
    ui.perfetto.dev, compressed where the name ends in .gz (default: trace.json in the folder of the run). `workload`:
    which one, of several. `per_stage`: the pipeline with a design for every stage.

    Raises InputError where the run has no such iteration, and where there is neither a folder nor `out`.
    """
    from phaze.runs.atomic_files import check_writable, write_atomically

    found = run_at_hand(run)
    target = _target(found, out, "trace.json")
    check_writable(target)
    form = TraceFormat.SVG if target.suffix.lower() == ".svg" else TraceFormat.JSON
    text = iteration_in_time(found, form, workload, per_stage=per_stage)
    write_atomically(target, packed(text, target))
    return target


@speaks_python
def diff(first: Run, second: Run) -> Differed:
    """Say what differs between two runs of one verb, as `dse diff` does: question, files, versions, answer.

    Raises InputError where the two are of different verbs.
    """
    from phaze.runs.run_difference import compare_runs

    return Differed(compare_runs(run_at_hand(first).document, run_at_hand(second).document))


@speaks_python
def replay(run: Run, *, progress: Progress | None = None) -> Differed:
    """Ask again what a run was asked, of the same files, and compare, as `dse replay` does; see `same_answer`.

    Raises InputError where the question is not known or held a Python object, or an input has changed since.
    """
    from phaze.explore.request.search_progress import SilentProgress
    from phaze.inputs.recorded.repeated_question import repeat_question
    from phaze.runs.run_difference import compare_runs

    found = run_at_hand(run)
    again = repeat_question(found.document, found.place, progress or SilentProgress())
    return Differed(compare_runs(found.document, again.document))


def _answer_of_run(found: RunAtHand) -> ResultDocument:
    """The result document. Raises InputError where the run was made by another verb than run and evaluate."""
    from phaze.explore.documents.result_document import ResultDocument

    if not isinstance(found.document, ResultDocument):
        raise InputError(f"{found.place} was not made by dse run")
    return found.document


def _target(found: RunAtHand, out: str | Path | None, name: str) -> Path:
    """The file to write. Raises InputError where nothing says where."""
    if out is not None:
        return Path(out)
    if found.folder is None:
        raise InputError("the result is not kept in a folder, so give --out, the file to write")
    return (found.folder if found.folder.is_dir() else found.folder.parent) / name
