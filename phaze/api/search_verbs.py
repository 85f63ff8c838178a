"""Look for architectures: `phaze.explore` with a proof, `phaze.explore_service` for a service, `phaze.sweep` by
samples; and what they come back with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from phaze.api.python_arguments import in_python
from phaze.api.result_tables import Records, Table, columns_of, dataframe, design_rows, known_row
from phaze.api.self_display import Shown

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.explore.answers.answer_parts import Answer
    from phaze.explore.documents.result_document import (
        Certificate,
        Comparison,
        Design,
        FrontierPoint,
        ResultDocument,
        ScorePoint,
    )
    from phaze.explore.documents.serving_document import (
        NextService,
        ServedChip,
        ServingDocument,
        ServingFigures,
        TwoChips,
    )
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.request.explore_request import ExploreRequest
    from phaze.explore.request.search_progress import Progress
    from phaze.explore.sampling.optuna_sweep import SweepPlan, SweepResult
    from phaze.explore.services.found_service import FoundService
    from phaze.inputs.options.search_options import RunOptions, SweepOptions


_KEYS = ("id", "score", "tdp_w", "area_mm2", "throughput_samples_per_s", "mfu", "energy_per_sample_j")
_PLACED = ("architecture", "workload", "tdp_w", "area_mm2", "throughput_samples_per_s", "mfu")
_KNOWN = ("name", "tdp_w", "area_mm2", "clock_hz", "throughput_samples_per_s", "mfu")


@dataclass(frozen=True, repr=False)
class Explored(Shown):
    """The best architecture of a space, with its certificate, the frontier and everything that was evaluated.

    `document` is what `dse run --json` prints; `request`: what was asked; `folder`: the run
    directory, where one was asked for.
    """

    document: ResultDocument
    answer: Answer
    request: ExploreRequest
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
        from phaze.runs.run_directory import flat_row

        portfolio = self.document.portfolio
        points: tuple[FrontierPoint | ScorePoint, ...]
        points = tuple(portfolio.frontier) if portfolio else tuple(self.document.frontier)
        return Table("Frontier", points, columns_of([flat_row(point) for point in points]), _KEYS)

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
        from phaze.report.terminal.frontier_tables import frontier_of
        from phaze.report.terminal.question_tables import score_table
        from phaze.report.terminal.search_tables import answer_sentence

        yield in_python(answer_sentence(self.document))
        if self.document.portfolio:
            yield score_table(self.document.portfolio, self.best.id)
        elif self.document.frontier:
            yield frontier_of(self.document)


@dataclass(frozen=True, repr=False)
class ExploredService(Shown):
    """The chip that serves a model best and its plan, with a proof.

    `found` holds the document, which is what `dse run --serve --json` prints, the plan, and the space of its plans.
    `folder`: the run directory, where one was asked for.
    """

    found: FoundService
    folder: Path | None = None

    @property
    def document(self) -> ServingDocument:
        """What was asked, the chip, its plan, its proof."""
        return self.found.document

    @property
    def chip(self) -> ServedChip:
        """The winner: architecture, area, power."""
        return _told(self.document.chip)

    @property
    def best(self) -> ServingFigures:
        """Its plan: pools, batches, latencies and rates."""
        return self.document.best

    @property
    def certificate(self) -> Certificate:
        """How far any other chip and plan of the space could be better."""
        return _told(self.document.certificate)

    @property
    def two_chips(self) -> TwoChips | None:
        """One chip for prefill and one for decode, where two were asked for: what they are, buy and must save."""
        return self.document.two_chips

    @property
    def next_best(self) -> Table[NextService]:
        """The best chips after it, each of another kind."""
        chips = tuple(self.document.next_best or ())
        columns = columns_of([chip.model_dump() for chip in chips])
        return Table("Next best", chips, columns, ("id", "tdp_w", "area_mm2", "tokens_per_s", "devices"))

    def to_dataframe(self) -> pd.DataFrame:
        """A row for every pool as a pandas data frame."""
        return dataframe(columns_of([pool.model_dump(mode="json") for pool in self.best.pools]))

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.plans.service_tables import service_sentence, two_chips_blocks
        from phaze.report.terminal.plans.serving_tables import serving_tables

        yield in_python(service_sentence(self.document, self.chip, self.certificate))
        yield from serving_tables(self.found.plan, self.found.space, None, self.document.cost)
        yield from two_chips_blocks(self.document, self.found, self.certificate)


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """What an Optuna study came to: `result` as rows, `plan` as it was asked.

    `document` is what `dse sweep --json` prints; `folder`: the run directory, where one was asked for.
    """

    result: SweepResult
    plan: SweepPlan
    document: SweepDocument
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
        from phaze.report.terminal.strategy_tables import sweep_table

        result = self.result
        yield sweep_table(result.frontier, self.plan.objectives, result.trials, result.infeasible)


def explore(options: RunOptions, progress: Progress | None = None) -> Explored:
    """Find the best architecture and placement of a design space, with a proof, as `dse run` does.

    `workload`: a built-in name, a file, a workload at hand, or several of them for one common design. Budgets
    such as `power` and `area` are texts with units or SI numbers (areas in mm2). `plans`: the space of plans that is
    searched beside the chips, as a `framework` runs them. `out`: keep a run directory there; without it nothing is
    written. `workers` processes, or the Dask cluster at `executor`
    (dask://HOST:PORT), do the work; they change no answer. `progress` is told what is done.

    Raises InputError where an argument is not valid, InfeasibleError where nothing keeps the budgets or fits in
    memory, OutOfTimeError where the time limit passes before anything is known.
    """
    from phaze.explore.answers.main_job import explore as searched
    from phaze.explore.answers.main_job import resolve_strategy
    from phaze.explore.request.search_resources import SearchResources
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.run_inputs import make_request
    from phaze.runs.executors.open_executor import open_executor
    from phaze.runs.run_directory import write_run

    request = make_request(options)
    with (
        _place(options.out, progress, resume=options.resume) as (folder, log),
        open_executor(options.workers, options.executor) as team,
    ):
        answer = searched(request, log, resources=SearchResources(team))
        document = record_question(answer.document, "run", options)
        if folder is not None:
            write_run(folder, document, answer.designs)
    return Explored(document, answer, resolve_strategy(request), folder)


def explore_service(options: RunOptions, progress: Progress | None = None) -> ExploredService:
    """Find the chip and the plan that serve a model best, with a proof, as `dse run --serve` does.

    `serve`: the load: saturated (default), rate=REQUESTS_PER_S or concurrency=CLIENTS. `objective`: throughput,
    tokens_per_s_per_w or cost_per_million_tokens. `ttft` and `tpot`: latency targets. `out`: keep a run directory
    there. `progress` is told what is done.

    Raises InputError where an argument is not valid, InfeasibleError where nothing keeps the budgets or the targets,
    OutOfTimeError where the time limit passes before anything is known.
    """
    from phaze.explore.request.search_progress import Clock, SilentProgress
    from phaze.explore.services.service_answer import find_service
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.run_inputs import make_service
    from phaze.runs.run_directory import kept_answer

    asked = options if options.serve is not None else replace(options, serve="saturated")
    request = make_service(asked)
    with kept_answer(asked.out) as keep:
        found = find_service(request, progress or SilentProgress(), Clock(request.time_limit_s), asked.seed)
        document = record_question(found.document, "run", asked)
        keep(document)
    return ExploredService(replace(found, document=document), asked.out)


def sweep(options: SweepOptions, progress: Progress | None = None) -> Swept:
    """Sample the design space with Optuna, as `dse sweep` does.

    `plans` and `framework` as in `explore`. The study lasts where `out` names a run directory or `storage` a
    database; otherwise it is kept in memory.
    `workers` processes, or the Dask cluster at `executor`, evaluate; with `join` any number of hosts that ask the
    same share the database and the work. None of it changes an answer.

    Raises InputError where an argument is not valid or the study cannot be opened, InfeasibleError where nothing
    keeps the budgets or no trial was feasible.
    """
    from phaze.explore.documents.sweep_document import sweep_document
    from phaze.explore.request.search_resources import SearchResources
    from phaze.explore.sampling.optuna_sweep import Sweep
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.sweep_inputs import JOURNAL, make_plan
    from phaze.runs.executors.open_executor import open_executor
    from phaze.runs.run_directory import write_sweep

    started = datetime.now(UTC)
    plan = make_plan(options, options.storage or (options.out / JOURNAL if options.out else None))
    with (
        _place(options.out, progress, resume=options.resume or options.join) as (folder, log),
        open_executor(options.workers, options.executor) as team,
    ):
        sampling = Sweep(plan, log, resources=SearchResources(team))
        result = sampling.run()
        document = record_question(sweep_document(sampling, result, started), "sweep", options)
        if folder is not None:
            write_sweep(folder, document, result)
    return Swept(result, plan, document, folder)


@contextmanager
def _place(
    out: Path | None, progress: Progress | None, *, resume: bool
) -> Iterator[tuple[Path | None, Progress]]:
    """The run directory with its log, where one was asked for, and the progress that is reported to."""
    from phaze.explore.request.search_progress import SilentProgress
    from phaze.runs.run_directory import run_directory
    from phaze.runs.run_log import logged_progress

    report = progress or SilentProgress()
    if out is None:
        yield None, report
        return
    with run_directory(out, resume=resume) as folder, logged_progress(folder, report) as log:
        yield folder, log


_Told = TypeVar("_Told")


def _told(part: _Told | None) -> _Told:
    """Part of a document that every service found has."""
    if part is None:
        msg = "a service without a chip"
        raise ValueError(msg)
    return part
