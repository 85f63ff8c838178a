"""Schedules by several methods on the same instances, as rows that can be kept in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path

from peers.process import Peer, PeerError, ask
from phaze.solvers.scheduling import Method, read_instance, schedule
from phaze.solvers.scheduling.exact.compact_search import kernel_builder
from schedule_instances import Family, instance


@dataclass(frozen=True)
class Instance:
    """A document of format `dse-schedule/1` and the set it belongs to."""

    group: str
    name: str
    document: Mapping[str, object]

    @property
    def digest(self) -> str:
        """Tells this instance from any other."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Answer:
    """What a method answered within a limit; without a makespan it failed, and `note` says how."""

    group: str
    instance: str
    digest: str
    method: str
    limit_s: float
    optimal: bool = False
    makespan_s: float | None = None
    lower_bound_s: float = 0.0
    runtime_s: float = 0.0
    note: str = ""

    @property
    def gap(self) -> float:
        """(makespan - bound) / makespan; 1 without a schedule."""
        if self.makespan_s is None:
            return 1.0
        return (self.makespan_s - self.lower_bound_s) / self.makespan_s if self.makespan_s else 0.0


class Answers:
    """Every answer is asked for once; with a file, once over all runs of the benchmark."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[tuple[str, str, float], Answer] = {}
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                self._remember(Answer(**json.loads(line)))

    def get(self, instance: Instance, method: str, limit_s: float) -> Answer:
        """The known answer, or a new one, written to the file at once."""
        key = (instance.digest, method, limit_s)
        if key not in self._known:
            answer = solve(instance, method, limit_s)
            self._remember(answer)
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(answer)) + "\n")
        return self._known[key]

    def _remember(self, answer: Answer) -> None:
        self._known[answer.digest, answer.method, answer.limit_s] = answer


class AnswerTable:
    """Answers by instance, method and limit."""

    def __init__(self, found: Sequence[Answer]) -> None:
        self._found = {(answer.digest, answer.method, answer.limit_s): answer for answer in found}

    def get(self, instance: Instance, method: str, limit_s: float) -> Answer | None:
        """What a method knew after so long: an answer proven within a shorter limit stays."""
        limits = [
            limit
            for (digest, name, limit), answer in self._found.items()
            if (digest, name) == (instance.digest, method)
            and (limit == limit_s or (limit < limit_s and answer.optimal))
        ]
        return self._found[instance.digest, method, max(limits)] if limits else None


def solve(instance: Instance, method: str, limit_s: float) -> Answer:
    """One answer; `method` is one of ours or a peer."""
    problem = read_instance(instance.document)
    asked = Answer(instance.group, instance.name, instance.digest, method, limit_s)
    try:
        result = (
            ask(Peer(method), problem, limit_s)
            if method in set(Peer)
            else schedule(problem, Method(method), limit_s)
        )
    except PeerError as error:
        return replace(asked, note=str(error))
    return replace(
        asked,
        optimal=result.optimal,
        makespan_s=result.makespan_s if isfinite(result.makespan_s) else None,
        lower_bound_s=result.lower_bound_s,
        runtime_s=result.runtime_s,
    )


def warm_up() -> None:
    """Load and compile what otherwise the first schedules of a process, or of a machine, would be charged for."""
    smallest = read_instance(instance(Family.RANDOM, 4, (2, 2), 0))
    for method in Method:
        schedule(smallest, method)
    hard = read_instance(instance(Family.INCEPTION_TRAINING, 100, (4, 4), 5))
    schedule(hard, Method.EXACT, 5.0)
    kernel_builder().wait()
    schedule(hard, Method.EXACT, 20.0)
