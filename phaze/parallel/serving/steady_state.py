"""The steady state of replicas that decode many sequences, with prompts among the passes or apart, slot by slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.parallel.serving.model_replica import Chunk, Memory, Replica, replica_memory
from phaze.parallel.serving.serving_requests import Traffic
from phaze.tolerances import LAST_DIGITS


@dataclass(frozen=True)
class Slots:
    """Kinds of passes: seconds of each on every stage, (B, K, p), and the share of each among all passes, (B, K).

    The batches in flight are of independent kinds, and all wait for the longest: a little pessimistic, for a real
    pipeline lets a batch move on when the next stage is free.
    """

    seconds: Floats
    share: Floats

    def mean_s(self) -> Floats:
        """Expected length of a slot, (B,)."""
        return self._expected(self._below(np.arange(self.seconds.shape[2])))

    def round_s(self, kind: int) -> Floats:
        """Time of a pass of some kind through all stages, (B,), the other batches as they come."""
        total, stages = np.zeros(len(self.share)), np.arange(self.seconds.shape[2])
        for at in stages:
            own = self.seconds[:, kind, at, None] <= self._lengths
            total += self._expected(self._below(np.delete(stages, at)) * own)
        return total

    @property
    def _lengths(self) -> Floats:
        """All lengths a slot can have, (B, K p), ascending."""
        return np.sort(self.seconds.reshape(len(self.share), -1), axis=1)

    def _below(self, stages: NDArray[np.intp]) -> Floats:
        """Chance that the passes on some stages take no longer than each length, (B, K p)."""
        chance, lengths = np.ones((len(self.share), self.seconds[0].size)), self._lengths
        for at in stages:
            shorter = self.seconds[:, :, at, None] <= lengths[:, None, :]
            chance *= (shorter * self.share[:, :, None]).sum(axis=1)
        return chance

    def _expected(self, below: Floats) -> Floats:
        found: Floats = (self._lengths * np.diff(below, axis=1, prepend=0.0)).sum(axis=1)
        return found


@dataclass(frozen=True)
class Cycle:
    """Replicas at batches (B,) of one engine: prompts in `chunks` passes, beside decode (`mixed`) or alone.

    `chunks` is empty where prompts come from elsewhere. `most_prompts`: whole prompts that one pass takes at most.
    """

    replica: Replica
    traffic: Traffic
    batch: Floats
    chunks: tuple[Chunk, ...] = ()
    mixed: bool = False
    most_prompts: int = 1

    @cached_property
    def prompts(self) -> Floats:
        """Prompts of a pass that has any, on average, (B,)."""
        if len(self.chunks) != 1:
            return np.ones(len(self.batch))
        return prompts_together(self.batch, self.traffic, self.most_prompts, mixed=self.mixed)

    @cached_property
    def costs(self) -> Floats:
        """Seconds and joules of every kind of pass, (B, J, p, 2): plain decode first, then the chunks."""
        context, beside = self.traffic.mean_context, self.batch if self.mixed else np.zeros_like(self.batch)
        plain = self.replica.pass_costs(self.batch, context)
        chunks = [replace(c, prompts=self.prompts) for c in self.chunks]
        return np.stack([plain, *(self.replica.pass_costs(beside, context, c) for c in chunks)], axis=1)

    @cached_property
    def counts(self) -> Floats:
        """Passes of every kind in a cycle, (B, J); fewer plain ones than none where chunks are too many."""
        chunks = np.repeat((self.batch / self.prompts)[:, None], len(self.chunks), axis=1)
        beside = chunks.sum(axis=1) if self.mixed else 0.0
        plain = np.broadcast_to(self.traffic.passes - beside, self.batch.shape)
        return np.concatenate([plain[:, None], chunks], axis=1)

    @property
    def keeps_up(self) -> NDArray[np.bool_]:
        """Whether there are passes enough for the chunks, (B,)."""
        found: NDArray[np.bool_] = self.counts[:, 0] >= -LAST_DIGITS * self.traffic.passes
        return found

    @cached_property
    def slots(self) -> Slots:
        """The passes as slots of the pipeline: plain decode, and the chunks, which differ little, as their mean."""
        seconds, counts = self.costs[..., 0], np.maximum(self.counts, 0.0)
        kinds = [seconds[:, 0], *([seconds[:, 1:].mean(axis=1)] if self.chunks else [])]
        plain = counts[:, :1] / counts.sum(axis=1, keepdims=True)
        return Slots(np.stack(kinds, axis=1), np.concatenate([plain, 1 - plain], axis=1)[:, : len(kinds)])

    @cached_property
    def requests_per_s(self) -> Floats:
        """Requests that one replica serves with full batches, (B,)."""
        found: Floats = self.batch / (self._passes * self.slots.mean_s())
        return found

    @property
    def clients(self) -> Floats:
        """Requests of one replica, (B,): sequences in its batches, and by Little's law those on the way to it.

        Prompts that fill beside decode are on the way, too.
        """
        before = self.replica.overheads.request_s + (self.prefill_s if self.mixed else 0.0)
        return self.batch * self.replica.stages + self.requests_per_s * before

    @cached_property
    def prefill_s(self) -> Floats:
        """Time to first token of a request that waits for nobody, (B,); none where prompts come from elsewhere."""
        if not self.chunks:
            return np.zeros(len(self.batch))
        held_up = self.slots.round_s(1) - self.slots.seconds[:, 1].sum(axis=-1)
        found: Floats = self.service_s - held_up  # the last pass goes through as fast as its stages let it
        return found

    @cached_property
    def service_s(self) -> Floats:
        """Seconds for which the prompts of a pass keep their engine from the next ones, (B,)."""
        return len(self.chunks) * self.slots.round_s(1) if self.chunks else np.zeros(len(self.batch))

    def waiting_s(self, requests_per_s: Floats) -> Floats:
        """Mean wait of a request of a Poisson stream before its prefill, s, (B,); infinite where prompts pile up.

        An M/G/1 queue whose server, when no prompt waits, is away for a decode pass (Doshi, "Queueing systems
        with vacations", 1986): what is left of the pass in progress, S / 2 or D / 2, over 1 - rho for those ahead in
        the queue. Where k prompts share a pass, it is one with prompts with chance rate S / k, and rho is the load of
        passes that are full, as all who wait go into the next one unless it is.
        """
        if not self.chunks:
            return np.zeros(len(self.batch))
        rate = requests_per_s / self.replica.stages
        prefilling, full = np.minimum(rate * self.service_s / self.prompts, 1.0), self._full_load(rate)
        decoding = (1 - prefilling) * (1 - np.exp(-self.batch))
        left = (prefilling * self.service_s + decoding * self.slots.round_s(0)) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(full < 1, left / (1 - full), np.inf)

    def _full_load(self, rate: Floats) -> Floats:
        """Share of its time that an engine needs for the prompts of such a rate if every pass takes all that it can."""
        if len(self.chunks) != 1 or self.most_prompts == 1:
            return np.minimum(rate * self.service_s, 1.0)
        beside = self.batch if self.mixed else np.zeros_like(self.batch)
        whole = replace(self.chunks[0], prompts=self.most_prompts)
        full_s = self.replica.pass_costs(beside, self.traffic.mean_context, whole)[..., 0].max(axis=-1)
        found: Floats = np.minimum(rate * full_s * self.replica.stages / self.most_prompts, 1.0)
        return found

    @cached_property
    def tpot_s(self) -> Floats:
        """Time per output token after the first, (B,)."""
        residence = self._passes * self.replica.stages * self.slots.mean_s()
        own = self.service_s if self.chunks and not self.mixed else 0.0
        return (residence - own) / self.traffic.passes

    @cached_property
    def longest_gap_s(self) -> Floats:
        """Longest gap between two tokens of a sequence, (B,): a decode pass after a prompt, or a mixed pass."""
        longest = self.replica.stages * self.costs[..., 0].max(axis=(1, 2))
        found: Floats = longest if self.mixed or not self.chunks else longest + self.slots.round_s(0)
        return found

    @cached_property
    def joules(self) -> Floats:
        """Joules of all that happens for one request, all devices of a replica together, (B,)."""
        each = self.costs[..., 1].sum(axis=-1) * self.replica.grid.width
        found: Floats = (np.maximum(self.counts, 0.0) * each).sum(axis=1) / self.batch
        return found

    def memory(self, sequences: Floats) -> Memory:
        """Memory with room for so many sequences, (B,), of a replica.

        Prompts that go beside decode fill a place of their own.
        """
        chunk = max((c.tokens for c in self.chunks), default=0) * self.most_prompts
        each = sequences / self.replica.stages
        tokens = each + chunk if self.mixed else np.maximum(each, chunk)
        filling = self.replica.stages * self.most_prompts if self.mixed else 0
        return replica_memory(self.replica, sequences, filling, tokens)

    @cached_property
    def _passes(self) -> Floats:
        found: Floats = np.maximum(self.counts, 0.0).sum(axis=1)
        return found


def prompts_together(batch: Floats, traffic: Traffic, most: int, *, mixed: bool) -> Floats:
    """Whole prompts of a pass that has any, on average, at batches (B,), none falling with the batch; it takes `most`.

    Of b sequences m = b / (O - 1) end in a pass; where they are of all ages, a Poisson number N. Their places are taken
    in the next pass, beside decode, by m / (1 - e^-m) prompts if there are any, or before it, in ceil(N / most) passes.
    """
    ended = np.maximum(batch / traffic.passes, LAST_DIGITS)
    if mixed or most == 1:
        return np.minimum(ended / -np.expm1(-ended), float(most))
    found: Floats = ended / _passes_of(ended, most)
    return found


def _passes_of(mean: Floats, most: int) -> Floats:
    """Mean of ceil(N / most) over Poisson numbers N of some means (B,): the sum of the chances of N > j most."""
    last = int(np.ceil(mean.max() + 10 * np.sqrt(mean.max()) + 20))
    counts = np.arange(last + 1)
    logs = (
        counts * np.log(mean)[:, None]
        - mean[:, None]
        - np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    )
    found: Floats = np.exp(logs) @ np.ceil(counts / most)
    return found


def chunks_of(traffic: Traffic, chunk: int) -> tuple[Chunk, ...]:
    """A prompt in as many passes as chunks of that size make, all of them whole."""
    count = -(-traffic.prompt_tokens // chunk)
    last = traffic.prompt_tokens - chunk
    return tuple(Chunk(chunk, min(i * chunk, last), last=i == count - 1) for i in range(count))


@dataclass(frozen=True)
class Prefill:
    """Replicas that do nothing but prefill, some prompts (B,) at a time."""

    replica: Replica
    traffic: Traffic
    prompts: tuple[int, ...]

    @cached_property
    def costs(self) -> Floats:
        """Seconds and joules of a pass, (B, p, 2)."""
        size = self.traffic.prompt_tokens
        return np.stack([self.replica.pass_costs(0, size, Chunk(size, prompts=n)) for n in self.prompts])

    @property
    def requests_per_s(self) -> Floats:
        """Prompts of one replica, (B,)."""
        found: Floats = np.array(self.prompts) / self.costs[..., 0].max(axis=-1)
        return found

    @property
    def prefill_s(self) -> Floats:
        """Time to first token of a request that waits for nobody, (B,)."""
        found: Floats = self.costs[..., 0].sum(axis=-1)
        return found

    def waiting_s(self, requests_per_s: Floats) -> Floats:
        """Mean wait of a request of a Poisson stream, prompts one by one, s: an M/D/1 queue (DistServe, eq. 1)."""
        service = self.costs[0, :, 0].max(axis=-1)
        load = np.minimum(requests_per_s * service, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(load < 1, load * service / (2 * (1 - load)), np.inf)

    @property
    def joules(self) -> Floats:
        """Joules of all that happens for one prompt, (B,)."""
        found: Floats = self.costs[..., 1].sum(axis=-1) * self.replica.grid.width / np.array(self.prompts)
        return found

    @cached_property
    def memory(self) -> Memory:
        """Memory with the caches of the prompts of every stage, (B,); they leave for the decode pool."""
        prompts = np.array(self.prompts, dtype=np.float64)
        return replica_memory(
            self.replica, 0.0, prompts * self.replica.stages, prompts * self.traffic.prompt_tokens
        )
