"""The lasting record of a study: finished trials in an Optuna storage, in the order of their numbers.

Only finished trials are written, so that nothing a killed run leaves behind is half done. Everything is where
Optuna itself puts it: any of its tools reads such a study.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from phaze.errors import InputError
from phaze.explore.metrics import Metric
from phaze.explore.sampling.identity import Identity, differences
from phaze.explore.sampling.ordered import OrderedStorage, TakenError
from phaze.explore.sampling.storage import opening, without_password
from phaze.explore.sampling.study import directions

PLAN = "plan"
"""User attribute of a study: what has to be the same for it to be continued."""


@dataclass(frozen=True)
class Place:
    """Where a study is kept: a journal file, a database by URL (SQLite, PostgreSQL), or nowhere: it does not last."""

    storage: Path | str | None
    study: str = "sweep"

    def __str__(self) -> str:
        """For messages: without a password."""
        where = without_password(self.storage) if isinstance(self.storage, str) else self.storage or "memory"
        return f"study {self.study} in {where}"


@dataclass
class Record:
    """A study's finished trials, those of earlier runs first."""

    place: Place
    storage: BaseStorage
    study: optuna.Study
    trials: list[FrozenTrial]

    @classmethod
    def open(cls, place: Place, storage: BaseStorage, objectives: Sequence[Metric], plan: Identity) -> Self:
        """Open or create the study. Raises InputError where the storage holds one of another plan."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with opening(str(place)):
            study = optuna.create_study(
                storage=storage,
                study_name=place.study,
                directions=directions([metric.maximise for metric in objectives]),
                load_if_exists=True,
            )
            known = study.user_attrs
            if known.get(PLAN, plan) != plan:
                raise InputError(f"the {place} was begun with another {differences(known[PLAN], plan)}")
            if not known:
                _name_metrics(study, [metric.name for metric in objectives])
                study.set_user_attr(PLAN, plan)
            return cls(place, storage, study, finished(study, place))

    def add(self, trial: FrozenTrial) -> None:
        """Write a finished trial, unless it is there already.

        Raises InputError where what is there, or what somebody else is writing at the same time, differs.
        """
        if trial.number < len(self.trials):
            check_same(self.place, self.trials[trial.number], trial)
            return
        self.trials.append(trial)
        try:
            self._write([trial])
        except TakenError as error:
            raise self._not_alone() from error

    def _write(self, trials: Sequence[FrozenTrial]) -> None:
        """Write trials that follow on those that are there. Raises TakenError where somebody else has done so."""
        if isinstance(self.storage, OrderedStorage):
            self.storage.add_trials(self.place.study, trials)
            return
        for trial in trials:
            self.study.add_trial(trial)
        if len(self.study.get_trials(deepcopy=False)) != trials[-1].number + 1:
            raise TakenError

    def flush(self, *, last: bool = False) -> None:
        """Write what is not written yet; `last`: nothing comes after it. Here all is written at once."""
        del last

    def _not_alone(self) -> InputError:
        return InputError(
            f"somebody else is writing to the {self.place}; give every sweep its own --study, or all of them --join"
        )


def finished(study: optuna.Study, place: Place) -> list[FrozenTrial]:
    """The trials of a study. Raises InputError where it has some that no sweep has written."""
    trials = study.get_trials(deepcopy=False)
    if any(trial.state is not TrialState.COMPLETE for trial in trials):
        raise InputError(f"the {place} has trials that were not written by dse sweep")
    return trials


def check_same(place: Place, there: FrozenTrial, here: FrozenTrial) -> None:
    """Raises InputError where a trial was sampled differently."""
    if there.params != here.params:
        raise InputError(
            f"trial {here.number} of the {place} was sampled differently, perhaps on another kind of processor or "
            "by another version of a library; start another study"
        )


def _name_metrics(study: optuna.Study, names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(names)
