"""Searches that a document tells of, made again: those without proof, and that for designs near the best.

Each is the same every time as long as no time limit ends it. One that differs from what is claimed is wrong, unless
the run took so much of its time limit that this may be the reason: then it is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze.explore.candidates import Candidates
from phaze.explore.certifying.checks import hurried
from phaze.explore.certifying.document import Check
from phaze.explore.certifying.leaves import Leaves, Path
from phaze.explore.certifying.worth import Worth
from phaze.explore.document import ResultDocument
from phaze.explore.progress import Clock, Progress
from phaze.explore.request import ExploreRequest, StrategyChoice
from phaze.explore.robustness import robust
from phaze.explore.strategic import Course, only
from phaze.explore.strategies.distance import distance
from phaze.explore.strategies.report import Stop, StrategyReport

_TIMES = frozenset({"elapsed_s"})
_APART = frozenset({"runtime_s", "distance", "history"})


@dataclass(frozen=True)
class Searched:
    """A document, the request it answered, and what of it was worked out again."""

    request: ExploreRequest
    document: ResultDocument
    leaves: Leaves
    progress: Progress

    def checks(self) -> Iterator[Check]:
        """One check for each part of each search."""
        if self.request.strategy is not None:
            yield from self._strategy(self.request.strategy)
        if self.request.robust:
            yield from self._robustness()

    def _strategy(self, choice: StrategyChoice) -> Iterator[Check]:
        claimed = self.document.strategy
        if claimed is None:
            yield Check(name="search without proof", passed=False, note="nothing is told of it")
            return
        yield self._distance(claimed)
        if claimed.stopped is Stop.TIME and self._hurried:
            return
        candidates, worth = Candidates(self.request.space, self.request.budgets), self._worth
        score = only if worth.rule is None else worth.rule.score
        course = Course(self.request, choice, candidates, worth.goal, score)
        _, report, told = course.run(Clock(np.inf), self.progress)
        again = report.model_dump(mode="json")
        yield self._compared("search without proof", ("strategy",), again, _APART)
        yield from self._history(claimed, again["history"])
        yield self._compared("WHAM's search", ("wham",), _json(told))

    def _history(self, claimed: StrategyReport, again: list[dict[str, Any]]) -> Iterator[Check]:
        """Every improvement, but not when it was made."""
        if len(again) != len(claimed.history):
            yield self._compared("its improvements", ("strategy", "history"), again)
            return
        for k, one in enumerate(again):
            yield self._compared(f"improvement {k + 1}", ("strategy", "history", k), one, _TIMES)

    def _distance(self, claimed: StrategyReport) -> Check:
        """The distance to what was certified, as it follows from both; a proven optimum is the bound itself."""
        told, upper = claimed.distance, self.document.certificate.upper_bound
        again = None
        if told is not None and 0 < told.certified <= upper:
            again = _json(distance(claimed.best_value, told.certified, upper))
        return self.leaves.compare("distance to the certified optimum", ("strategy", "distance"), again)

    def _robustness(self) -> Iterator[Check]:
        claimed = self.document.robustness
        if self._hurried and (claimed is None or not claimed.complete):
            return
        best = self.document.certificate.objective_value
        again = robust.robust(self.request, best, clock=Clock(np.inf), progress=self.progress)
        yield self._compared("designs near the best", ("robustness",), _json(again))

    # -- what all of them take ------------------------------------------------------------------------------

    def _compared(self, name: str, path: Path, found: object, skipped: frozenset[str] = frozenset()) -> Check:
        return self.leaves.compare(name, path, found, skipped, hurried=self._hurried)

    @property
    def _hurried(self) -> bool:
        return hurried(self.request, self.document)

    @property
    def _worth(self) -> Worth:
        return Worth.of(self.request, self.document)


def _json(record: Any) -> Any:  # noqa: ANN401 - any record, in any JSON
    return None if record is None else record.model_dump(mode="json", by_alias=True)
