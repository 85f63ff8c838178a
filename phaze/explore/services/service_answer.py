"""The answer to the question for the chip of a service: the serving document with the chip and its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np

from phaze.errors import InfeasibleError, OutOfTimeError
from phaze.explore.answers.certificate_counts import PointCounts, certificate
from phaze.explore.answers.exploration import distinct_kinds
from phaze.explore.documents.result_document import Certificate
from phaze.explore.documents.result_manifest import manifest
from phaze.explore.documents.serving_document import (
    NextService,
    ServedChip,
    ServingDocument,
    ServingFigures,
    engine_starts,
    serving_cost,
    serving_request,
)
from phaze.explore.request.search_progress import Clock, ClockShare, Progress
from phaze.explore.services.exact_services import Service
from phaze.explore.services.found_service import FoundService
from phaze.explore.services.pair_answer import with_pair
from phaze.explore.services.service_request import ServiceRequest
from phaze.explore.services.service_search import ServiceOutcome, ServiceSearch
from phaze.hardware.architecture import to_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.serving import ServingPlan

NEXT_BEST = 5


def find_service(request: ServiceRequest, progress: Progress, clock: Clock, seed: int = 0) -> FoundService:
    """The architecture and the plan that serve best, with a proof.

    Raises InfeasibleError where no architecture keeps the budgets or no plan the targets, OutOfTimeError where the
    time limit passes before a plan is known.
    """
    first = ClockShare(clock.left() / 2, whole=clock) if request.two_chips else clock
    started, search = datetime.now(UTC), ServiceSearch(request, first, progress)
    outcome = search.run()
    if not outcome.services:
        raise _nothing(search, outcome)
    kinds = distinct_services(outcome.services, request)
    best = kinds[0]
    plan, economics = best.plan, request.budgets.economics
    document = ServingDocument(
        request=told_request(request),
        best=ServingFigures.model_validate(plan),
        cost=serving_cost(plan, best.space, economics),
        simulation=None,
        starts=engine_starts(plan, best.space),
        chip=served_chip(best, plan, request),
        certificate=_certificate(search, outcome),
        next_best=[_next(service, request) for service in kinds[1 : NEXT_BEST + 1]],
        manifest=manifest(started, clock.elapsed_s, seed),
    )
    found = FoundService(plan, best.space, document)
    return with_pair(found, search.costs, progress, clock) if request.two_chips else found


def told_request(request: ServiceRequest) -> dict[str, object]:
    """What was asked, as documents tell it, every default spelled out."""
    budgets = asdict(request.budgets)
    given = dict(request.budgets.economics.given)
    asked = {name: budgets[name] for name in ("power_w", "area_mm2", "power_density_w_per_mm2", "dvfs")}
    told = serving_request(request.plans) | asked
    return told | {
        **({"designs": 2} if request.two_chips else {}),
        "architecture": f"space {request.space.name}",
        "objective": request.objective.value,
        "economics": given,
    }


def served_chip(best: Service, plan: ServingPlan, request: ServiceRequest) -> ServedChip:
    """The architecture of a service as documents tell it."""
    chip = best.space.architecture
    table = to_table([chip])
    power = float(tdp_w(table, request.budgets.tdp_margin)[0])
    return ServedChip(
        id=chip.name,
        architecture=dict(chip.fields),
        area_mm2=float(area_mm2(table)[0]),
        tdp_w=power,
        tokens_per_s_per_w=plan.tokens_per_s / (plan.devices * power),
    )


def distinct_services(services: Sequence[Service], request: ServiceRequest) -> list[Service]:
    """The first service on each kind of chip: where area and TDP are equal, the same cores are grouped otherwise."""
    table = to_table([service.space.architecture for service in services])
    figures = np.column_stack([tdp_w(table, request.budgets.tdp_margin), area_mm2(table)])
    return [services[at] for at in distinct_kinds(range(len(services)), lambda at: figures[at].tolist())]


def _next(service: Service, request: ServiceRequest) -> NextService:
    plan, table = service.plan, to_table([service.space.architecture])
    return NextService(
        id=service.space.architecture.name,
        area_mm2=float(area_mm2(table)[0]),
        tdp_w=float(tdp_w(table, request.budgets.tdp_margin)[0]),
        objective_value=service.worth,
        tokens_per_s=plan.tokens_per_s,
        devices=plan.devices,
    )


def _certificate(search: ServiceSearch, outcome: ServiceOutcome) -> Certificate:
    size = search.costs.candidates.size
    counts = PointCounts(
        size,
        size - outcome.in_budget,
        outcome.evaluated,
        {n: c for n, c in outcome.pruned_by.items() if c},
    )
    hoped = outcome.open_worth.tolist()
    worth = outcome.services[0].worth
    if search.request.gap:
        hoped.append(worth * (1 + search.request.gap))
    return certificate(
        search.request.objective.value,
        worth,
        hoped,
        counts,
        certified_scope(search.request),
        complete=False,
        plans_each=outcome.ways,
    )


def certified_scope(request: ServiceRequest) -> list[str]:
    """What the certificate speaks of."""
    plans, o = request.plans, request.plans.options
    return [
        f"up to {plans.devices} devices, network {plans.network.name}, fidelity {o.rung.value}",
        f"{len(plans.grids)} tensor and expert degrees, pipelines, chunks, batches up to {o.largest_batch}",
        "two pools: of each pair of shapes the split that serves most"
        if plans.apart
        else "one pool for both phases",
        "all requests of one kind, targets for means",
    ]


def _nothing(search: ServiceSearch, outcome: ServiceOutcome) -> InfeasibleError | OutOfTimeError:
    """Why there is no service: time was over, or the limits, with what the nearest architecture would need."""
    request = search.request
    if len(outcome.open_worth):
        return OutOfTimeError("no service was found within the time limit; give more with --time-limit")
    nearest = search.nearest_refusal()
    message = (
        f"no architecture of space {request.space.name} serves {request.plans.workload} within the limits"
    )
    return InfeasibleError(f"{message}; the nearest one looked at: {nearest}", nearest.shortfalls)
