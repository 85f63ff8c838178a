"""Waiting of recorded arrivals, request by request: for an engine's passes, and for a place among what it decodes."""

from __future__ import annotations

from heapq import heapreplace

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.serving.load.recorded_load import RecordedLoad


def lindley_s(arrivals_s: Floats, service_s: Floats) -> Floats:
    """Seconds that each of some requests waits for one server, first come first served, (N,).

    W(n + 1) = max(0, W(n) + S(n) - A(n)) (Lindley, "The theory of queues with a single server", 1952), which is how far
    the sum of all S - A before lies above the least of such sums so far.
    """
    steps = np.concatenate([[0.0], np.cumsum(service_s[:-1] - np.diff(arrivals_s))])
    found: Floats = steps - np.minimum.accumulate(steps)
    return found


def longer_waits_s(recorded: RecordedLoad, rate_per_s: float, engines: int, service_s: Floats) -> float:
    """Mean seconds that recorded requests, `service_s` (N,) each, wait beyond those of a Poisson stream.

    They are dealt to so many engines in turn, and come at `rate_per_s` to all of these together. Below zero where they
    come more evenly; nothing where arrivals are not told, or one engine has too much to do.
    """
    if recorded.arrivals_s is None or recorded.rate_per_s is None:
        return 0.0
    own = service_s[::engines]
    load = rate_per_s / engines * float(own.mean())
    if load >= 1 or len(own) < _FEW:
        return 0.0
    arrivals_s = recorded.arrivals_s[::engines] * (recorded.rate_per_s / rate_per_s)
    poisson_s = load * float((own**2).mean()) / (2 * float(own.mean()) * (1 - load))
    return float(lindley_s(arrivals_s, own).mean()) - poisson_s


def place_waits_s(arrivals_s: Floats, residence_s: Floats, places: int) -> Floats:
    """Seconds that each request waits for one of some places, first come first served, (N,).

    Whoever comes takes the place that falls free first (Kiefer and Wolfowitz, "On the theory of queues with many
    servers", 1955).
    """
    free, found = [-np.inf] * places, np.zeros(len(arrivals_s))
    for at, (arrival, stays) in enumerate(zip(arrivals_s.tolist(), residence_s.tolist(), strict=True)):
        begins = max(arrival, free[0])
        heapreplace(free, begins + stays)
        found[at] = begins - arrival
    return found


def mean_place_wait_s(
    recorded: RecordedLoad, rate_per_s: float, replicas: int, residence_s: Floats, places: int
) -> float:
    """Mean seconds that recorded requests wait for a place, dealt to so many replicas in turn.

    Nothing where arrivals are not told.
    """
    if recorded.arrivals_s is None or recorded.rate_per_s is None:
        return 0.0
    arrivals_s = recorded.arrivals_s[::replicas][:_MOST] * (recorded.rate_per_s / rate_per_s)
    stays_s = residence_s[::replicas][:_MOST]
    if _most_at_once(arrivals_s, stays_s) <= places:
        return 0.0
    return float(place_waits_s(arrivals_s, stays_s, places).mean())


def _most_at_once(arrivals_s: Floats, stays_s: Floats) -> int:
    """Requests that are there at once, at most, if none waits."""
    gone = np.searchsorted(np.sort(arrivals_s + stays_s), arrivals_s, side="right")
    return int((np.arange(1, len(arrivals_s) + 1) - gone).max())


_MOST = 20_000
"""Requests of an engine that are looked at one by one: the first ones."""
_FEW = 16
"""Requests of an engine of which a mean wait tells nothing."""
