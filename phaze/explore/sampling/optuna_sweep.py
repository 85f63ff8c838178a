"""Sampling the design space with Optuna: no proof, but any objectives, and a study that lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from phaze.errors import InfeasibleError, InputError
from phaze.explore.documents.result_document import Design
from phaze.explore.evaluation.design_builder import out_of_memory
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.task_costs import check_measured
from phaze.explore.request.design_metrics import Metric
from phaze.explore.request.explore_request import Task, only_on_given_chips
from phaze.explore.request.search_progress import Progress
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.explore.sampling.candidate_scope import CandidateScope, SampledPoint
from phaze.explore.sampling.claim_board import LEASE_S, SharedEvaluation
from phaze.explore.sampling.design_assessor import Assessor, RememberedFigures, Row
from phaze.explore.sampling.sampled_study import (
    BATCH,
    AskedTrial,
    BatchedStudy,
    Sampler,
    TrialAnswer,
    Values,
    is_feasible,
)
from phaze.explore.sampling.shared_study import StudyMeeting
from phaze.explore.sampling.space_parameters import parameters
from phaze.explore.sampling.study_record import StudyPlace, StudyRecord, evaluation_identity, study_identity
from phaze.explore.sampling.study_storage import hang_up, open_storage, opening, reaching
from phaze.scheduling.effort import LimitsOver

Assess = Callable[[Sequence[int]], Iterator[Row]]
_NUMBER = "candidate"  # user attribute: the number of a trial's candidate in the whole grid of the space


@dataclass(frozen=True)
class SweepPlan:
    """Plan of a sweep: what, how, and where the study is kept. `trials` counts those of earlier runs.

    `resume`: whether a study that has trials is continued; if not, it is refused. `join`: continue or begin it
    together with other hosts. `batch` trials are asked together, so at most that many workers have something to do.
    """

    task: Task
    candidates: Candidates
    objectives: tuple[Metric, ...]
    trials: int
    place: StudyPlace
    sampler: Sampler = Sampler.TPE
    seed: int = 0
    resume: bool = False
    join: bool = False
    batch: int = BATCH

    def __post_init__(self) -> None:
        """Raise InputError for plans that only given chips are asked for."""
        if (why := only_on_given_chips(self.task.plans)) is not None:
            raise InputError(why)


@dataclass(frozen=True)
class SweepResult:
    """Rows of the design table in the order found, the frontier among them, and how many trials there were."""

    designs: tuple[Row, ...]
    frontier: tuple[Row, ...]
    trials: int
    infeasible: int


@dataclass
class Sweep:
    """One sweep, new or continued; whatever its `resources`, the study is the same.

    `lease_s`: after how long without a sign of life other hosts take a host for dead. `share`: what this one did.

    Raises InputError where the study cannot be opened or is another's.
    """

    plan: SweepPlan
    progress: Progress
    stop: Callable[[], bool] = lambda: False
    resources: SearchResources = ALONE
    lease_s: float = LEASE_S
    share: SharedEvaluation | None = None
    _known: dict[int, Row] = field(default_factory=dict)

    def run(self) -> SweepResult:
        """Sample until `plan.trials` trials are recorded or `stop` says so.

        Raises InputError where the chips do not have the rung, InfeasibleError where nothing keeps the budgets or not
        one trial was feasible, WorkerLostError where those that evaluate have gone, StorageLostError where the storage
        went away.
        """
        check_measured(self.plan.task, self.plan.candidates.space)
        try:
            with reaching(str(self.plan.place)):
                return self._run()
        finally:
            if "_meeting" in vars(self):
                hang_up(self._meeting.storage)

    def _run(self) -> SweepResult:
        if not any(len(block) for block in self.plan.candidates.blocks()):
            raise self.plan.candidates.none_left()
        study = self._study  # first, as it may refuse
        self._recall()
        first = len(self._record.trials) // self.plan.batch * self.plan.batch
        before = self._record.trials[:first]
        study.replay(before, [self._values(trial.user_attrs) for trial in before])
        assess = self._together() if self.plan.join else self._alone
        while first < self.plan.trials and self._batch(assess, self.plan.trials - first):
            first += self.plan.batch
            self._record.flush()
        self._record.flush(last=True)
        return self._result()

    def design(self, row: Row) -> Design:
        """Everything that is reported of a row of the result."""
        return self.assessor.design(row[_NUMBER], row)

    @cached_property
    def assessor(self) -> Assessor:
        """Evaluator of candidates by their number in the whole grid of the space."""
        return Assessor(self.plan.task, self._scope.grid, self.stop)

    @cached_property
    def _remembered(self) -> RememberedFigures:
        return RememberedFigures(self.assessor, self.resources.store)

    @cached_property
    def _scope(self) -> CandidateScope:
        return CandidateScope(self.plan.candidates)

    @cached_property
    def _meeting(self) -> StudyMeeting:
        with opening(str(self.plan.place)):
            return StudyMeeting(self.plan.place, open_storage(self.plan.place.storage), self.lease_s)

    @cached_property
    def _record(self) -> StudyRecord:
        plan = self.plan
        identity = study_identity(
            plan.task, plan.candidates, plan.objectives, plan.sampler, plan.seed, plan.batch
        )
        if plan.join:
            return self._meeting.record(plan.objectives, identity)
        return StudyRecord.open(plan.place, self._meeting.storage, plan.objectives, identity)

    def _alone(self, numbers: Sequence[int]) -> Iterator[Row]:
        """Figures of some candidates, by whoever works for this sweep."""
        return self._remembered.rows(numbers, lambda new: self.resources.executor.map(self.assessor, new))

    def _together(self) -> Assess:
        """How figures are found where other hosts look for them, too."""
        of = evaluation_identity(self.plan.task, self.plan.candidates)
        self.share = self._meeting.evaluations(of, self._alone, self.resources.executor.workers, self.stop)
        return self.share.assess

    @cached_property
    def _study(self) -> BatchedStudy:
        return BatchedStudy(
            parameters(self.plan.candidates.space),
            [metric.maximise for metric in self.plan.objectives],
            self.plan.sampler,
            self.plan.seed,
            self.plan.batch,
        )

    def _recall(self) -> None:
        """Know again what earlier runs have evaluated."""
        if self._record.trials and not (self.plan.resume or self.plan.join):
            raise InputError(
                f"the {self.plan.place} holds {len(self._record.trials)} trials; add --resume to continue it, "
                "--join to do so together with other hosts, or choose another --study"
            )
        for trial in self._record.trials:
            if "memory_missed" in trial.user_attrs:
                figures = dict(trial.user_attrs)
                self._known[figures.pop(_NUMBER)] = figures

    def _batch(self, assess: Assess, room: int) -> bool:
        """Ask and tell a batch, at most `room` trials of it; whether it was not stopped."""
        asked = self._study.ask(room)
        points = self._scope.points([a.fields for a in asked])
        new = dict.fromkeys(p.number for p in points if p.allowed and p.number not in self._known)
        found = assess(list(new))
        for trial, point in zip(asked, points, strict=True):
            if self.stop():
                return False
            if point.number in new and point.number not in self._known:
                if (row := _found(found)) is None:
                    return False
                self._known[point.number] = (
                    self._figures(point.number) | self.assessor.costs(point.number, row) | row
                )
            self._tell(trial, point)
        return True

    def _figures(self, number: int) -> Row:
        return {"id": self._scope.grid.architecture(number).name, **self.assessor.size(number)}

    def _tell(self, asked: AskedTrial, point: SampledPoint) -> None:
        figures = self._known.get(point.number) if point.allowed else None
        attributes = {_NUMBER: point.number, **(figures or self.assessor.size(point.number))}
        missed = {**point.missed, "memory": (figures or {}).get("memory_missed", 0.0)}
        missed |= self.assessor.drawn_missed(figures or {})
        answer = TrialAnswer(self._values(attributes), missed, attributes)
        trial = self._study.tell(asked.trial, answer)
        self._record.add(trial)
        feasible = sum("throughput_samples_per_s" in row for row in self._known.values())
        designs = "feasible design" if feasible == 1 else "feasible designs"
        self.progress.update("sweep", trial.number + 1, self.plan.trials, f"{feasible} {designs} evaluated")

    def _values(self, attributes: Row) -> Values:
        return tuple(_value(metric, attributes) for metric in self.plan.objectives)

    def _result(self) -> SweepResult:
        trials = self._record.trials
        feasible = [t for t in trials if is_feasible(t)]
        if trials and not feasible:
            raise self._nothing()
        rows = tuple({t.user_attrs[_NUMBER]: self._row(t.user_attrs) for t in feasible}.values())
        frontier = non_dominated(rows, self.plan.objectives)
        return SweepResult(rows, frontier, len(trials), len(trials) - len(feasible))

    def _row(self, attributes: Row) -> Row:
        """A row of the design table: the figures, then the hardware fields."""
        figures = {name: value for name, value in attributes.items() if name != "memory_missed"}
        return {**figures, **self._scope.grid.architecture(attributes[_NUMBER]).fields}

    def _nothing(self) -> InfeasibleError:
        """Why nothing was feasible: the budgets, or the memory."""
        found = f"none of {len(self._record.trials)} sampled designs is feasible"
        if not self._known:
            misses = [t.constraints for t in self._record.trials]
            names = [name for name in misses[0] if any(m[name] > 0 for m in misses)]
            return InfeasibleError(f"{found}: each misses {' or '.join(names)}; more --trials may find one")
        fitting = [row for row in self._known.values() if row.get("memory_missed", 1.0) <= 0]
        limit_w = self.plan.candidates.budgets.drawn_limit_w
        if fitting and limit_w is not None:
            return InfeasibleError(
                f"{found}: all that fit in memory draw more than {limit_w:g} W while "
                f"{self.plan.task.workload.name} runs; more --trials, or lower clocks in the space, may find one"
            )
        table = self._scope.table(list(self._known))
        error = out_of_memory(Evaluator(self.plan.task, table), f"space {self.plan.candidates.space.name}")
        return InfeasibleError(f"{found}; {error}", error.shortfalls)


def non_dominated(rows: Sequence[Row], objectives: Sequence[Metric]) -> tuple[Row, ...]:
    """The rows that no other one equals or beats on every objective, in order; of equals the first."""
    points = [[m.value(row) * (1 if m.maximise else -1) for m in objectives] for row in rows]

    def beaten(i: int) -> bool:
        return any(
            all(a >= b for a, b in zip(other, points[i], strict=True)) and (other != points[i] or j < i)
            for j, other in enumerate(points)
            if j != i
        )

    return tuple(row for i, row in enumerate(rows) if not beaten(i))


def _found(rows: Iterator[Row]) -> Row | None:
    """The next row; None where it was stopped while this process or other hosts were at it."""
    try:
        return next(rows, None)
    except LimitsOver:
        return None


def _value(metric: Metric, figures: Row) -> float | None:
    """A metric of a design; None where it takes an evaluation that was not made."""
    try:
        return metric.value(figures)
    except InputError:
        return None
