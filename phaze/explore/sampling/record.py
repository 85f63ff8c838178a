"""The lasting record of a study: finished trials in an Optuna storage, in the order of their numbers.

Only finished trials are written, so that nothing a killed run leaves behind is half done. Everything is where
Optuna itself puts it: any of its tools reads such a study.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from phaze.errors import InputError
from phaze.explore.metrics import Metric
from phaze.explore.sampling.study import directions

_PLAN = "plan"


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
    study: optuna.Study
    trials: list[FrozenTrial]

    @classmethod
    def open(cls, place: Place, objectives: Sequence[Metric], plan: dict[str, Any]) -> Record:
        """Open or create the study. `plan`: whatever has to be the same for a study to be continued.

        Raises InputError where the storage cannot be reached or holds a study of another plan.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        names = [metric.name for metric in objectives]
        try:
            study = optuna.create_study(
                storage=_storage(place.storage),
                study_name=place.study,
                directions=directions([metric.maximise for metric in objectives]),
                load_if_exists=True,
            )
            if study.user_attrs.setdefault(_PLAN, plan) != plan:
                raise InputError(f"the {place} has other objectives, sampler, seed, task, budgets or space")
            if not study.user_attrs:
                _name_metrics(study, names)
                study.set_user_attr(_PLAN, plan)
            return cls(place, study, _finished(study, place))
        except (SQLAlchemyError, OSError, ValueError) as error:
            raise InputError(f"the {place} cannot be opened: {_first_line(error)}") from error

    def add(self, trial: FrozenTrial) -> None:
        """Write a finished trial, unless it is there already.

        Raises InputError where what is there, or what somebody else is writing at the same time, differs.
        """
        if trial.number < len(self.trials):
            if self.trials[trial.number].params != trial.params:
                raise InputError(
                    f"trial {trial.number} of the {self.place} was sampled differently, perhaps by another "
                    "version of Optuna; start another study"
                )
            return
        self.study.add_trial(trial)
        self.trials.append(trial)
        if len(self.study.get_trials(deepcopy=False)) != len(self.trials):
            raise InputError(
                f"somebody else is writing to the {self.place}; give every sweep its own --study"
            )


def without_password(url: str) -> str:
    """A database URL fit to be shown. Raises InputError where it is not one."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError as error:
        raise InputError(
            f"--storage {url!r} is not a database URL, such as sqlite:///sweeps.db or postgresql://host/name"
        ) from error


def _storage(where: Path | str | None) -> BaseStorage:
    if where is None:
        return InMemoryStorage()
    if isinstance(where, Path):
        _drop_torn_line(where)
        return JournalStorage(JournalFileBackend(str(where)))
    shown = without_password(where)
    try:
        return RDBStorage(where)
    except ImportError as error:
        kind = make_url(where).get_backend_name()
        hint = "pip install 'phaze-dse[postgres]'" if kind == "postgresql" else f"its driver {error.name}"
        raise InputError(f"--storage {shown} needs a driver that is not installed: {hint}") from error


def _drop_torn_line(journal: Path) -> None:
    """A killed run may have left half a line, at which Optuna would stop for good."""
    if journal.exists() and not (content := journal.read_bytes()).endswith(b"\n"):
        with journal.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _name_metrics(study: optuna.Study, names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(names)


def _finished(study: optuna.Study, place: Place) -> list[FrozenTrial]:
    trials = study.get_trials(deepcopy=False)
    if any(trial.state is not TrialState.COMPLETE for trial in trials):
        raise InputError(f"the {place} has trials that were not written by dse sweep")
    return trials


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def as_json(data: Any) -> Any:  # noqa: ANN401 - any JSON
    """Data as it comes back from a JSON file, so that it can be compared with what was stored."""
    return json.loads(json.dumps(data, default=str))
