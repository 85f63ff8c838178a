"""The lasting record of a study: finished trials in an Optuna storage, in the order of their numbers, and what has
to be the same for two runs to be of one study.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from phaze.digest import sha256_of
from phaze.errors import InputError
from phaze.explore.documents.result_manifest import describe_task
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.design_metrics import Metric
from phaze.explore.request.explore_request import Task
from phaze.explore.sampling.sampled_study import NEEDS, Sampler, directions
from phaze.explore.sampling.space_parameters import described, parameters
from phaze.explore.sampling.study_storage import OrderedStorage, TakenError, opening, without_password

Identity = dict[str, Any]
_MOST = 3  # differences that are told
_SHORT = 40  # characters of a value that is told


def evaluation_identity(task: Task, candidates: Candidates) -> Identity:
    """Inputs that the figures of a candidate depend on, its number apart: JSON data."""
    space = candidates.space
    return _as_json(
        {
            "task": describe_task(task),
            "model": _digest_of_model(task),
            "network": task.network.model_dump(mode="json"),
            "budgets": asdict(candidates.budgets),
            "parameters": described(parameters(space)),
            "base": dict(space.base.fields),
            "ties": [dict(space.ties), dict(space.multiples)],
            "versions": _versions(("phaze-dse", "numpy")),
        }
    )


def study_identity(
    task: Task,
    candidates: Candidates,
    objectives: Sequence[Metric],
    sampler: Sampler,
    seed: int,
    batch: int,
) -> Identity:
    """Identity of a study, the same for all of its runs: JSON data."""
    evaluation = evaluation_identity(task, candidates)
    return evaluation | _as_json(
        {
            "objectives": [metric.name for metric in objectives],
            "sampler": sampler.value,
            "seed": seed,
            "batch": batch,
            "limits": [c.text for c in candidates.space.constraints],
            "versions": evaluation["versions"] | _versions(("optuna", *NEEDS.get(sampler, ()))),
        }
    )


def identity_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """By what a study differs from what is asked, in words: `seed 1 (here 2), task.devices 8 (here 16)`."""
    found = list(_differences(there, here, ""))
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _differences(there: Any, here: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted(there.keys() | here.keys()):
            yield from _differences(there.get(name), here.get(name), f"{path}.{name}" if path else name)
    elif there != here:
        yield f"{path} {_short(there)} (here {_short(here)})"


def _short(value: Any) -> str:  # noqa: ANN401 - any JSON
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."


def _digest_of_model(task: Task) -> str:
    """Of a workload's layers and numerics: files of the same name may hold different models."""
    workload = task.workload
    chain = workload.chain(1, 1)
    # Of its text, as in the studies that are there already.
    return sha256_of(repr((chain, workload.numerics, workload.operands)).encode())


def _versions(packages: Sequence[str]) -> dict[str, str]:
    """Of packages that a study depends on bit by bit."""
    return {name: version(name) for name in packages}


def _as_json(data: Identity) -> Identity:
    """Data as it comes back from a JSON file, so that it can be compared with what was stored."""
    found: Identity = json.loads(json.dumps(data, default=str))
    return found


PLAN = "plan"
"""User attribute of a study: what has to be the same for it to be continued."""


@dataclass(frozen=True)
class StudyPlace:
    """Where a study is kept: a journal file, a database by URL (SQLite, PostgreSQL), or nowhere: it does not last."""

    storage: Path | str | None
    study: str = "sweep"

    def __str__(self) -> str:
        """For messages: without a password."""
        where = without_password(self.storage) if isinstance(self.storage, str) else self.storage or "memory"
        return f"study {self.study} in {where}"


@dataclass
class StudyRecord:
    """A study's finished trials, those of earlier runs first."""

    place: StudyPlace
    storage: BaseStorage
    study: optuna.Study
    trials: list[FrozenTrial]

    @classmethod
    def open(
        cls, place: StudyPlace, storage: BaseStorage, objectives: Sequence[Metric], plan: Identity
    ) -> Self:
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
                raise InputError(
                    f"the {place} was begun with another {identity_differences(known[PLAN], plan)}"
                )
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
            f"another process is writing to the {self.place}; give every sweep its own --study, or all of them --join"
        )


def finished(study: optuna.Study, place: StudyPlace) -> list[FrozenTrial]:
    """The trials of a study. Raises InputError where it has some that no sweep has written."""
    trials = study.get_trials(deepcopy=False)
    if any(trial.state not in {TrialState.COMPLETE, TrialState.PRUNED} for trial in trials):
        raise InputError(f"the {place} has trials that were not written by dse sweep")
    return trials


def check_same(place: StudyPlace, there: FrozenTrial, here: FrozenTrial) -> None:
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
