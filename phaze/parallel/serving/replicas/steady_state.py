"""The steady state of replicas that decode many sequences, with prompts among the passes or apart, slot by slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.parallel.serving.load.prompt_passes import PromptPasses
from phaze.parallel.serving.load.recorded_waits import longer_waits_s
from phaze.parallel.serving.replicas.model_replica import Chunk, Memory, Replica, replica_memory
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
        return self._expected(self._below[0] * self._others[0])

    def rounds_s(self) -> Floats:
        """Time of a pass of each kind through all stages, (B, K), the other batches as they come."""
        return np.stack([self.round_s(kind) for kind in range(self.seconds.shape[1])], axis=1)

    def round_s(self, kind: int) -> Floats:
        """Time of a pass of some kind through all stages, (B,), the other batches as they come."""
        if len(self._others) == 1:
            return self.seconds[:, kind, 0]
        own = self.seconds[:, kind, :, None] <= self._lengths[:, None, :]
        each = [self._expected(others * own[:, at]) for at, others in enumerate(self._others)]
        found: Floats = np.sum(each, axis=0)
        return found

    @cached_property
    def _lengths(self) -> Floats:
        """All lengths a slot can have, (B, K p), ascending."""
        return np.sort(self.seconds.reshape(len(self.share), -1), axis=1)

    @cached_property
    def _below(self) -> list[Floats]:
        """Chance that the pass on a stage takes no longer than each length, (B, K p), by stage."""
        found = [np.zeros(self._lengths.shape) for _ in range(self.seconds.shape[2])]
        for at in range(len(found)):
            for kind, share in enumerate(self.share.T):
                found[at] += (self.seconds[:, kind, at, None] <= self._lengths) * share[:, None]
        return found

    @cached_property
    def _others(self) -> list[Floats]:
        """Chance that the passes on all other stages take no longer, (B, K p), by stage."""
        one = np.ones(self._lengths.shape)
        before, after = [one], [one]
        for of_stage in self._below[:-1]:
            before.append(before[-1] * of_stage)
        for of_stage in self._below[:0:-1]:
            after.append(after[-1] * of_stage)
        return [first * last for first, last in zip(before, reversed(after), strict=True)]

    def _expected(self, below: Floats) -> Floats:
        found: Floats = (self._lengths * np.diff(below, axis=1, prepend=0.0)).sum(axis=1)
        return found


@dataclass(frozen=True)
class Cycle:
    """Replicas at batches (B,) of one engine: prompts in `chunks` passes, beside decode (`mixed`) or alone.

    `chunks` is empty where prompts come from elsewhere. `most_prompts`: whole prompts that one pass takes at most.
    `passes_of`: how recorded prompts take these chunks; None: every prompt takes each once. `streamed`: prompts that a
    stream has in a pass on average, (B,); None: as many as places fall free for, where somebody always waits.
    """

    replica: Replica
    traffic: Traffic
    batch: Floats
    chunks: tuple[Chunk, ...] = ()
    mixed: bool = False
    most_prompts: int = 1
    passes_of: PromptPasses | None = None
    streamed: Floats | None = None

    @cached_property
    def passes(self) -> float:
        """Decode passes of a request, on average."""
        return self.traffic.decode_passes(self.replica.speculation)

    @cached_property
    def prompts(self) -> Floats:
        """Prompts of a pass that has any whole ones, on average, (B,)."""
        if not self._whole.any():
            return np.ones(len(self.batch))
        if self.streamed is not None:
            return self.streamed
        return prompts_together(
            self.batch, self.passes / self._whole_share, self.most_prompts, mixed=self.mixed
        )

    @property
    def _whole(self) -> NDArray[np.bool_]:
        """Which chunks are whole prompts, (K,)."""
        if self.passes_of is not None:
            return self.passes_of.whole
        return np.full(len(self.chunks), len(self.chunks) == 1)

    @property
    def _whole_share(self) -> float:
        """Prompts that a pass takes whole, among all."""
        return float(self.weights[self._whole].sum())

    @property
    def weights(self) -> Floats:
        """Passes of each kind of chunk for a request, (K,), were every prompt taken alone."""
        return np.array([chunk.weight for chunk in self.chunks])

    @cached_property
    def each(self) -> Floats:
        """Prompts that share a pass of each kind of chunk, (B, K); of recorded ones as many as it has tokens for."""
        each = np.where(self._whole, self.prompts[:, None], 1.0)
        return each if self.passes_of is None else np.minimum(each, self.passes_of.most)

    @cached_property
    def costs(self) -> Floats:
        """Seconds and joules of every kind of pass, (B, J, p, 2): plain decode first, then the chunks."""
        context, beside = self.traffic.mean_context, self.batch if self.mixed else np.zeros_like(self.batch)
        plain = self.replica.pass_costs(self.batch, context)
        chunks = [replace(c, prompts=self.each[:, k]) for k, c in enumerate(self.chunks)]
        return np.stack([plain, *(self.replica.pass_costs(beside, context, c) for c in chunks)], axis=1)

    @cached_property
    def counts(self) -> Floats:
        """Passes of every kind in a cycle, (B, J); fewer plain ones than none where chunks are too many."""
        chunks = self.batch[:, None] * self.weights / self.each
        beside = chunks.sum(axis=1) if self.mixed else 0.0
        plain = np.broadcast_to(self.passes - beside, self.batch.shape)
        return np.concatenate([plain[:, None], chunks], axis=1)

    @property
    def keeps_up(self) -> NDArray[np.bool_]:
        """Whether there are passes enough for the chunks, (B,)."""
        found: NDArray[np.bool_] = self.counts[:, 0] >= -LAST_DIGITS * self.passes
        return found

    @cached_property
    def slots(self) -> Slots:
        """The passes as slots of the pipeline: plain decode, and the chunks.

        Those of one prompt differ little: their mean stands for them. Those of many prompts are kinds of their own.
        """
        seconds, counts = self.costs[..., 0], np.maximum(self.counts, 0.0)
        if self.passes_of is not None:
            return Slots(seconds, counts / counts.sum(axis=1, keepdims=True))
        kinds = [seconds[:, 0], *([seconds[:, 1:].mean(axis=1)] if self.chunks else [])]
        plain = counts[:, :1] / counts.sum(axis=1, keepdims=True)
        return Slots(np.stack(kinds, axis=1), np.concatenate([plain, 1 - plain], axis=1)[:, : len(kinds)])

    @cached_property
    def requests_per_s(self) -> Floats:
        """Requests that one replica serves with full batches, (B,), as far as the host's link brings their prefixes."""
        served: Floats = self.batch / (self._passes * self.slots.mean_s())
        load_s = self.loading.mean_s
        return np.minimum(served, 1 / load_s) if load_s else served

    @cached_property
    def loading(self) -> Loading:
        """What prefixes that lie at the host take on its link."""
        return Loading.of(self.replica, self.traffic)

    @property
    def clients(self) -> Floats:
        """Requests of one replica, (B,): sequences in its batches, and by Little's law those on the way to it.

        Prompts that fill beside decode are on the way, too.
        """
        on_the_way = self.replica.overheads.request_s + self.loading.mean_s
        before = self.prefill_s + on_the_way if self.mixed else np.full(len(self.batch), on_the_way)
        return self.batch * self.replica.stages + self.requests_per_s * before

    @cached_property
    def _rounds_s(self) -> Floats:
        """Time of a pass of each kind of chunk through all stages, (B, K)."""
        rounds = self.slots.rounds_s()[:, 1:]
        return np.broadcast_to(rounds, (len(self.batch), len(self.chunks)))

    @cached_property
    def prefill_s(self) -> Floats:
        """Time to first token of a request that waits for nobody, (B,); none where prompts come from elsewhere."""
        if not self.chunks:
            return np.zeros(len(self.batch))
        alone = np.broadcast_to(self.slots.seconds[:, 1:].sum(axis=-1), self._rounds_s.shape)
        ends = self.weights * np.array([float(chunk.last) for chunk in self.chunks])
        # The last pass goes through as fast as its stages let it.
        found: Floats = self.service_s - (self._rounds_s - alone) @ (ends / ends.sum())
        return found

    @cached_property
    def service_s(self) -> Floats:
        """Seconds for which the prompts of a pass keep their engine from the next ones, (B,)."""
        found: Floats = self._rounds_s @ self.weights if self.chunks else np.zeros(len(self.batch))
        return found

    @cached_property
    def _left_s(self) -> Floats:
        """Seconds that are left of a prompt's passes at a random moment of them, (B,): E[S^2] / 2 E[S]."""
        if self.passes_of is None:
            return self.service_s / 2
        square = np.einsum("bj,jk,bk->b", self._rounds_s, self.passes_of.moments, self._rounds_s)
        found: Floats = square / (2 * self.service_s)
        return found

    def waiting_s(self, requests_per_s: Floats) -> Floats:
        """Mean wait of a request of a Poisson stream before its prefill, s, (B,); infinite where prompts pile up.

        An M/G/1 queue whose server, when no prompt waits, is away for a decode pass (Doshi, "Queueing systems
        with vacations", 1986): what is left of the pass in progress, E[S^2] / 2 E[S] or D / 2, over 1 - rho for those
        ahead in the queue. Where k prompts share a pass, it is one with prompts with chance rate S / k, and rho is the
        load of passes that are full, as all who wait go into the next one unless it is. Recorded arrivals wait as much
        longer as they do by Lindley's recursion.
        """
        if not self.chunks:
            return np.zeros(len(self.batch))
        rate = requests_per_s / self.replica.stages
        busy_s = (self._rounds_s / self.each) @ self.weights
        prefilling, full = np.minimum(rate * busy_s, 1.0), self._full_load(rate)
        decoding = (1 - prefilling) * (1 - np.exp(-self.batch))
        left = prefilling * self._left_s + decoding * self.slots.round_s(0) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            waiting = np.where(full < 1, left / (1 - full), np.inf)
        return np.maximum(waiting + self._longer_waits_s(requests_per_s), 0.0)

    def _longer_waits_s(self, requests_per_s: Floats) -> Floats:
        """What recorded arrivals wait beyond a Poisson stream's, (B,), where passes take all prompts that they can."""
        load = self.traffic
        if load.recorded is None or load.rate_per_s is None or self.passes_of is None:
            return np.zeros(len(self.batch))
        each_s = self._full_s / self.weights
        engines = np.rint(load.rate_per_s / requests_per_s * self.replica.stages).astype(int).tolist()
        of = self.passes_of.counts
        waits = (
            longer_waits_s(load.recorded, load.rate_per_s, count, seconds @ of)
            for count, seconds in zip(engines, each_s, strict=True)
        )
        return np.array(list(waits))

    def _full_load(self, rate: Floats) -> Floats:
        """Share of its time that an engine needs for the prompts of such a rate if every pass takes all that it can."""
        found: Floats = np.minimum(rate * self._full_s.sum(axis=1), 1.0)
        return found

    @cached_property
    def _full_s(self) -> Floats:
        """Seconds of an engine for the passes of a request, (B, K), by kind, if each takes all that it can."""
        beside = self.batch if self.mixed else np.zeros_like(self.batch)
        each_s = self._rounds_s * self.weights  # of a request, were its passes its own
        for k, chunk in enumerate(self.chunks):
            most = self.most_prompts if self.passes_of is None else float(self.passes_of.most[k])
            if self._whole[k] and most > 1:
                full = replace(chunk, prompts=most)
                seconds = self.replica.pass_costs(beside, self.traffic.mean_context, full)[..., 0].max(
                    axis=-1
                )
                each_s[:, k] = chunk.weight * seconds * self.replica.stages / most
        return each_s

    @cached_property
    def tpot_s(self) -> Floats:
        """Time per output token after the first, (B,)."""
        residence = self._passes * self.replica.stages * self.slots.mean_s()
        own = self.service_s if self.chunks and not self.mixed else 0.0
        return (residence - own) / self.traffic.later_tokens

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
        grid = self.replica.grid
        chunk = max((c.tokens for c in self.chunks), default=0) * self.most_prompts
        if self.chunks and grid.most_tokens:
            chunk = min(chunk, grid.most_tokens)
        each = sequences / self.replica.stages * grid.verified
        tokens = each + chunk if self.mixed else np.maximum(each, chunk)
        filling = self.replica.stages * self.most_prompts if self.mixed else 0
        return replica_memory(self.replica, sequences, filling, tokens, self.traffic)

    @cached_property
    def _passes(self) -> Floats:
        found: Floats = np.maximum(self.counts, 0.0).sum(axis=1)
        return found


