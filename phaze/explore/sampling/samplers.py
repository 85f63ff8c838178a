"""Optuna's samplers by name; the randomness of a batch follows from the seed and its first trial alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from phaze.errors import InputError
from phaze.explore.sampling.parameters import Parameter


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
                f"the {sampler} sampler needs the package {package}: pip install 'phaze-dse[{sampler}]'"
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
