"""What a second chip of a service buys: the best for prefill and the best for decode, beside the best for both."""

from __future__ import annotations

from dataclasses import replace

from phaze.explore.documents.serving_document import (
    PoolChip,
    ServingDocument,
    ServingFigures,
    TwoChips,
    engine_starts,
    serving_cost,
)
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.services.found_service import FoundService
from phaze.explore.services.pair_search import FoundPair, PairOutcome, PairSearch
from phaze.explore.services.second_design import Fleet, second_design
from phaze.explore.services.service_costs import ServiceCosts
from phaze.explore.services.service_request import ServiceRequest
from phaze.hardware.architecture import to_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.tolerances import SAME

SCOPE = [
    "two chips: one for all prefill pools, one for all decode pools, of each pair of replica shapes the split of the "
    "devices that serves most; caches go at the pace of the slower links",
    "two chips: the budgets hold for each; dollars count each design at the volume that was given",
]


def with_pair(found: FoundService, costs: ServiceCosts, progress: Progress, clock: Clock) -> FoundService:
    """The answer for one chip with that for two, which takes the time that is left."""
    known = reached(found.document)
    outcome = PairSearch(costs, known, clock, progress).run()
    manifest = found.document.manifest.model_copy(update={"wall_time_s": clock.elapsed_s})
    told = {"two_chips": told_pair(outcome, costs.request, known, found), "manifest": manifest}
    return replace(found, document=found.document.model_copy(update=told), pair=outcome.pair)


def reached(document: ServingDocument) -> float:
    """What the best one chip is worth."""
    if document.certificate is None:
        msg = "a service without a proof"
        raise ValueError(msg)
    return document.certificate.objective_value


def told_pair(outcome: PairOutcome, request: ServiceRequest, known: float, found: FoundService) -> TwoChips:
    """The best pair as documents tell it, beside one chip that is worth `known`."""
    pair, economics = outcome.pair, request.budgets.economics
    value = known if pair is None else pair.worth
    upper = max(value * (1 + request.gap), outcome.open_worth)
    if upper <= value * (1 + SAME):
        upper = value
    cost = None if pair is None else serving_cost(pair.plan, pair.space, economics)
    paid = None
    if pair is not None and cost is not None:
        paid = second_design(Fleet.of(found.plan, found.space), Fleet.of(pair.plan, pair.space), economics)
    return TwoChips(
        objective_value=value,
        gain=value / known - 1,
        upper_bound=upper,
        gap=upper / value - 1,
        optimal=upper == value,
        chips=[] if pair is None else pool_chips(pair, request),
        best=None if pair is None else ServingFigures.model_validate(pair.plan),
        cost=cost,
        starts=[] if pair is None else engine_starts(pair.plan, pair.space),
        second_design=paid,
        worked_out={str(role): count for role, count in outcome.worked_out.items()},
        pairs_worked_out=outcome.paired,
        scope=SCOPE,
    )


def pool_chips(pair: FoundPair, request: ServiceRequest) -> list[PoolChip]:
    """The chips of a pair."""
    told = []
    for pool in pair.plan.pools:
        chip = pair.space.chip_of(pool.role)
        table = to_table([chip])
        power = float(tdp_w(table, request.budgets.tdp_margin)[0])
        told.append(
            PoolChip(
                id=chip.name,
                role=pool.role.value,
                devices=pool.devices,
                architecture=dict(chip.fields),
                area_mm2=float(area_mm2(table)[0]),
                tdp_w=power,
            )
        )
    return told
