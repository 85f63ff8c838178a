"""Why nothing serves: what falls short of all that was offered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from phaze.errors import InfeasibleError, Shortfall
from phaze.parallel.serving.replicas.replica_offers import Offers
from phaze.parallel.serving.serving_plan import Binding
from phaze.parallel.serving.serving_space import ServingSpace


def refusal(space: ServingSpace, seen: Sequence[Offers]) -> InfeasibleError:
    """The error that tells what falls short, from all offers that were made."""
    what = f"{space.workload} cannot be served on {space.devices} x {space.architecture.name}"
    if not seen:
        return InfeasibleError(f"{what}: no replica can be formed")
    needed = min(float(offers.memory.total_bytes.min()) for offers in seen)
    if needed > space.limits.memory_bytes:
        share, kept = space.options.memory_share, space.options.prefix_cache_bytes
        short = Shortfall(
            f"memory of one device ({100 * share:.3g} % of it can be used)",
            (space.limits.memory_bytes + kept) / share,
            (needed + kept) / share,
            "bytes",
            ("more devices per replica (--devices)", "an architecture with more memory", "shorter requests"),
        )
        return InfeasibleError(f"{what}: it does not fit in memory", (short,))
    shortfalls = tuple(_latencies(space, seen))
    if shortfalls:
        return InfeasibleError(f"{what} within the latency targets", shortfalls)
    return InfeasibleError(f"{what}{_asked(space)} within all limits at once; {_advice(space)}")


def _asked(space: ServingSpace) -> str:
    rate = space.traffic.rate_per_s
    return "" if rate is None else f" at {rate:g} requests/s"


def _advice(space: ServingSpace) -> str:
    levers = ["relax a target", "add devices"]
    if space.options.disaggregate:
        levers.append("allow one pool for prefill and decode")
    if space.traffic.rate_per_s is not None:
        levers.append("ask without a rate how much can be served")
    return ", or ".join(levers)


def _latencies(space: ServingSpace, seen: Sequence[Offers]) -> Iterable[Shortfall]:
    targets = space.limits.targets
    for limit, figure, target, levers in (
        (
            Binding.TTFT,
            "ttft_s",
            targets.ttft_s,
            ("a shorter prompt", "a faster architecture", "more devices"),
        ),
        (Binding.TPOT, "tpot_s", targets.tpot_s, ("more memory bandwidth", "faster links", "more devices")),
    ):
        least = min(_least(offers, figure) for offers in seen if limit in offers.broken)
        if least > target:
            yield Shortfall(limit.value, target, least, "s", levers)


def _least(offers: Offers, figure: str) -> float:
    """Smallest latency of the offers that fit in memory; nothing where no prompt or no token is made."""
    values = np.where(offers.broken[Binding.MEMORY], np.inf, getattr(offers, figure))
    return float(np.min(values, where=values > 0, initial=np.inf))
