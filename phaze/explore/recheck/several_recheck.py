"""Figures of a document on several workloads, and on several numbers of devices, worked out again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.explore.answers.cluster_exploration import (
    MOST_DEVICES,
    DeviceCountStatus,
    cluster_report,
    device_counts,
    with_devices,
)
from phaze.explore.answers.portfolio_exploration import workload_share
from phaze.explore.documents.certify_document import Check
from phaze.explore.documents.result_document import (
    ClusterChoice,
    ClusterReport,
    Cross,
    OwnOptimum,
    PortfolioReport,
    ResultDocument,
    ScorePoint,
    Share,
)
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.recheck.elementary_checks import Leaves, Path, hurried
from phaze.explore.recheck.rechecked_points import MaximisedValue
from phaze.explore.request.explore_request import ClusterBudget, ExploreRequest
from phaze.hardware.architecture import from_table
from phaze.hardware.architecture_naming import architecture_id, architecture_ids
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, SAME

Row = Mapping[str, Any]
WHOLE = SolveLimits(lambda: np.inf, FEW_STATES)
MOST_NAMED = 500_000
"""Points of a space in which designs are looked for by their names, which takes some seconds."""
_FOUND = frozenset({"status", "upper_bound_samples_per_s", "throughput_samples_per_s", "id"})


@dataclass(frozen=True)
class RecheckedDesign:
    """One architecture again: `architecture` its hardware fields, `throughputs` in samples/s by workload."""

    id: str
    architecture: Mapping[str, Any]
    throughputs: Mapping[str, float]
    score: float
    tdp_w: float
    area_mm2: float


@dataclass(frozen=True)
class SeveralWorkloads:
    """A document of a common design, the request it answered, and its design table."""

    request: ExploreRequest
    document: ResultDocument
    designs: Sequence[Row]
    leaves: Leaves

    def checks(self) -> Iterator[Check]:
        """The whole section; designs that are in no table of a large space are left out."""
        claimed = self.document.portfolio
        if claimed is None:
            yield Check(name="several workloads", passed=False, note="nothing is told of them")
            return
        again = self._again(claimed).model_dump(mode="json")
        rest = frozenset(again) - {"combine", "score"}
        yield self.leaves.compare("several workloads", ("portfolio",), again, rest)
        for name, share in again["workloads"].items():
            skipped = frozenset({"own"}) if claimed.workloads[name].own.id in self._lost else frozenset[str]()
            yield self._compared(f"share of {name}", ("portfolio", "workloads", name), share, skipped)
        yield from self._listed("cross", [one.id for one in claimed.cross], again["cross"])
        yield from self._listed("frontier", [one.id for one in claimed.frontier], again["frontier"])

    def _listed(self, part: str, names: Sequence[str], again: Sequence[object]) -> Iterator[Check]:
        """Designs by name, those that were found again."""
        yield Check(
            name=f"designs of {part}", passed=len(names) == len(again), note=f"{len(again)} found again"
        )
        for k, (name, one) in enumerate(zip(names, again, strict=False)):
            if name not in self._lost:
                yield self._compared(f"{part} {k + 1}", ("portfolio", part, k), one)

    def _compared(self, name: str, path: Path, found: object, skipped: frozenset[str] = frozenset()) -> Check:
        return self.leaves.compare(name, path, found, skipped, hurried=hurried(self.request, self.document))

    def _again(self, claimed: PortfolioReport) -> PortfolioReport:
        worth = MaximisedValue.of(self.request, self.document)
        best = self.document.best
        common = [best.workloads[name].throughput_samples_per_s for name in worth.names]
        shares = {
            name: workload_share(weight, speed, self._own(name, claimed.workloads[name].own))
            for name, weight, speed in zip(
                worth.names, worth.rule.weights if worth.rule else (), common, strict=True
            )
        }
        return PortfolioReport(
            combine=self.request.combine.value,
            score=worth.score(common),
            workloads=shares,
            cross=[_cross(self._known.get(best.id), ()), *self._winners(shares)],
            frontier=[_step(self._known.get(point.id)) for point in claimed.frontier],
        )

    def _own(self, name: str, claimed: OwnOptimum) -> OwnOptimum:
        """A workload's own best design evaluated again; its bound is at least what was reached, as its gap says."""
        found = self._known.get(claimed.id)
        if found is None:
            return claimed if claimed.id in self._lost else claimed.model_copy(update={"id": ""})
        reached, bound = found.throughputs[name], claimed.upper_bound_samples_per_s
        return OwnOptimum(
            id=found.id,
            throughput_samples_per_s=reached,
            upper_bound_samples_per_s=max(bound, reached)
            if abs(bound - reached) > SAME * reached
            else reached,
            gap=bound / reached - 1 if reached > 0 and bound > reached * (1 + SAME) else 0.0,
            area_mm2=found.area_mm2,
            tdp_w=found.tdp_w,
        )

    def _winners(self, shares: Mapping[str, Share]) -> Iterator[Cross]:
        """Every workload's own best design on all workloads; each design once."""
        for id_ in dict.fromkeys(share.own.id for share in shares.values()):
            yield _cross(self._known.get(id_), [n for n, share in shares.items() if share.own.id == id_])

    # -- designs --------------------------------------------------------------------------------------------

    @cached_property
    def _wanted(self) -> set[str]:
        """Names of the designs that the section tells of."""
        claimed = self.document.portfolio
        if claimed is None:
            return set()
        told = {one.id for one in claimed.cross} | {one.id for one in claimed.frontier}
        return told | {share.own.id for share in claimed.workloads.values()} | {self.document.best.id}

    @property
    def _lost(self) -> set[str]:
        """Those that may be somewhere in a space too large to look for names."""
        return self._wanted - self._known.keys() if self._candidates.size > MOST_NAMED else set()

    @cached_property
    def _known(self) -> dict[str, RecheckedDesign]:
        """Those that there are, by name."""
        return {design.id: design for design in self._evaluated(sorted(set(self._numbers())))}

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self.request.space, self.request.budgets)

    def _numbers(self) -> Iterator[int]:
        """Candidates of those names: from the design table, and among all of a space that is not too large."""
        candidates, varied = self._candidates, self._candidates.varied
        if candidates.size > MOST_NAMED:
            for row in self.designs:
                if row["id"] in self._wanted:
                    yield candidates.number(candidates.space.completed({name: row[name] for name in varied}))
            return
        for block in candidates.blocks():
            names = architecture_ids(block.table, varied)
            yield from (int(n) for n, name in zip(block.numbers, names, strict=True) if name in self._wanted)

    def _evaluated(self, numbers: Sequence[int]) -> Iterator[RecheckedDesign]:
        candidates, worth = self._candidates, MaximisedValue.of(self.request, self.document)
        block = candidates.within(np.array(numbers, dtype=np.int64))
        if not len(block):
            return
        found = np.stack([self.reached(k, block.table) for k in range(len(self.request.tasks))])
        for i in range(len(block)):
            chip = from_table(block.table, i, architecture_id(block.table, i, candidates.varied))
            speeds = found[:, i].tolist()
            yield RecheckedDesign(
                id=chip.name,
                architecture=dict(chip.fields),
                throughputs=dict(zip(worth.names, speeds, strict=True)),
                score=worth.score(speeds),
                tdp_w=float(block.tdp_w[i]),
                area_mm2=float(block.area_mm2[i]),
            )

    def reached(self, which: int, table: ArchitectureTable) -> NDArray[np.float64]:
        """Samples/s (A,) of one workload on some architectures; 0 where it does not fit."""
        task = self.request.tasks[which]
        found = best_points(Evaluator(task, table), np.arange(len(table)), WHOLE)
        return np.asarray(task.cluster.global_batch / found.upper_s)


