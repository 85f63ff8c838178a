"""Independent check of a serving plan: its figures against each other and the limits; no code of the search."""

from __future__ import annotations

from math import isclose

from phaze.parallel.recount.plan_checker import PlanError
from phaze.parallel.serving.replicas.replica_offers import Limits
from phaze.parallel.serving.serving_plan import Role, ServingPlan
from phaze.parallel.serving.serving_requests import Traffic
from phaze.tolerances import SAME


def check_serving_plan(
    plan: ServingPlan, traffic: Traffic, limits: Limits, rooms: tuple[float, ...] = ()
) -> None:
    """Raise PlanError where a plan takes too many devices, too much memory or time, or contradicts itself.

    `rooms`: memory of a device of each pool, where their chips are not the same.
    """
    slack = 1 + SAME
    _must(plan.devices <= plan.devices_given, f"{plan.devices} devices of {plan.devices_given}")
    for pool, room in zip(plan.pools, rooms or (limits.memory_bytes,) * len(plan.pools), strict=True):
        _must(
            pool.replicas % pool.expert_parallel == 0,
            f"{pool.replicas} replicas share experts by {pool.expert_parallel}",
        )
        _must(pool.memory_bytes <= room * slack, f"{pool.role}: {pool.memory_bytes} bytes")
    _must(plan.ttft_s <= limits.targets.ttft_s * slack, f"time to first token {plan.ttft_s} s")
    _must(plan.tpot_s <= limits.targets.tpot_s * slack, f"time per output token {plan.tpot_s} s")
    _must(0 <= plan.waiting_s < plan.ttft_s, f"waiting {plan.waiting_s} of {plan.ttft_s} s")
    served = plan.requests_per_s * traffic.mean_outputs
    _must(isclose(plan.tokens_per_s, served, rel_tol=SAME), f"{plan.tokens_per_s} tokens/s")
    _must(plan.requests_per_s <= (traffic.rate_per_s or plan.requests_per_s) * slack, "more than arrives")
    _must(0 < plan.prefill_mfu < 1, f"model FLOPs utilisation {plan.prefill_mfu} of the prefill")
    _little(plan, traffic)


def _little(plan: ServingPlan, traffic: Traffic) -> None:
    """Requests that decode at once are rate x time: no more than there are places in the batches.

    With an arrival rate a place more per engine, for the request that looks.
    """
    decoding = plan.requests_per_s * (plan.tpot_s * traffic.later_tokens - plan.transfer_s)
    places = sum(
        pool.replicas * (pool.sequences + (pool.pipeline_parallel if traffic.rate_per_s else 0))
        for pool in plan.pools
        if pool.role is not Role.PREFILL
    )
    _must(decoding <= places * (1 + SAME), f"{decoding} requests decode in {places} places")


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise PlanError(f"serving plan: {what}")
