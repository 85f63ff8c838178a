"""A study in memory, asked in fixed batches and given results in the order of its trials, and Optuna's samplers by
name; the randomness of a batch follows from the seed and its first trial.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from phaze.errors import InputError
from phaze.explore.sampling.space_parameters import Fields, Parameter, suggested


class Sampler(StrEnum):
    """How the next designs are chosen.

    `gp`, Bayesian optimisation with a Gaussian process and the probability of keeping the limits, stands in for
    searches of Spotlight's kind. `gp` and `cmaes` need packages that are extras.
    """

    TPE = "tpe"
    RANDOM = "random"
    NSGA2 = "nsga2"
    GP = "gp"
    CMAES = "cmaes"


NEEDS = {Sampler.GP: ("torch", "scipy"), Sampler.CMAES: ("cmaes",)}
"""Packages that a sampler needs beside Optuna."""


def check_sampler(sampler: Sampler, objectives: int) -> None:
    """Raises InputError where a package is missing or the sampler cannot weigh that many objectives."""
    for package in NEEDS.get(sampler, ()):
        if find_spec(package) is None:
            raise InputError(
                f"the {sampler} sampler needs the package {package}: pip install '.[{sampler}]' in a clone of phaze"
            )
    if sampler is Sampler.CMAES and objectives > 1:
        raise InputError(f"the cmaes sampler takes one objective, not {objectives}; nsga2 takes several")


def make_sampler(sampler: Sampler, seed: int, first: int, parameters: Sequence[Parameter]) -> BaseSampler:
    """The sampler of the batch that begins with trial `first`."""
    mixed = (seed * 1_000_003 + first) % 2**32
    with warnings.catch_warnings():
        # Options that Optuna may still change: they cannot alter a study that exists.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match sampler:
            case Sampler.RANDOM:
                return RandomSampler(seed=mixed)
            case Sampler.NSGA2:
                return _SortedParents(seed=mixed)
            case Sampler.TPE if any(p.conditional for p in parameters):
                return TPESampler(seed=mixed, multivariate=True, group=True)
            case Sampler.TPE:
                return TPESampler(seed=mixed)
            case Sampler.GP:
                return GPSampler(seed=mixed, deterministic_objective=True, warn_independent_sampling=False)
            case Sampler.CMAES:
                return CmaEsSampler(seed=mixed, warn_independent_sampling=False)


class _SortedParents(NSGAIISampler):
    """NSGA-II whose parents come in the order of trials whether a study has run through or was resumed."""

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)


BATCH = 8
"""Trials that are asked together, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True)
class AskedTrial:
    """A trial and the hardware fields it asks about."""

    trial: optuna.Trial
    fields: Fields


Values = tuple[float | None, ...]
"""One value per objective; None where nobody has evaluated it."""


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """The answer to a trial.

    `values`: one per objective, None where it is not known because the design was not evaluated. `missed`: by how
    much each limit is missed, as a share of it; at most zero where it is kept. `attributes`: JSON data to keep.
    """

    values: Values
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

    def replay(self, trials: Sequence[FrozenTrial], values: Sequence[Values]) -> None:
        """Take over whole batches of finished trials, before anything is asked; `values`: what each was told."""
        for trial, told in zip(trials, values, strict=True):
            # Databases return attributes in any order; samplers take constraints in the order they find.
            trial.system_attrs = dict(sorted(trial.system_attrs.items()))
            self._study.add_trial(_with_values(trial, self._sampled(told, is_feasible(trial))))

    def ask(self, most: int | None = None) -> list[AskedTrial]:
        """The next batch, or the first `most` trials of it; the results of the one before have to be recorded."""
        first = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = make_sampler(self.sampler, self.seed, first, self.parameters)
        return [self._asked() for _ in range(self.batch if most is None else min(self.batch, most))]

    def _asked(self) -> AskedTrial:
        trial = self._study.ask()
        return AskedTrial(trial, suggested(self.parameters, trial))

    def tell(self, trial: optuna.Trial, told: TrialAnswer) -> FrozenTrial:
        """Finish a trial; the trial to keep: true values, or none and the state `PRUNED` where one is not known.

        Samplers rank trials that miss limits by how far they miss them. They have to have numbers: to them, an
        objective that nobody has evaluated has the worst value seen so far.
        """
        for name, amount in sorted(told.missed.items()):
            trial.set_constraint(name, amount)
        for key, value in told.attributes.items():
            trial.set_user_attr(key, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # CMA-ES says that it does not look at constraints
            finished = self._study.tell(trial, self._sampled(told.values, told.feasible))
        return _with_values(finished, told.values)

    def _sampled(self, values: Values, feasible: bool) -> list[float]:
        """The values of a trial as the sampler gets them."""
        blind = (
            self.sampler is Sampler.CMAES and not feasible
        )  # it has no constraints, so a good value would lure it
        return [self._worst(k) if v is None or blind else v for k, v in enumerate(values)]

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


def _with_values(trial: FrozenTrial, values: Sequence[float | None]) -> FrozenTrial:
    """The trial with these values: complete where all are known, else pruned and without any."""
    known = [value for value in values if value is not None]
    whole = len(known) == len(values)
    made = copy(trial)
    made.state = TrialState.COMPLETE if whole else TrialState.PRUNED
    made.values = known if whole else None
    return made


def directions(maximise: Sequence[bool]) -> list[StudyDirection]:
    """The directions of a study's objectives."""
    return [StudyDirection.MAXIMIZE if up else StudyDirection.MINIMIZE for up in maximise]


def is_feasible(trial: FrozenTrial) -> bool:
    """Whether a finished trial kept every limit."""
    return all(amount <= 0 for amount in trial.constraints.values())