def _cross(design: RecheckedDesign | None, winner_for: Sequence[str]) -> Cross:
    found = design or _NONE
    return Cross(
        id=found.id,
        winner_for=list(winner_for),
        score=found.score,
        throughputs_samples_per_s=dict(found.throughputs),
        tdp_w=found.tdp_w,
        area_mm2=found.area_mm2,
    )


def _step(design: RecheckedDesign | None) -> ScorePoint:
    found = design or _NONE
    return ScorePoint(
        id=found.id,
        score=found.score,
        throughputs_samples_per_s=dict(found.throughputs),
        tdp_w=found.tdp_w,
        area_mm2=found.area_mm2,
        architecture=dict(found.architecture),
    )


_NONE = RecheckedDesign(id="", architecture={}, throughputs={}, score=0.0, tdp_w=0.0, area_mm2=0.0)


@dataclass(frozen=True)
class SeveralClusters:
    """A document of a budget for the whole cluster, and the request it answered."""

    request: ExploreRequest
    document: ResultDocument
    leaves: Leaves

    def checks(self, budget: ClusterBudget) -> Iterator[Check]:
        """Power and cost of the winner's cluster, and each device's share of the budgets for every number.

        What other numbers of devices come to is what a search says: their bounds and statuses go together.
        """
        claimed = self.document.cluster
        if claimed is None:
            yield Check(name="cluster", passed=False, note="nothing is told of it")
            return
        again = self._again(budget, claimed).model_dump(mode="json")
        yield self.leaves.compare("cluster", ("cluster",), again, frozenset({"choices"}))
        numbers = [choice.devices for choice in claimed.choices]
        right = [choice["devices"] for choice in again["choices"]]
        yield Check(name="numbers of devices", passed=numbers == right, note=", ".join(map(str, right)))
        for k, choice in enumerate(again["choices"] if numbers == right else ()):
            skipped = frozenset() if choice["devices"] == again["devices"] else _FOUND
            yield self.leaves.compare(
                f"{choice['devices']} devices", ("cluster", "choices", k), choice, skipped
            )
        yield self._sensible(claimed)

    def _again(self, budget: ClusterBudget, claimed: ClusterReport) -> ClusterReport:
        told = {choice.devices: choice for choice in claimed.choices}
        choices = [self._choice(budget, devices, told.get(devices)) for devices in self._numbers(budget)]
        return cluster_report(budget, self.document, choices, self.request.task.economics)

    def _numbers(self, budget: ClusterBudget) -> Iterator[int]:
        """Numbers of devices for which some architecture keeps the budget."""
        for devices in device_counts(MOST_DEVICES):
            part = with_devices(self.request, budget, devices)
            if not any(len(block) for block in Candidates(part.space, part.budgets).blocks()):
                return
            yield devices

    def _choice(self, budget: ClusterBudget, devices: int, claimed: ClusterChoice | None) -> ClusterChoice:
        """One number of devices: what it was found to be where it is the winner's, what is claimed elsewhere."""
        best, share = self.document.best, with_devices(self.request, budget, devices).budgets
        value, bound = self.document.certificate.objective_value, self.document.certificate.upper_bound
        winner = devices == next(iter(best.workloads.values())).devices
        return ClusterChoice(
            devices=devices,
            power_per_device_w=share.power_w,
            price_per_device_usd=share.price_usd,
            status=DeviceCountStatus.SEARCHED.value if winner or claimed is None else claimed.status,
            upper_bound_samples_per_s=min(max(value, claimed.upper_bound_samples_per_s), bound)
            if claimed
            else bound,
            throughput_samples_per_s=value if winner else None,
            id=best.id if winner else None,
        )

    def _sensible(self, claimed: ClusterReport) -> Check:
        """Nothing is faster than the bound of the certificate, nor than the winner where that was ruled out."""
        c = self.document.certificate
        wrong = [
            choice.devices
            for choice in claimed.choices
            if not _sensible(choice, c.objective_value, c.upper_bound)
        ]
        highest = max([c.objective_value, *(choice.upper_bound_samples_per_s for choice in claimed.choices)])
        passed = not wrong and abs(highest - c.upper_bound) <= SAME * c.upper_bound
        return Check(
            name="bounds of all numbers of devices", passed=passed, note=", ".join(map(str, wrong)) or "agree"
        )


def _sensible(choice: ClusterChoice, value: float, bound: float) -> bool:
    upper, reached = choice.upper_bound_samples_per_s, choice.throughput_samples_per_s
    searched = choice.status == DeviceCountStatus.SEARCHED.value
    most = {DeviceCountStatus.INFEASIBLE.value: 0.0, DeviceCountStatus.BOUNDED.value: value}.get(
        choice.status, bound
    )
    told = (reached is not None) == (choice.id is not None) == searched
    reachable = reached is None or reached <= min(upper, value) * (1 + SAME)
    return choice.status in set(DeviceCountStatus) and told and reachable and upper <= most * (1 + SAME)
