"""Sampling the design space with Optuna: no proof, but any objectives and any evaluator.

Trials are asked in fixed batches and told in their order, and each batch seeds its own sampler, so that a
sweep that was stopped and resumed visits the same designs as one that ran through.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import TrialState

from phaze.errors import InfeasibleError, InputError
from phaze.explore.document import Design
from phaze.explore.metrics import Metric
from phaze.explore.progress import Progress

BATCH = 8
_CONSTRAINT = "missed limits"  # how far a design misses its limits; at most zero where it keeps them
Choice = Mapping[str, Any]


class Sampler(StrEnum):
    """How the next designs are chosen."""

    TPE = "tpe"
    RANDOM = "random"
    NSGA2 = "nsga2"


class Evaluator(Protocol):
    """Turns hardware fields into a design with its best placement; InfeasibleError where it fits no limit."""

    def design(self, fields: Mapping[str, Any]) -> Design:
        """Evaluate one architecture."""


@dataclass(frozen=True)
class SweepPlan:
    """What to sweep.

    `parameters` maps a parameter to its choices in ascending order, each a mapping of the hardware fields
    it sets (several at once for tied fields such as an HBM option). `journal` is the study's file.
    """

    parameters: Mapping[str, Sequence[Choice]]
    objectives: Sequence[Metric]
    trials: int
    journal: Path
    sampler: Sampler = Sampler.TPE
    seed: int = 0


@dataclass(frozen=True)
class SweepResult:
    """The feasible designs in the order found, the frontier among them, and how many trials there were."""

    designs: tuple[Design, ...]
    frontier: tuple[Design, ...]
    trials: int
    infeasible: int


def sweep(
    evaluator: Evaluator,
    plan: SweepPlan,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
) -> SweepResult:
    """Run (or continue) the study until `plan.trials` trials are told or `stop` says so.

    Raises InfeasibleError where not one trial was feasible, InputError where the journal holds another study.
    """
    study = _study(plan)
    answers = _Answers(evaluator, _seen(study))
    for batch in _batches(study, plan):
        for trial in batch:
            if stop():
                return _result(study, plan, answers)
            _evaluate(study, plan, answers, trial)
            done = trial.number + 1
            progress.update("sweep", done, plan.trials, f"{answers.feasible} feasible designs")
    return _result(study, plan, answers)


@dataclass
class _Answers:
    """Evaluations by hardware fields: a design, or by how much the limits are missed. Duplicates are free."""

    evaluator: Evaluator
    known: dict[str, Design | float]
    last_failure: InfeasibleError | None = field(default=None)

    @property
    def feasible(self) -> int:
        return sum(isinstance(answer, Design) for answer in self.known.values())

    def get(self, fields: Mapping[str, Any]) -> Design | float:
        key = json.dumps(fields, sort_keys=True, default=str)
        if key not in self.known:
            try:
                self.known[key] = self.evaluator.design(fields)
            except InfeasibleError as error:
                self.last_failure = error
                self.known[key] = _violation(error)
        return self.known[key]


def _study(plan: SweepPlan) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [StudyDirection.MAXIMIZE if m.maximise else StudyDirection.MINIMIZE for m in plan.objectives]
    storage = JournalStorage(JournalFileBackend(str(plan.journal)))
    study = optuna.create_study(
        storage=storage, study_name="sweep", directions=directions, load_if_exists=True
    )
    fingerprint = json.dumps(
        [[m.name for m in plan.objectives], plan.sampler, plan.seed, _plain(plan.parameters)], default=str
    )
    if study.user_attrs.setdefault("plan", fingerprint) != fingerprint:
        raise InputError(f"{plan.journal} holds a sweep with other objectives, sampler, seed or space")
    study.set_user_attr("plan", fingerprint)
    return study


def _batches(study: optuna.Study, plan: SweepPlan) -> Iterator[list[optuna.Trial]]:
    """First the trials an interruption left unfinished, then new ones, `BATCH` at a time."""
    left = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.RUNNING]
    if left:
        study.sampler = _sampler(plan, left[0].number // BATCH)
        batch = [optuna.Trial(study, t._trial_id) for t in left]
        yield [_asked(trial, plan) for trial in batch]
    while (count := len(study.get_trials(deepcopy=False))) < plan.trials:
        # A batch always ends at a multiple of BATCH, wherever an interruption cut it.
        size = min(BATCH - count % BATCH, plan.trials - count)
        study.sampler = _sampler(plan, count)
        yield [_asked(study.ask(), plan) for _ in range(size)]


def _asked(trial: optuna.Trial, plan: SweepPlan) -> optuna.Trial:
    """The trial with a choice (by position, so that the sampler knows their order) for every parameter."""
    for name, choices in plan.parameters.items():
        trial.suggest_int(name, 0, len(choices) - 1)
    return trial


def _evaluate(study: optuna.Study, plan: SweepPlan, answers: _Answers, trial: optuna.Trial) -> None:
    fields: dict[str, Any] = {}
    for name, choices in plan.parameters.items():
        fields |= choices[trial.params[name]]
    answer = answers.get(fields)
    trial.set_user_attr("fields", json.dumps(fields, sort_keys=True, default=str))
    if isinstance(answer, Design):
        trial.set_user_attr("design", answer.model_dump_json())
        values = [metric.value(design_row(answer)) for metric in plan.objectives]
    else:
        # Worst possible values; the samplers rank infeasible trials by their violation alone.
        values = [0.0 if metric.maximise else float("inf") for metric in plan.objectives]
    trial.set_constraint(_CONSTRAINT, 0.0 if isinstance(answer, Design) else answer)
    study.tell(trial, values)


def design_row(design: Design) -> dict[str, Any]:
    """One design as a flat row: figures of its first workload, then the hardware fields."""
    result = next(iter(design.workloads.values()))
    return {
        "id": design.id,
        "throughput_samples_per_s": result.throughput_samples_per_s,
        "tdp_w": design.tdp_w,
        "area_mm2": design.area_mm2,
        "energy_per_sample_j": result.energy_per_iteration_j / result.global_batch,
        "memory_bytes": result.memory_bytes,
        "mfu": result.mfu,
        **design.architecture,
    }


def non_dominated(designs: Sequence[Design], objectives: Sequence[Metric]) -> tuple[Design, ...]:
    """The designs that no other one equals or beats on every objective, in order; of equals the first."""
    points = [[m.value(design_row(d)) * (1 if m.maximise else -1) for m in objectives] for d in designs]

    def beaten(i: int) -> bool:
        return any(
            all(a >= b for a, b in zip(other, points[i], strict=True)) and (other != points[i] or j < i)
            for j, other in enumerate(points)
            if j != i
        )

    return tuple(design for i, design in enumerate(designs) if not beaten(i))


def _result(study: optuna.Study, plan: SweepPlan, answers: _Answers) -> SweepResult:
    trials = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
    designs: dict[str, Design] = {}
    for trial in trials:
        answer = answers.known[trial.user_attrs["fields"]]
        if isinstance(answer, Design):
            designs.setdefault(trial.user_attrs["fields"], answer)
    if not designs and trials:
        failure = answers.last_failure
        raise InfeasibleError(
            f"none of {len(trials)} sampled designs is feasible"
            + (f"; the last: {failure}" if failure else ""),
            failure.shortfalls if failure else (),
        )
    found = tuple(designs.values())
    infeasible = sum(trial.constraints[_CONSTRAINT] > 0 for trial in trials)
    return SweepResult(found, non_dominated(found, plan.objectives), len(trials), infeasible)


def _seen(study: optuna.Study) -> dict[str, Design | float]:
    """What earlier runs of the study have evaluated."""
    known: dict[str, Design | float] = {}
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.COMPLETE:
            attrs = trial.user_attrs
            design = attrs.get("design")
            known[attrs["fields"]] = (
                Design.model_validate_json(design) if design else trial.constraints[_CONSTRAINT]
            )
    return known


def _sampler(plan: SweepPlan, first: int) -> optuna.samplers.BaseSampler:
    """A sampler whose randomness depends on the seed and the first trial of the batch alone."""
    seed = (plan.seed * 1_000_003 + first) % 2**32
    match plan.sampler:
        case Sampler.RANDOM:
            return optuna.samplers.RandomSampler(seed=seed)
        case Sampler.NSGA2:
            return optuna.samplers.NSGAIISampler(seed=seed)
        case Sampler.TPE:
            return optuna.samplers.TPESampler(seed=seed)


def _violation(error: InfeasibleError) -> float:
    """How far a design misses its limits: the sum of demand / limit - 1, and 1 where that is unknown."""
    missed = sum(max(0.0, s.demand / s.limit - 1) for s in error.shortfalls if s.limit > 0)
    return missed or 1.0


def _plain(parameters: Mapping[str, Sequence[Choice]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [dict(choice) for choice in choices] for name, choices in parameters.items()}
