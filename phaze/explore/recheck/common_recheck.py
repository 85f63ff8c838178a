"""Common part of the re-checks of all kinds of runs; also the searches that a document reports, made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from phaze.explore.answers.cluster_exploration import device_counts, with_devices
from phaze.explore.answers.network_exploration import networks_of, with_network, within_network
from phaze.explore.answers.strategy_exploration import StrategyCourse, throughput_score
from phaze.explore.documents.certify_document import CertifyReport, Check, Sample
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.documents.strategy_report import Stop, StrategyReport, certified_distance
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.recheck.document_recheck import DocumentRecheck
from phaze.explore.recheck.elementary_checks import Leaves, Path, hurried
from phaze.explore.recheck.network_recheck import NetworksRecheck
from phaze.explore.recheck.rechecked_points import MaximisedValue
from phaze.explore.recheck.several_recheck import SeveralClusters, SeveralWorkloads
from phaze.explore.request.explore_request import ExploreRequest, StrategyChoice
from phaze.explore.request.search_progress import Clock, Progress, SilentProgress
from phaze.explore.request.search_resources import run_in_fork
from phaze.explore.robustness import robust_answer

_TIMES = frozenset({"elapsed_s"})
_APART = frozenset({"runtime_s", "distance", "history"})


@dataclass(frozen=True)
class SearchesRecheck:
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
        score = throughput_score if worth.rule is None else worth.rule.score
        course = StrategyCourse(self.request, choice, candidates, worth.goal, score)
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
            again = _json(certified_distance(claimed.best_value, told.certified, upper))
        return self.leaves.compare("distance to the certified optimum", ("strategy", "distance"), again)

    def _robustness(self) -> Iterator[Check]:
        claimed = self.document.robustness
        if self._hurried and (claimed is None or not claimed.complete):
            return
        best = self.document.certificate.objective_value
        again = robust_answer.judge_robustness(
            within_network(self.request, self.document),
            best,
            clock=Clock(np.inf),
            enough=lambda known: claimed is not None and known >= claimed.scenarios,
            progress=self.progress,
        )
        yield self._compared("designs near the best", ("robustness",), _json(again))

    # -- what all of them take ------------------------------------------------------------------------------

    def _compared(self, name: str, path: Path, found: object, skipped: frozenset[str] = frozenset()) -> Check:
        return self.leaves.compare(name, path, found, skipped, hurried=self._hurried)

    @property
    def _hurried(self) -> bool:
        return hurried(self.request, self.document)

    @property
    def _worth(self) -> MaximisedValue:
        return MaximisedValue.of(self.request, self.document)


def _json(record: Any) -> Any:  # noqa: ANN401 - any record, in any JSON
    return None if record is None else record.model_dump(mode="json", by_alias=True)


Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sampled:
    """Architectures that were evaluated beside those of a run, and what they say of its claims."""

    samples: list[Sample]
    checks: list[Check]


@dataclass(frozen=True)
class Recheck(ABC):
    """A run, the request it answered, its design table, and how many architectures to evaluate.

    `of_networks`: the request over all networks, where they were searched; the other one is on that of the winner.
    """

    name: str
    request: ExploreRequest
    document: ResultDocument
    designs: Sequence[Row]
    samples: int
    seed: int
    progress: Progress
    of_networks: ExploreRequest | None = None

    @abstractmethod
    def checks(self) -> Iterator[Check]:
        """Every claim worked out again."""

    @abstractmethod
    def sampled(self) -> Sampled:
        """Architectures of the space evaluated, which no claim is of, and claims held against them."""

    def parts(self) -> Iterator[ExploreRequest]:
        """The request, or one for every network, or number of devices of a cluster, that may have been searched."""
        if self.of_networks is not None:
            yield from (with_network(self.of_networks, one.network) for one in networks_of(self.of_networks))
        elif self.request.cluster is None or self.document.cluster is None:
            yield self.request
        else:
            for devices in device_counts(max(choice.devices for choice in self.document.cluster.choices)):
                yield with_devices(self.request, self.request.cluster, devices)

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
        whole = DocumentRecheck(self.part, self.document, self.designs, leaves)
        checks, samples = [whole.hardware()], list[Sample]()
        if checks[0].passed:
            with self._sampled_beside() as sampled:
                claims, told = [*self.checks()], [*self._counted(whole.checks(), leaves)]
                beside = sampled()
            checks += [*claims, *beside.checks, *told, *self._beside(leaves)]
            samples = beside.samples
        return CertifyReport(
            run=self.name,
            passed=all(check.passed for check in checks),
            checks=checks,
            samples=samples,
            seed=self.seed,
            unchecked=leaves.unchecked,
        )

    @contextmanager
    def _sampled_beside(self) -> Iterator[Callable[[], Sampled]]:
        """Have architectures evaluated by a copy of this process, if any; what is given waits for them."""
        if not self.samples:
            yield self.sampled
            return
        quiet = replace(self, progress=SilentProgress())
        with run_in_fork(lambda: iter([quiet.sampled()])) as told:

            def sampled() -> Sampled:
                self.progress.update("checking samples", 0, self.samples, "architectures of the space")
                found = told()
                assert found is not None  # there is no limit of time
                return found

            yield sampled

    def _counted(self, checks: Iterator[Check], leaves: Leaves) -> Iterator[Check]:
        """The same checks, with progress by the figures of the document that none has spoken of yet."""
        figures = len(leaves.claimed)
        while True:
            self.progress.update("checking the document", figures - len(leaves.left), figures, "")
            if (check := next(checks, None)) is None:
                return
            yield check

    def _beside(self, leaves: Leaves) -> Iterator[Check]:
        """Checks of the parts reported beside the best design."""
        yield from SearchesRecheck(self.request, self.document, leaves, self.progress).checks()
        if self.request.others:
            yield from SeveralWorkloads(self.request, self.document, self.designs, leaves).checks()
        if self.of_networks is not None:
            yield from NetworksRecheck(self.of_networks, self.document, leaves).checks()
        if self.request.cluster is not None:
            yield from SeveralClusters(self.request, self.document, leaves).checks(self.request.cluster)
