"""What one kind of replica can do: figures at every batch or number of replicas, and which limit each breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats
from phaze.placement.serving.memory import Memory, crowd
from phaze.placement.serving.plan import Binding
from phaze.placement.serving.requests import Targets
from phaze.placement.serving.steady import Cycle, Prefill


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
        """The same where every output token takes longer on average."""
        tpot = self.tpot_s + seconds
        return replace(self, tpot_s=tpot, broken={**self.broken, Binding.TPOT: tpot > targets.tpot_s})


@dataclass(frozen=True)
class Limits:
    """Memory of a device that may be used, and latency targets."""

    memory_bytes: float
    targets: Targets


def full(cycle: Cycle, replicas: int, limits: Limits) -> Offers:
    """Replicas that somebody always waits for, one offer per batch."""
    sequences = cycle.batch * cycle.replica.stages
    state = _State(
        np.full(len(cycle.batch), replicas), cycle.requests_per_s, sequences, np.zeros(len(cycle.batch))
    )
    kept_up = {Binding.CHUNKS: ~cycle.keeps_up}
    return _offers(cycle, state, cycle.memory(sequences), kept_up, limits, Binding.BATCH)


def loaded(saturated: Cycle, most: int, rate_per_s: float, limits: Limits) -> Offers:
    """Replicas that share a Poisson stream, one offer per number of them, most first.

    The batch is what keeps up with the stream; a request sees as many others, and itself. The engine has a place for
    every request of a crowd, so that none waits for one.
    """
    replicas = np.arange(most, 0, -1)
    each = rate_per_s / replicas
    reached = np.maximum.accumulate(np.where(saturated.keeps_up, saturated.requests_per_s, 0.0))
    batch = np.interp(each, [0.0, *reached], [0.0, *saturated.batch])
    seen = replace(saturated, batch=np.minimum(batch + 1, saturated.batch[-1]))
    waiting = seen.waiting_s(each)
    late = {
        Binding.LOAD: (each > reached[-1]) | ~np.isfinite(waiting),
        Binding.BATCH: crowd(batch) > saturated.batch[-1],
    }
    sequences = batch * seen.replica.stages
    state = _State(replicas, each, sequences, waiting)
    return _offers(seen, state, seen.memory(crowd(sequences)), late, limits, Binding.LOAD)


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
    ttft = cycle.prefill_s + state.waiting_s
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
        replicas = np.arange(most, 0, -1)
        each = rate_per_s / replicas
        waiting, at = prefill.waiting_s(each), np.zeros(most, dtype=np.intp)  # one prompt after the other
    prompts, memory = np.array(prefill.prompts, dtype=np.float64)[at], prefill.memory.take(at)
    ttft, nothing = prefill.prefill_s[at] + waiting, np.zeros(len(each))
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