@dataclass(frozen=True, slots=True)
class Loading:
    """Prefixes that are read from the host's memory: mean seconds of a request on the link, and their second moment.

    Requests wait for theirs one after the other, while the engine goes on (as LMCache and vLLM's connectors load).
    """

    mean_s: float = 0.0
    square_s2: float = 0.0

    @classmethod
    def of(cls, replica: Replica, traffic: Traffic) -> Loading:
        """What requests of some traffic take. Every device has a link and a part of the prefix of its own."""
        if traffic.recorded is None:
            each = load_seconds(replica, np.array([float(traffic.loaded_tokens)]))
        else:
            each = load_seconds(replica, traffic.recorded.loaded.astype(np.float64))
        return cls(float(each.mean()), float((each**2).mean()))

    def waiting_s(self, requests_per_s: Floats) -> Floats:
        """Mean wait for the link and its transfer, (N,), an M/G/1 queue; infinite where it has no time for all."""
        if not self.mean_s:
            return np.zeros(len(requests_per_s))
        load = requests_per_s * self.mean_s
        with np.errstate(divide="ignore", invalid="ignore"):
            queued = np.where(load < 1, requests_per_s * self.square_s2 / (2 * (1 - load)), np.inf)
        return queued + self.mean_s


def load_seconds(replica: Replica, tokens: Floats) -> Floats:
    """Seconds to read the cache of some tokens (N,) from the host, on the device with the most of it."""
    if not tokens.any():
        return np.zeros(len(tokens))
    bandwidth = float(replica.grid.chip.table["host_bandwidth_bytes_per_s"][0])
    each = replica.token_bytes if replica.draft is None else replica.token_bytes + replica.draft.token_bytes
    return tokens * each / bandwidth


