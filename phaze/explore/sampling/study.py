"""A study in memory, asked in fixed batches and told in the order of its trials.

A batch is asked before anything of it is told, whoever evaluates it, so that the study is the same with any number
of workers; and each batch seeds its own sampler, so that it is the same after an interruption.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from phaze.explore.sampling.parameters import Fields, Parameter, suggested
from phaze.explore.sampling.samplers import Sampler, check_sampler, make_sampler

BATCH = 8
"""Trials that are asked together, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial and the hardware fields it asks about."""

    trial: optuna.Trial
    fields: Fields


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to a trial.

    `values`: one per objective, None where it is not known because the design was not evaluated. `missed`: by how
    much each limit is missed, as a share of it; at most zero where it is kept. `attributes`: JSON data to keep.
    """

    values: tuple[float | None, ...]
    missed: Mapping[str, float]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def feasible(self) -> bool:
        """Whether every limit is kept."""
        return all(amount <= 0 for amount in self.missed.values())


@dataclass
class BatchedStudy:
    """Asks a sampler in batches of `batch`. Raises InputError where a package it needs is missing."""

    parameters: Sequence[Parameter]
    maximise: Sequence[bool]
    sampler: Sampler
    seed: int
    batch: int = BATCH

    def __post_init__(self) -> None:
        """Refuse a sampler that cannot do this."""
        check_sampler(self.sampler, len(self.maximise))

    @cached_property
    def _study(self) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return optuna.create_study(directions=directions(self.maximise))

    def replay(self, trials: Sequence[FrozenTrial]) -> None:
        """Take over whole batches of finished trials, before anything is asked."""
        for trial in trials:
            # Databases return attributes in any order; samplers take constraints in the order they find.
            trial.system_attrs = dict(sorted(trial.system_attrs.items()))
            self._study.add_trial(trial)

    def ask(self, most: int | None = None) -> list[Asked]:
        """The next batch, or the first `most` trials of it; the one before has to be told."""
        first = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = make_sampler(self.sampler, self.seed, first, self.parameters)
        return [self._asked() for _ in range(self.batch if most is None else min(self.batch, most))]

    def _asked(self) -> Asked:
        trial = self._study.ask()
        return Asked(trial, suggested(self.parameters, trial))

    def tell(self, trial: optuna.Trial, told: Told) -> FrozenTrial:
        """Finish a trial.

        Samplers rank trials that miss limits by how far they miss them. An objective nobody has evaluated gets the
        worst value seen so far, for the samplers that have to have one.
        """
        for name, amount in sorted(told.missed.items()):
            trial.set_constraint(name, amount)
        for key, value in told.attributes.items():
            trial.set_user_attr(key, value)
        values = [self._worst(k) if v is None else v for k, v in enumerate(told.values)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # CMA-ES says that it does not look at constraints
            return self._study.tell(trial, values)

    def _worst(self, objective: int) -> float:
        """The worst value of the feasible trials so far; before there is one, the worst there could be."""
        seen = [
            t.values[objective]
            for t in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            if is_feasible(t)
        ]
        if self.maximise[objective]:
            return min(seen, default=0.0)
        return max(seen, default=math.inf)


def directions(maximise: Sequence[bool]) -> list[StudyDirection]:
    """The directions of a study's objectives."""
    return [StudyDirection.MAXIMIZE if up else StudyDirection.MINIMIZE for up in maximise]


def is_feasible(trial: FrozenTrial) -> bool:
    """Whether a finished trial kept every limit."""
    return all(amount <= 0 for amount in trial.constraints.values())
