"""What the throughputs of a run are worth to it: the value that was maximised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.explore.document import ResultDocument
from phaze.explore.goal import Goal, floor_throughput
from phaze.explore.portfolio.found import check_weights
from phaze.explore.portfolio.merit import Rule
from phaze.explore.request import ExploreRequest

FloatArray = NDArray[np.float64]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Worth:
    """From throughputs to what was maximised."""

    goal: Goal
    names: tuple[str, ...]
    rule: Rule | None

    @classmethod
    def of(cls, request: ExploreRequest, document: ResultDocument) -> Worth:
        """Of a request, by its rule; of several workloads relative to the optima that the document tells."""
        names = tuple(task.workload.name for task in request.tasks)
        if document.portfolio is None:
            return cls(Goal(request.objective, floor_throughput(request, request.task)), names, None)
        shares = document.portfolio.workloads
        rule = Rule(
            request.combine,
            check_weights(request),
            tuple(shares[name].own.throughput_samples_per_s for name in names),
            tuple(floor_throughput(request, task) for task in request.tasks),
        )
        return cls(Goal(request.objective), names, rule)

    def throughputs(self, row: Row) -> list[float]:
        """Samples/s of a row of the design table, one per workload."""
        if self.rule is None:
            return [float(row["throughput_samples_per_s"])]
        return [float(row[f"throughput_samples_per_s[{name}]"]) for name in self.names]

    def score(self, throughputs: Sequence[float] | FloatArray) -> float:
        """Throughput of one workload, or the combined score."""
        if self.rule is None:
            return float(throughputs[0])
        return float(self.rule.score(np.asarray(throughputs, dtype=np.float64)[:, None])[0])

    def value(self, score: float, tdp: float) -> float:
        """What was maximised, of a score and a TDP in W."""
        return self.goal.value(score, tdp)
