"""The re-check of a run for the chip of a service, and for a second chip: claims worked out again, and samples.

Plans are built anew from the hardware fields and the shapes that the document claims. Samples are architectures, and
pairs of architectures, that a seed draws, each served in a few of its ways without any bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from phaze.errors import InputError
from phaze.explore.documents.certify_document import CertifyReport, Check, Sample
from phaze.explore.documents.serving_document import (
    SERVING_SCHEMA,
    PoolFigures,
    ServedChip,
    ServingDocument,
    ServingFigures,
    TwoChips,
    engine_starts,
    serving_cost,
)
from phaze.explore.recheck.document_recheck import question_unchanged
from phaze.explore.recheck.elementary_checks import Leaves, bound_agrees, same_figure
from phaze.explore.request.search_progress import Clock, Progress, SilentProgress
from phaze.explore.services.exact_services import ExactServices, Service
from phaze.explore.services.found_service import FoundService
from phaze.explore.services.pair_answer import told_pair
from phaze.explore.services.pair_search import SIDES, FoundPair, PairOutcome, PairSearch
from phaze.explore.services.pool_items import PoolItem, exact_item
from phaze.explore.services.service_answer import certified_scope, served_chip, told_request
from phaze.explore.services.service_request import ServiceRequest
from phaze.explore.services.service_search import ServiceSearch
from phaze.hardware.architecture import to_table
from phaze.hardware.architecture_naming import architecture_ids
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.serving import Policy
from phaze.parallel.serving.bounds.service_bounds import Shape, Way
from phaze.tolerances import SAME

_WAYS = 3  # of a sampled architecture, beside the claimed one
_QUESTION = ("asked", "seed", "inputs_sha256", "question_sha256")
_COUNTS = ("pruned", "evaluated", "pruned_by", "optimal", "upper_bound", "gap")


@dataclass
class ServiceRecheck:
    """A document of `dse run --serve`, the request it answered, and how many architectures to sample."""

    name: str
    request: ServiceRequest
    document: ServingDocument
    samples: int
    seed: int
    progress: Progress = field(default_factory=SilentProgress)

    def report(self) -> CertifyReport:
        """All checks, whether they pass or not, and what none of them speaks of."""
        checks, samples = [question_unchanged(self.document), self._hardware()], list[Sample]()
        if all(check.passed for check in checks):
            checks += [*self._question(), *self._winner(), *self._certificate(), *self._next_best()]
            checks += self._pair()
            samples, held = self._sampled()
            checks += held
        return CertifyReport(
            run=self.name,
            passed=all(check.passed for check in checks),
            checks=checks,
            samples=samples,
            seed=self.seed,
            unchecked=self._leaves.unchecked,
        )

    # -- what all of them take ------------------------------------------------------------------------------

    @cached_property
    def _leaves(self) -> Leaves:
        return Leaves.of(self.document)

    @cached_property
    def _search(self) -> ServiceSearch:
        return ServiceSearch(self.request, Clock(np.inf), self.progress)

    @cached_property
    def _pairs(self) -> PairSearch:
        return PairSearch(self._search.costs, 0.0, Clock(np.inf), self.progress)

    @cached_property
    def _chip(self) -> ServedChip:
        if self.document.chip is None or self.document.certificate is None:
            raise InputError(f"{self.name} was planned on a given chip: there is no certificate to check")
        return self.document.chip

    @property
    def _two(self) -> TwoChips | None:
        return self.document.two_chips

    def _row(self, fields: Mapping[str, Any]) -> int | None:
        """The place of an architecture among those within budget; None where it is none of them."""
        try:
            number = self._search.costs.candidates.number(fields)
        except (InputError, ValueError, LookupError, TypeError):  # fields that no architecture has
            return None
        found = np.flatnonzero(self._search.block.numbers == number)
        return int(found[0]) if len(found) else None

    def _exact(self, row: int) -> ExactServices:
        costs = self._search.costs
        chips = costs.costed(np.array([row]))
        return ExactServices(self._search.worth, chips, 0, row, costs.candidates.varied)

    def _best(self, row: int) -> Service | None:
        """The best service on an architecture, of all its ways."""
        exact = self._exact(row)
        found = [one for one in map(exact.best, self._search.ways) if one is not None]
        return max(found, key=lambda one: one.worth, default=None)

    # -- the chip and its plan ------------------------------------------------------------------------------

    def _hardware(self) -> Check:
        """Every architecture that is told is one of the space within its budgets; else nothing can be judged."""
        told = [
            self._chip.architecture,
            *(chip.architecture for chip in (self._two.chips if self._two else ())),
        ]
        wrong = sum(self._row(fields) is None for fields in told)
        return Check(
            name="all chips are in the space and within budget", passed=not wrong, note=f"{len(told)} chips"
        )

    def _question(self) -> Iterator[Check]:
        self._leaves.hold(*[("manifest", name) for name in _QUESTION])
        yield self._leaves.compare(
            "the request as it is told", ("request",), to_jsonable_python(told_request(self.request))
        )
        yield self._leaves.compare("schema", ("schema",), SERVING_SCHEMA)
        yield self._leaves.compare("no simulation", ("simulation",), None)

    def _winner(self) -> Iterator[Check]:
        """The plan of the winner built anew in its way, and whether another way of it is better."""
        row, claimed = self._row(self._chip.architecture), self.document.best
        service = None if row is None else self._exact(row).best(_way(claimed))
        if service is None or row is None:
            yield Check(name="the plan of the winner", passed=False, note="it cannot be built")
            return
        plan, space = service.plan, service.space
        economics = self.request.budgets.economics
        parts: list[tuple[str, BaseModel | None]] = [
            ("best", ServingFigures.model_validate(plan)),
            ("cost", serving_cost(plan, space, economics)),
            ("chip", served_chip(service, plan, self.request)),
        ]
        for name, again in parts:
            yield self._leaves.compare(f"all of {name}", (name,), _json(again))
        starts = [_json(one) for one in engine_starts(plan, space)]
        yield self._leaves.compare("start commands", ("starts",), starts)
        value = self._proof.objective_value
        yield same_figure("objective value is the winner's", value, service.worth)
        best = self._best(row)
        most = 0.0 if best is None else best.worth
        yield _at_most("no way of the winner is better than the bound", most, self._proof.upper_bound)

    @property
    def _proof(self) -> Any:  # noqa: ANN401 - the certificate, which `_chip` has looked for
        return self.document.certificate

    def _certificate(self) -> Iterator[Check]:
        c, size = self._proof, self._search.costs.candidates.size
        over = size - len(self._search.block)
        yield bound_agrees(c)
        counted = c.over_budget + c.pruned + c.evaluated
        passed = c.space_size == size == counted and c.over_budget == over
        note = f"{size:,} architectures, {over:,} over budget"
        yield Check(name="counts", passed=passed and sum(c.pruned_by.values()) == c.pruned, note=note)
        held = ("objective_value", "space_size", "over_budget", *_COUNTS)
        self._leaves.hold(*[("certificate", name) for name in held])
        again = {
            "objective": self.request.objective.value,
            "scope": certified_scope(self.request),
            "plans_per_architecture": len(self._search.ways),
            "frontier_complete": False,
        }
        for name, value in again.items():
            yield self._leaves.compare(name.replace("_", " "), ("certificate", name), value)

    def _next_best(self) -> Iterator[Check]:
        """Chips after the winner promise no more than their best plans, and no more than the winner."""
        known = {name: row for row, name in self._names([one.id for one in self.document.next_best])}
        for k, one in enumerate(self.document.next_best):
            best = self._best(known[one.id]) if one.id in known else None
            most = min(self._proof.objective_value, 0.0 if best is None else best.worth)
            yield _at_most(f"{one.id} is worth what it claims, at most", one.objective_value, most)
            if best is not None:
                table = to_table([best.space.architecture])
                figures = {
                    "id": best.space.architecture.name,
                    "area_mm2": float(area_mm2(table)[0]),
                    "tdp_w": float(tdp_w(table, self.request.budgets.tdp_margin)[0]),
                }
                for name, value in figures.items():
                    yield self._leaves.compare(f"{name} of {one.id}", ("next_best", k, name), value)
            self._leaves.hold(("next_best", k, "objective_value"))

    def _names(self, wanted: list[str]) -> Iterator[tuple[int, str]]:
        """Places of architectures by their names."""
        costs = self._search.costs
        names = architecture_ids(costs.block.table, costs.candidates.varied) if wanted else []
        yield from ((row, name) for row, name in enumerate(names) if name in wanted)

    # -- two chips ------------------------------------------------------------------------------------------

    def _pair(self) -> Iterator[Check]:
        told = self._two
        if not self.request.two_chips or told is None:
            asked = "nothing was asked" if not self.request.two_chips else "it is missing"
            self._leaves.hold(("two_chips",))
            yield Check(name="two chips", passed=(told is None) != self.request.two_chips, note=asked)
            return
        found = self._again()
        if found is None:
            yield Check(name="the plan of two chips", passed=False, note="it cannot be built")
            return
        outcome, one = found
        again = _json(told_pair(outcome, self.request, self._proof.objective_value, one))
        counts = frozenset({"worked_out", "pairs_worked_out"})
        yield self._leaves.compare("all of two chips", ("two_chips",), again, counts)

    def _again(self) -> tuple[PairOutcome, FoundService] | None:
        """The claimed pair built anew, beside the claimed bound, and the one chip beside it."""
        told, row = self._two, self._row(self._chip.architecture)
        service = None if row is None else self._exact(row).best(_way(self.document.best))
        if service is None or told is None:
            return None
        one = FoundService(service.plan, service.space, self.document)
        pair = None
        if told.best is not None:
            pair = self._claimed_pair(told, told.best)
            if pair is None:
                return None
        left = told.upper_bound if told.gap > self.request.gap + SAME else 0.0
        return PairOutcome(pair, left, dict.fromkeys(SIDES, 0), 0), one

    def _claimed_pair(self, told: TwoChips, best: ServingFigures) -> FoundPair | None:
        rows = [self._row(chip.architecture) for chip in told.chips]
        if len(rows) != len(SIDES) or len(best.pools) != len(SIDES):
            return None
        items = [
            exact_item(self._pairs.worth, role, self._exact(row), _shape(pool))
            for role, row, pool in zip(SIDES, rows, best.pools, strict=True)
            if row is not None
        ]
        return self._paired([item for item in items if item is not None])

    def _paired(self, items: list[PoolItem]) -> FoundPair | None:
        if len(items) != len(SIDES):
            return None
        first, second = items
        worked = self._pairs.pairing.worked_out(first, second)
        return None if worked is None else FoundPair(*worked, (first, second))

    # -- samples --------------------------------------------------------------------------------------------

    def _sampled(self) -> tuple[list[Sample], list[Check]]:
        """Architectures, and pairs of them, that a seed draws, none of which may be better than its bound."""
        random = np.random.default_rng(self.seed)
        count = min(self.samples, len(self._search.block))
        rows = random.choice(len(self._search.block), size=count, replace=False).tolist()
        found, most = list[Sample](), 0.0
        for done, row in enumerate(rows):
            self.progress.update("checking samples", done, count, "architectures of the space")
            exact, ways = self._exact(row), self._search.ways
            drawn = [ways[k] for k in random.integers(len(ways), size=_WAYS).tolist()]
            kept = [exact.best(way) for way in (_way(self.document.best), *drawn)]
            value = max((one.worth for one in kept if one is not None), default=0.0)
            chip, watts = exact.space.architecture, float(self._search.block.tdp_w[row])
            found.append(Sample(id=chip.name, stratum="at random", value=value, tdp_w=watts))
            most = max(most, value)
        checks = [_at_most("no sampled architecture beats the bound", most, self._proof.upper_bound)]
        if self._two is not None and rows:
            best = max((self._drawn_pair(rows, random) for _ in range(count)), default=0.0)
            checks.append(_at_most("no sampled pair beats the bound", best, self._two.upper_bound))
        return found, checks

    def _drawn_pair(self, rows: list[int], random: np.random.Generator) -> float:
        """What a pair of two sampled architectures in two shapes is worth, the claimed chip in the place of some."""
        chips = [*rows, *(row for row in (self._row(self._chip.architecture),) if row is not None)]
        items = []
        for role in SIDES:
            shapes = self._pairs.shapes[role]
            shape, row = shapes[random.integers(len(shapes))], chips[random.integers(len(chips))]
            items.append(exact_item(self._pairs.worth, role, self._exact(row), shape))
        pair = self._paired([item for item in items if item is not None])
        return 0.0 if pair is None else pair.worth


def _at_most(name: str, found: float, limit: float) -> Check:
    passed = found <= limit * (1 + SAME)
    return Check(name=name, passed=passed, note=f"{found:.9g}, at most {limit:.9g}")


def _shape(pool: PoolFigures) -> Shape:
    return Shape(pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel, pool.context_parallel)


def _way(best: ServingFigures) -> Way:
    """The way in which a plan serves."""
    first = _shape(best.pools[0])
    if best.policy == Policy.DISAGGREGATED:
        return Way(first, second=_shape(best.pools[-1]))
    return Way(first, best.chunk_tokens if best.policy == Policy.CHUNKED else None)


def _json(record: BaseModel | None) -> Any:  # noqa: ANN401 - any JSON
    return None if record is None else record.model_dump(mode="json", by_alias=True)
