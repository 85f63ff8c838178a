"""What re-checks of all kinds of runs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phaze.explore.certifying.document import CertifyReport, Check, Sample
from phaze.explore.document import ResultDocument
from phaze.explore.progress import Progress
from phaze.explore.request import ExploreRequest

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Recheck(ABC):
    """A run, the request it answered, its design table, and how many architectures to evaluate."""

    name: str
    request: ExploreRequest
    document: ResultDocument
    designs: Sequence[Row]
    samples: int
    seed: int
    progress: Progress
    _found: list[Sample] = field(default_factory=list)

    @abstractmethod
    def checks(self) -> Iterator[Check]:
        """Every claim worked out again; those of samples add to what was found."""

    def report(self) -> CertifyReport:
        """All checks, whether they pass or not."""
        checks = list(self.checks())
        return CertifyReport(
            run=self.name,
            passed=all(check.passed for check in checks),
            checks=checks,
            samples=self._found,
            seed=self.seed,
        )
