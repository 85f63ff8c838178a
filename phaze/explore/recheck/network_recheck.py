"""Networks of a document worked out again: the winner's share of its own, and what every other one may promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze.errors import InfeasibleError
from phaze.explore.answers.main_job import evaluate
from phaze.explore.answers.network_exploration import (
    NetworkStatus,
    network_report,
    networks_of,
    with_network,
)
from phaze.explore.answers.searched_question import design_columns, worth
from phaze.explore.documents.certify_document import Check
from phaze.explore.documents.network_report import NetworkChoice, NetworkReport
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.recheck.elementary_checks import Leaves
from phaze.explore.request.explore_request import ExploreRequest, objective_of
from phaze.hardware.architecture import Architecture
from phaze.hardware.spaces.network_axes import SpaceNetwork
from phaze.tolerances import SAME

_FOUND = frozenset({"status", "upper_bound", "objective_value", "id"})


@dataclass(frozen=True)
class NetworksRecheck:
    """A document of a space with networks, and the request it answered."""

    request: ExploreRequest
    document: ResultDocument
    leaves: Leaves

    def checks(self) -> Iterator[Check]:
        """The winner's network, every network's architectures within the budgets, and bounds against plans.

        What other networks come to is what a search says; the winner's architecture on each of them may not exceed it.
        """
        claimed = self.document.networks
        if claimed is None:
            yield Check(name="networks", passed=False, note="nothing is told of them")
            return
        every = networks_of(self.request)
        names = [one.network.name for one in every]
        yield Check(
            name="networks of the space",
            passed=[choice.network for choice in claimed.choices] == names and claimed.network in names,
            note=f"{len(names)} networks",
        )
        if [choice.network for choice in claimed.choices] != names or claimed.network not in names:
            return
        yield from self._told(claimed, every)
        yield self._sensible(claimed)
        yield self._winner_elsewhere(claimed, every)

    def _told(self, claimed: NetworkReport, every: Sequence[SpaceNetwork]) -> Iterator[Check]:
        own = next(one for one in every if one.network.name == claimed.network)
        again = [
            choice.model_copy(update=self._known(one) | (self._best(choice) if one is own else {}))
            for choice, one in zip(claimed.choices, every, strict=True)
        ]
        report = network_report(self.request, self.document.best, own, again).model_dump(mode="json")
        yield self.leaves.compare("network", ("networks",), report, frozenset({"choices"}))
        for k, choice in enumerate(report["choices"]):
            path = ("networks", "choices", k)
            skipped = frozenset() if choice["network"] == claimed.network else _FOUND
            yield self.leaves.compare(f"network {choice['network']}", path, choice, skipped)

    def _known(self, one: SpaceNetwork) -> dict[str, Any]:
        return {"values": dict(one.values), "architectures_within": self._within(one)}

    def _best(self, choice: NetworkChoice) -> dict[str, Any]:
        """What the winner's network was found to come to."""
        c = self.document.certificate
        most = min(max(c.objective_value, choice.upper_bound or 0.0), c.upper_bound)
        found = {"objective_value": c.objective_value, "id": self.document.best.id, "upper_bound": most}
        return {**found, "status": NetworkStatus.SEARCHED.value}

    def _within(self, one: SpaceNetwork) -> int:
        part = with_network(self.request, one.network)
        return sum(len(block) for block in Candidates(part.space, part.budgets).blocks())

    def _sensible(self, claimed: NetworkReport) -> Check:
        """Statuses, values and bounds go together, and none exceeds the certificate."""
        c, best = self.document.certificate, self.document.best
        wrong = [choice.network for choice in claimed.choices if not self._agrees(choice)]
        own = next(choice for choice in claimed.choices if choice.network == claimed.network)
        right = own.id == best.id and own.objective_value is not None
        right = right and abs((own.objective_value or 0.0) - c.objective_value) <= SAME * c.objective_value
        return Check(
            name="bounds of all networks", passed=not wrong and right, note=", ".join(wrong) or "agree"
        )

    def _agrees(self, choice: NetworkChoice) -> bool:
        c, reached = self.document.certificate, choice.objective_value
        upper = c.upper_bound if choice.upper_bound is None else choice.upper_bound
        searched = choice.status == NetworkStatus.SEARCHED.value
        told = (reached is not None) == (choice.id is not None) == searched
        if choice.status == NetworkStatus.INFEASIBLE.value:
            return told and upper == 0.0
        reachable = reached is None or reached <= min(upper, c.objective_value) * (1 + SAME)
        return (
            told and reachable and upper <= c.upper_bound * (1 + SAME) and choice.status in set(NetworkStatus)
        )

    def _winner_elsewhere(self, claimed: NetworkReport, every: Sequence[SpaceNetwork]) -> Check:
        """The winner's architecture on every other network whose budget it keeps: no better than is said there."""
        best, wrong, looked = self.document.best, [], 0
        chip = Architecture(name=best.id, fields=best.architecture)
        objective = objective_of(self.request)
        for choice, one in zip(claimed.choices, every, strict=True):
            part = with_network(self.request, one.network)
            candidates = Candidates(part.space, part.budgets)
            if not len(candidates.within(np.array([candidates.number(best.architecture)]))):
                continue
            try:
                found = evaluate(part.task, chip, tdp_margin=self.request.budgets.tdp_margin)
            except InfeasibleError:
                continue
            looked += 1
            value = float(worth(objective, design_columns(found, part.task)))
            most = self.document.certificate.upper_bound if choice.upper_bound is None else choice.upper_bound
            if value > most * (1 + SAME) and not self._below_floor(found.workloads):
                wrong.append(one.network.name)
        return Check(
            name="the winner on all networks is within their bounds",
            passed=not wrong,
            note=", ".join(wrong) or f"{looked} networks",
        )

    def _below_floor(self, workloads: object) -> bool:
        """Whether floors were asked for, which the winner elsewhere may miss."""
        return bool(workloads) and (
            self.request.min_throughput is not None or self.request.max_latency_s is not None
        )
