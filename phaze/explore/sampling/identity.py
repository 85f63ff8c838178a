"""What has to be the same for two runs to be of one study, and how they differ where it is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from phaze.explore.candidates import Candidates
from phaze.explore.manifest import describe_task
from phaze.explore.metrics import Metric
from phaze.explore.request import Task
from phaze.explore.sampling.parameters import described, parameters
from phaze.explore.sampling.samplers import NEEDS, Sampler

Identity = dict[str, Any]
_MOST = 3  # differences that are told
_SHORT = 40  # characters of a value that is told


def evaluation_identity(task: Task, candidates: Candidates) -> Identity:
    """What the figures of a candidate depend on, its number apart: JSON data."""
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
    """What two runs of one study have in common: JSON data."""
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


def digest(data: Any) -> str:  # noqa: ANN401 - any JSON
    """SHA-256 of JSON data, in hexadecimal."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
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
    return hashlib.sha256(repr((chain, workload.numerics, workload.operands)).encode()).hexdigest()


def _versions(packages: Sequence[str]) -> dict[str, str]:
    """Of packages that a study depends on bit by bit."""
    return {name: version(name) for name in packages}


def _as_json(data: Identity) -> Identity:
    """Data as it comes back from a JSON file, so that it can be compared with what was stored."""
    found: Identity = json.loads(json.dumps(data, default=str))
    return found
