"""What re-checks of all kinds of runs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phaze.explore.certifying.document import CertifyReport, Check, Sample
from phaze.explore.certifying.leaves import Leaves
from phaze.explore.certifying.searched import Searched
from phaze.explore.certifying.several import SeveralClusters, SeveralWorkloads
from phaze.explore.certifying.whole import Whole
from phaze.explore.cluster_choice import with_devices
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

    @property
    def part(self) -> ExploreRequest:
        """The request at the winner's number of devices."""
        if self.request.cluster is None:
            return self.request
        devices = next(iter(self.document.best.workloads.values())).devices
        return with_devices(self.request, self.request.cluster, devices)

    def report(self) -> CertifyReport:
        """All checks, whether they pass or not, and what none of them speaks of."""
        leaves = Leaves.of(self.document)
        whole = Whole(self.part, self.document, self.designs, leaves)
        checks = [whole.hardware()]
        if checks[0].passed:
            checks += [*self.checks(), *whole.checks(), *self._beside(leaves)]
        return CertifyReport(
            run=self.name,
            passed=all(check.passed for check in checks),
            checks=checks,
            samples=self._found,
            seed=self.seed,
            unchecked=leaves.unchecked,
        )

    def _beside(self, leaves: Leaves) -> Iterator[Check]:
        """What is told beside the best design."""
        yield from Searched(self.request, self.document, leaves, self.progress).checks()
        if self.request.others:
            yield from SeveralWorkloads(self.request, self.document, self.designs, leaves).checks()
        if self.request.cluster is not None:
            yield from SeveralClusters(self.request, self.document, leaves).checks(self.request.cluster)
