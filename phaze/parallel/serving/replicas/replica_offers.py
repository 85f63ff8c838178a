"""Offers of one kind of replica at every batch, and whole plans from such offers: how many, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats
from phaze.cost.pass_energy import full_load_w, static_w
from phaze.parallel.serving.load.prompt_rounds import PromptRounds
from phaze.parallel.serving.load.recorded_waits import mean_place_wait_s
from phaze.parallel.serving.replicas.model_replica import Memory, Replica, crowd
from phaze.parallel.serving.replicas.steady_state import Cycle, Prefill
from phaze.parallel.serving.serving_plan import Binding, Policy, Role
from phaze.parallel.serving.serving_requests import Targets
from phaze.tolerances import LAST_DIGITS

_BALANCING = 12  # steps after which a batch in a closed loop is known to the last digits


@dataclass(frozen=True)
class Offers:
    """Replicas of one kind, one offer per entry, (N,) each; more is served, or on fewer devices, from left to right.

    `requests_per_s` and `joules` (per request, dynamic) of one replica; `broken`: the limits an offer breaks.
    """

    devices: int
    replicas: NDArray[np.int64]
    batch: Floats
    sequences: Floats
    requests_per_s: Floats
    ttft_s: Floats
    waiting_s: Floats
    tpot_s: Floats
    longest_gap_s: Floats
    joules: Floats
    memory: Memory
    broken: Mapping[Binding, Flags]
    end: Binding

    @property
    def kept(self) -> Flags:
        """Offers that break no limit."""
        found: Flags = ~np.any(list(self.broken.values()), axis=0)
        return found

    def delayed(self, seconds: float, targets: Targets) -> Offers:
        """Offers where every output token takes longer on average."""
        tpot = self.tpot_s + seconds
        return replace(self, tpot_s=tpot, broken={**self.broken, Binding.TPOT: tpot > targets.tpot_s})


@dataclass(frozen=True)
class Limits:
    """Memory of a device that may be used, and latency targets."""

    memory_bytes: float
    targets: Targets


def saturated_offers(cycle: Cycle, replicas: int, limits: Limits) -> Offers:
    """Replicas that somebody always waits for, one offer per batch, up to the first that memory has no room for."""
    cycle = held(cycle, limits.memory_bytes, more=1)
    sequences = cycle.batch * cycle.replica.stages
    state = _State(
        np.full(len(cycle.batch), replicas), cycle.requests_per_s, sequences, np.zeros(len(cycle.batch))
    )
    kept_up = {Binding.CHUNKS: ~cycle.keeps_up}
    return _offers(cycle, state, cycle.memory(sequences), kept_up, limits, Binding.BATCH)


def loaded_offers(saturated: Cycle, most: int, rate_per_s: float, limits: Limits) -> Offers:
    """Replicas that share a Poisson stream, one offer per number of them, most first, as many as come together.

    The batch is what keeps up with the stream; a request sees as many others, and itself. The engine has a place for
    every request of a crowd, so that none waits for one.
    """
    saturated = held(saturated, limits.memory_bytes, more=1)
    replicas = np.arange(most, 0, -saturated.replica.together)
    each = rate_per_s / replicas
    reached = np.maximum.accumulate(np.where(saturated.keeps_up, saturated.requests_per_s, 0.0))
    batch = np.interp(each, [0.0, *reached], [0.0, *saturated.batch])
    batch, prompts = _in_rounds(saturated, each, batch)
    seen = replace(saturated, batch=np.minimum(batch + 1, saturated.batch[-1]), streamed=prompts)
    in_time = each <= reached[-1]
    waiting = seen.waiting_s(each)
    waiting[in_time] = np.maximum(
        waiting[in_time], _waits_for_places_s(saturated, replicas[in_time], limits.memory_bytes)
    )
    waiting = waiting + seen.loading.waiting_s(each)
    late = {
        Binding.LOAD: ~in_time | ~np.isfinite(waiting),
        Binding.BATCH: crowd(batch) > saturated.batch[-1],
    }
    sequences = batch * seen.replica.stages
    state = _State(replicas, each, sequences, waiting)
    return _offers(seen, state, seen.memory(crowd(sequences)), late, limits, Binding.LOAD)


def _waits_for_places_s(saturated: Cycle, replicas: NDArray[np.int64], memory_bytes: float) -> Floats:
    """Mean seconds that recorded requests wait for a place on some replicas, (N,), which are full as long as any waits.

    Nothing where arrivals are not told: the crowd of a Poisson stream has places.
    """
    load = saturated.traffic
    if load.recorded is None or load.recorded.arrivals_s is None or load.rate_per_s is None:
        return np.zeros(len(replicas))
    full = held(saturated, memory_bytes)
    places = max(1, int(np.logical_and.accumulate(full.keeps_up).sum()))
    stays_s = full.prefill_s[places - 1] + load.recorded.later * full.tpot_s[places - 1]
    count = places * full.replica.stages
    each = (mean_place_wait_s(load.recorded, load.rate_per_s, n, stays_s, count) for n in replicas.tolist())
    return np.array(list(each))


def _in_rounds(saturated: Cycle, rates_per_s: Floats, batch: Floats) -> tuple[Floats, Floats | None]:
    """Batches (N,) of streams whose prompts go before decode, round after round, and prompts of a round.

    None where prompts go beside decode, one at a time or in parts; recorded ones, and pipelines, are taken as
    saturated ones are.
    """
    alone = len(saturated.chunks) == 1 and not saturated.mixed and saturated.most_prompts > 1
    if not alone or saturated.traffic.recorded is not None or saturated.replica.stages > 1:
        return batch, None
    one, none = np.arange(1.0, saturated.most_prompts + 1), np.zeros(saturated.most_prompts)
    chunk = replace(saturated.chunks[0], prompts=one)
    pass_s = saturated.replica.pass_costs(none, saturated.traffic.mean_context, chunk)[:, 0, 0]
    found, prompts = (
        batch.copy(),
        replace(saturated, batch=np.minimum(batch + 1, saturated.batch[-1])).prompts,
    )
    decode_s = saturated.costs[:, 0, 0, 0]
    for at in np.flatnonzero((batch >= 1) & (batch < saturated.batch[-1])).tolist():
        rounds = PromptRounds.of(float(rates_per_s[at]), pass_s)
        kept = None if rounds is None else rounds.batch(saturated.passes, saturated.batch, decode_s)
        found[at], prompts[at] = (
            (saturated.batch[-1], 1.0) if kept is None else kept
        )  # too many for its places
    return found, prompts


def closed_offers(saturated: Cycle, most: int, clients: int, limits: Limits) -> Offers:
    """Replicas that share clients who ask again as soon as answered, one offer per number of them, fewest first.

    The batch is the one at which as many requests are on a replica as clients, or the largest that memory and the
    engine have places for; whoever has none waits for the next one that falls free. A replica with fewer clients than a
    batch of one for each stage takes is none.
    """
    together = saturated.replica.together
    replicas = np.arange(together, most + 1, together)
    each = clients / replicas
    seen, waiting = closed_loop(saturated, each, limits.memory_bytes)
    sequences = seen.batch * seen.replica.stages
    state = _State(replicas, seen.requests_per_s, sequences, waiting)
    unlike = {Binding.LOAD: each < saturated.clients[0], Binding.CHUNKS: ~seen.keeps_up}
    return _offers(seen, state, seen.memory(sequences), unlike, limits, Binding.LOAD)


def closed_loop(saturated: Cycle, clients: Floats, memory_bytes: float) -> tuple[Cycle, Floats]:
    """What so many clients make of each replica, (N,): its cycle, and the seconds that a request waits for a place.

    `saturated` has every batch from one up; those that memory has no room for, or that do not keep up, are none.
    """
    most = (
        int(np.ceil(clients.max() / saturated.replica.stages)) + 1
    )  # a batch of more has more requests than clients
    saturated = held(replace(saturated, batch=saturated.batch[:most]), memory_bytes)
    places = max(1, int(np.logical_and.accumulate(saturated.keeps_up).sum()))
    on_it = np.maximum.accumulate(saturated.clients[:places])
    seen = _balanced(saturated, clients, on_it)
    return seen, np.maximum(clients - on_it[-1], 0.0) / seen.requests_per_s + seen.loading.mean_s


def _balanced(saturated: Cycle, clients: Floats, on_it: Floats) -> Cycle:
    """The cycle at batches (N,) of which as many clients (N,) are on the replica, between those of its batches `on_it`.

    Between two whole batches by the false position with halved ends (Illinois); where that has not ended, the batch
    that takes fewer clients.
    """
    batch = np.interp(clients, on_it, saturated.batch[: len(on_it)])
    inside = (clients > on_it[0]) & (clients < on_it[-1])
    at = np.clip(np.searchsorted(on_it, clients, side="right") - 1, 0, max(len(on_it) - 2, 0))
    over = np.minimum(at + 1, len(on_it) - 1)
    low, high = saturated.batch[at], saturated.batch[over]
    short, beyond, side = on_it[at] - clients, on_it[over] - clients, np.zeros(len(clients))
    for _ in range(_BALANCING):
        seen = replace(saturated, batch=batch)
        missed = seen.clients - clients
        open_ = inside & (np.abs(missed) > clients * LAST_DIGITS)
        if not open_.any():
            return seen
        now = np.where(missed <= 0, -1.0, 1.0)
        again, under = now == side, now < 0  # an end that stays twice counts half
        low, high = np.where(open_ & under, batch, low), np.where(open_ & ~under, batch, high)
        short = np.where(under, missed, np.where(again, short / 2, short))
        beyond = np.where(under, np.where(again, beyond / 2, beyond), missed)
        side = now
        with np.errstate(divide="ignore", invalid="ignore"):
            next_ = (low * beyond - high * short) / (beyond - short)
        batch = np.where(open_, next_, batch)
    missed = replace(saturated, batch=batch).clients - clients
    return replace(saturated, batch=np.where(inside & (missed > clients * LAST_DIGITS), low, batch))


def held(cycle: Cycle, memory_bytes: float, more: int = 0) -> Cycle:
    """The cycle at those of its batches, ascending, that memory has room for, and so many more; one at least."""
    fits = cycle.memory(cycle.batch * cycle.replica.stages).total_bytes <= memory_bytes
    count = max(1, int(np.logical_and.accumulate(fits).sum()) + more)
    return cycle if count >= len(fits) else replace(cycle, batch=cycle.batch[:count])


@dataclass(frozen=True, slots=True)
class _State:
    """Replicas, what each serves, the sequences on it, and what a request waits, (N,) each."""

    replicas: NDArray[np.int64]
    requests_per_s: Floats
    sequences: Floats
    waiting_s: Floats


def _offers(
    cycle: Cycle, state: _State, memory: Memory, broken: Mapping[Binding, Flags], limits: Limits, end: Binding
) -> Offers:
    ttft = cycle.prefill_s + state.waiting_s + cycle.replica.overheads.request_s
    return Offers(
        devices=cycle.replica.devices,
        replicas=state.replicas,
        batch=state.sequences / cycle.replica.stages,
        sequences=state.sequences,
        requests_per_s=state.requests_per_s,
        ttft_s=ttft,
        waiting_s=state.waiting_s,
        tpot_s=cycle.tpot_s,
        longest_gap_s=cycle.longest_gap_s,
        joules=cycle.joules,
        memory=memory,
        broken={
            Binding.MEMORY: memory.total_bytes > limits.memory_bytes,
            Binding.TTFT: ttft > limits.targets.ttft_s,
            Binding.TPOT: cycle.tpot_s > limits.targets.tpot_s,
            **broken,
        },
        end=end,
    )


def prefilling(prefill: Prefill, limits: Limits, most: int, rate_per_s: float | None) -> Offers:
    """Replicas of a prefill pool: one offer per number of prompts at once, or, sharing a stream, of replicas."""
    if rate_per_s is None:
        replicas, each = np.ones(len(prefill.prompts), dtype=np.int64), prefill.requests_per_s
        waiting, at = np.zeros(len(each)), np.arange(len(each))
    else:
        replicas = np.arange(most, 0, -prefill.replica.together)
        each = rate_per_s / replicas
        waiting, at = (
            prefill.waiting_s(each) + prefill.loading.waiting_s(each),
            np.zeros(len(replicas), dtype=np.intp),
        )  # one prompt after the other
    prompts, memory = np.array(prefill.prompts, dtype=np.float64)[at], prefill.memory.take(at)
    ttft = prefill.prefill_s[at] + waiting + prefill.replica.overheads.request_s
    nothing = np.zeros(len(each))
    return Offers(
        devices=prefill.replica.devices,
        replicas=replicas,
        batch=prompts,
        sequences=prompts * prefill.replica.stages,
        requests_per_s=each,
        ttft_s=ttft,
        waiting_s=waiting,
        tpot_s=nothing,
        longest_gap_s=nothing,
        joules=prefill.joules[at],
        memory=memory,
        broken={
            Binding.MEMORY: memory.total_bytes > limits.memory_bytes,
            Binding.TTFT: ttft > limits.targets.ttft_s,
            Binding.LOAD: ~np.isfinite(waiting),
        },
        end=Binding.BATCH if rate_per_s is None else Binding.LOAD,
    )


@dataclass(frozen=True)
class PoolChoice:
    """One pool: `count` replicas at the offer `at`."""

    role: Role
    replica: Replica
    offers: Offers
    at: int
    count: int

    @property
    def devices(self) -> int:
        """Devices of the pool."""
        return self.count * self.offers.devices

    def request_j(self, requests_per_s: float) -> tuple[float, float]:
        """Joules for one of so many requests per second, what flows meanwhile in all devices included; at full load."""
        table, device_s = self.replica.grid.chip.table, self.devices / requests_per_s
        worked = float(self.offers.joules[self.at]) + float(static_w(table)[0]) * device_s
        return worked, float(full_load_w(table)[0]) * device_s


@dataclass(frozen=True)
class ServingChoice:
    """A plan in the making; `requests_per_s` of all devices."""

    policy: Policy
    parts: tuple[PoolChoice, ...]
    requests_per_s: float
    binding: Binding
    chunk_tokens: int
    transfer_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        """Time to first token: the first pool makes it."""
        return float(self.parts[0].offers.ttft_s[self.parts[0].at])

    @property
    def tpot_s(self) -> float:
        """Time per output token: the last pool makes them."""
        return float(self.parts[-1].offers.tpot_s[self.parts[-1].at])

    @property
    def request_j(self) -> tuple[float, ...]:
        """Joules of one request in each pool; all of them together at most full load."""
        worked, full = zip(*(part.request_j(self.requests_per_s) for part in self.parts), strict=True)
        held = min(1.0, sum(full) / sum(worked))
        return tuple(joules * held for joules in worked)

    @property
    def rank(self) -> tuple[float, int, float]:
        """Smaller is better: more requests, fewer devices, faster tokens."""
        return -self.requests_per_s, sum(part.devices for part in self.parts), self.tpot_s


def together(
    policy: Policy, replica: Replica, offers: Offers, chunk: int, rate_per_s: float | None
) -> ServingChoice | None:
    """The best that replicas of one kind do with prompts and decode on the same devices; None if nothing is kept."""
    at = best_offer(offers, rate_per_s)
    return None if at is None else chosen(policy, replica, offers, at, chunk, rate_per_s)


def chosen(
    policy: Policy, replica: Replica, offers: Offers, at: int, chunk: int, rate_per_s: float | None
) -> ServingChoice:
    """The plan that an offer of replicas of one kind makes."""
    part = PoolChoice(Role.BOTH, replica, offers, at, int(offers.replicas[at]))
    served = part.count * float(offers.requests_per_s[at]) if rate_per_s is None else rate_per_s
    return ServingChoice(policy, (part,), served, binding_limit(offers, at), chunk)


def best_offer(offers: Offers, rate_per_s: float | None) -> int | None:
    """The offer within all limits that serves most, or serves the stream on the fewest replicas."""
    kept = np.flatnonzero(offers.kept)
    if not len(kept):
        return None
    served = offers.requests_per_s * offers.replicas
    return int(kept[-1] if rate_per_s is not None else kept[served[kept].argmax()])


def binding_limit(offers: Offers, at: int) -> Binding:
    """Limit that the next offer breaks; where it breaks nothing it serves no more, and where there is none, its end."""
    if at + 1 == len(offers.replicas):
        return offers.end
    return next((limit for limit, broken in offers.broken.items() if broken[at + 1]), Binding.NOTHING)
