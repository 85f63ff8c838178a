"""Finished trials in a database, written together and in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial
from sqlalchemy import func, select
from sqlalchemy.orm import Session


class TakenError(Exception):
    """Somebody else has written a trial of the same number."""


class OrderedStorage(RDBStorage):
    """A database that takes finished trials under the numbers they have, or not at all.

    Both are decided in the transaction that writes them, so that no two processes can write the same trial twice.
    """

    def add_trials(self, study: str, trials: Sequence[FrozenTrial]) -> None:
        """Write finished trials, the numbers of which follow on each other: all of them, or none.

        Into Optuna's tables, in a handful of statements for any number of trials; its own way, one trial at a time,
        takes sixty for each. Raises TakenError where the first number is not the next one.
        """
        number = self.get_study_id_from_name(study)
        with Session(self.engine) as session, session.begin():
            models.StudyModel.find_or_raise_by_id(number, session, for_update=True)  # one at a time
            rows = [_row(number, trial) for trial in trials]
            session.add_all(rows)
            session.flush()  # SQLite, which locks no rows, is locked as a whole from here on
            if _count_before(rows, session) != trials[0].number:
                raise TakenError
            session.add_all(
                part for row, trial in zip(rows, trials, strict=True) for part in _parts(row, trial)
            )


def _count_before(rows: Sequence[models.TrialModel], session: Session) -> int:
    """Trials of the study that were there before some rows."""
    trial = models.TrialModel
    earlier = trial.study_id == rows[0].study_id, trial.trial_id < min(row.trial_id for row in rows)
    return session.scalar(select(func.count(trial.trial_id)).where(*earlier)) or 0


def _row(study: int, trial: FrozenTrial) -> models.TrialModel:
    return models.TrialModel(
        study_id=study,
        number=trial.number,
        state=trial.state,
        datetime_start=trial.datetime_start,
        datetime_complete=trial.datetime_complete,
    )


def _parts(row: models.TrialModel, trial: FrozenTrial) -> Iterator[Any]:
    """The rows of a trial in the other tables."""
    owner = {"trial_id": row.trial_id}
    for objective, value in enumerate(trial.values):
        stored, kind = models.TrialValueModel.value_to_stored_repr(value)
        yield models.TrialValueModel(**owner, objective=objective, value=stored, value_type=kind)
    for name, distribution in trial.distributions.items():
        yield models.TrialParamModel(
            **owner,
            param_name=name,
            param_value=distribution.to_internal_repr(trial.params[name]),
            distribution_json=distribution_to_json(distribution),
        )
    for key, value in trial.user_attrs.items():
        yield models.TrialUserAttributeModel(**owner, key=key, value_json=json.dumps(value))
    for key, value in trial.system_attrs.items():
        yield models.TrialSystemAttributeModel(**owner, key=key, value_json=json.dumps(value))