def prompts_together(batch: Floats, passes: float, most: int, *, mixed: bool) -> Floats:
    """Whole prompts of a pass that has any, on average, at batches (B,), none falling with the batch; it takes `most`.

    Of b sequences m = b / `passes` end in a pass; where they are of all ages, a Poisson number N. Their places are
    taken in the next pass, beside decode, by m / (1 - e^-m) prompts if there are any, or before it, in ceil(N / most)
    passes.
    """
    ended = np.maximum(batch / passes, LAST_DIGITS)
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


@dataclass(frozen=True)
class Prefill:
    """Replicas that do nothing but prefill, some prompts (B,) at a time; recorded ones one by one."""

    replica: Replica
    traffic: Traffic
    prompts: tuple[int, ...]

    @cached_property
    def passes_of(self) -> PromptPasses:
        """Prompts, whole."""
        return PromptPasses.of(self.traffic, self.traffic.longest_fresh)

    @cached_property
    def costs(self) -> Floats:
        """Seconds and joules of a pass with prompts of each kind, (B, K, p, 2)."""
        kinds, context = self.passes_of.chunks, self.traffic.mean_context
        return np.array(
            [
                [self.replica.pass_costs(0, context, replace(kind, prompts=n)) for kind in kinds]
                for n in self.prompts
            ]
        )

    @property
    def _weights(self) -> Floats:
        return np.array([chunk.weight for chunk in self.passes_of.chunks])

    @property
    def requests_per_s(self) -> Floats:
        """Prompts of one replica, (B,), as far as the host's link brings their prefixes."""
        found: Floats = np.array(self.prompts) / (self.costs[..., 0].max(axis=-1) @ self._weights)
        load_s = self.loading.mean_s
        return np.minimum(found, 1 / load_s) if load_s else found

    @cached_property
    def loading(self) -> Loading:
        """What prefixes that lie at the host take on its link."""
        return Loading.of(self.replica, self.traffic)

    @property
    def prefill_s(self) -> Floats:
        """Time to first token of a request that waits for nobody, (B,)."""
        found: Floats = self.costs[..., 0].sum(axis=-1) @ self._weights
        return found

    def waiting_s(self, requests_per_s: Floats) -> Floats:
        """Mean wait of a request of a Poisson stream, prompts one by one, s: M/G/1 (DistServe, eq. 1: M/D/1)."""
        each = self.costs[0, :, :, 0].max(axis=-1)
        service, square = float(each @ self._weights), float(each @ self.passes_of.moments @ each)
        load = np.minimum(requests_per_s * service, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            waiting: Floats = np.where(load < 1, requests_per_s * square / (2 * (1 - load)), np.inf)
        recorded, rate = self.traffic.recorded, self.traffic.rate_per_s
        if recorded is None or rate is None:
            return waiting
        counts = np.rint(rate / requests_per_s).astype(int).tolist()
        longer = [longer_waits_s(recorded, rate, count, each @ self.passes_of.counts) for count in counts]
        found: Floats = np.maximum(waiting + np.array(longer), 0.0)
        return found

    @property
    def joules(self) -> Floats:
        """Joules of all that happens for one prompt, (B,)."""
        each = self.costs[..., 1].sum(axis=-1) @ self._weights
        found: Floats = each * self.replica.grid.width / np.array(self.prompts)
        return found

    @cached_property
    def memory(self) -> Memory:
        """Memory with the caches of the prompts of every stage, (B,); they leave for the decode pool."""
        prompts = np.array(self.prompts, dtype=np.float64)
        longest = max(chunk.tokens for chunk in self.passes_of.chunks)
        held = prompts * self.replica.stages
        return replica_memory(self.replica, 0.0, held, prompts * longest, self.traffic)
