"""Optuna's samplers as searches over the oracle: the code of `dse sweep` with the oracle's merit as its objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze.explore.documents.strategy_report import Stop, StrategyReport
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.request.search_progress import Progress
from phaze.explore.sampling.candidate_scope import CandidateScope, SampledPoint, number_of
from phaze.explore.sampling.sampled_study import BATCH, AskedTrial, BatchedStudy, Sampler, TrialAnswer
from phaze.explore.sampling.space_parameters import parameters
from phaze.explore.strategies.search_strategy import SearchBudget, report_search


@dataclass(frozen=True)
class SampledSearch:
    """One of Optuna's samplers, in batches as in `dse sweep`, on a study in memory.

    `patience`: batches without a single new architecture after which the search ends by itself. `batch`: trials
    that are asked together.
    """

    sampler: Sampler
    patience: int = 64
    batch: int = BATCH
    seeded: bool = True

    @property
    def name(self) -> str:
        """The sampler's; random sampling, with replacement as Optuna does it, is not the `random` search."""
        return "optuna-random" if self.sampler is Sampler.RANDOM else self.sampler.value

    def run(self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress) -> StrategyReport:
        """Search until the budget is spent or the sampler finds nothing new.

        Raises InputError where a package that the sampler needs is missing.
        """
        scope = CandidateScope(oracle.candidates)
        study = BatchedStudy(parameters(oracle.candidates.space), [True], self.sampler, seed, self.batch)
        idle = trials = 0
        while idle < self.patience and budget.room(oracle):
            known, asked = len(oracle.history), study.ask()
            points = scope.points([a.fields for a in asked])
            for trial, told in _answers(oracle, budget, asked, points):
                study.tell(trial.trial, told)
            trials += len(asked)
            idle = 0 if len(oracle.history) > known else idle + 1
            progress.update(self.name, len(oracle.history), budget.evaluations, "architectures evaluated")
        stopped = budget.stop(oracle) or Stop.CONVERGED
        return report_search(self, oracle, seed, stopped, {"trials": float(trials)})


def _answers(
    oracle: Oracle, budget: SearchBudget, asked: Sequence[AskedTrial], points: Sequence[SampledPoint]
) -> list[tuple[AskedTrial, TrialAnswer]]:
    """Answers to a batch, as far as the budget reaches."""
    allowed = [k for k, point in enumerate(points) if point.allowed]
    numbers = {k: number_of(oracle.candidates, asked[k].fields) for k in allowed}
    found = {e.number: e for e in budget.spend(oracle, list(dict.fromkeys(numbers.values())))}
    return [
        (trial, _told(point, found[numbers[k]] if k in numbers else None))
        for k, (trial, point) in enumerate(zip(asked, points, strict=True))
        if k not in numbers or numbers[k] in found
    ]


def _told(point: SampledPoint, evaluation: Evaluation | None) -> TrialAnswer:
    """The merit of a design; none where a budget is missed or a workload does not fit in memory."""
    fits = evaluation is not None and evaluation.value > 0
    memory = 1.0 if evaluation is not None and not fits else 0.0
    value = evaluation.value if evaluation is not None and fits else None
    return TrialAnswer((value,), {**point.missed, "memory": memory})
