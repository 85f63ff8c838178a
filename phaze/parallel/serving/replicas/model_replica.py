"""One replica: t x p devices that hold the model once, times of a pass on each of its stages, and its memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import collective_s, send_s, tier
from phaze.hardware.cluster_network import Network
from phaze.parallel.serving.load.recorded_load import RecordedLoad
from phaze.parallel.serving.load.speculation import Speculation
from phaze.parallel.serving.replicas.chip_costs import Line
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.parallel.serving.serving_engine import NO_OVERHEADS, Overheads
from phaze.parallel.serving.serving_requests import Traffic
from phaze.tolerances import LAST_DIGITS
from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.work import Collective

_REFERENCE = 64  # sequences whose decode pass the stages share evenly


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt chunk of one pass: `prompts` of them, `tokens` each, after `before` earlier ones.

    `prompts`: (...,), also on average. `last`: whether the pass ends them, so that logits are wanted. Of recorded
    requests a chunk stands for many: tokens are means, `last` is the share that ends a prompt, and `weight` how many
    there are of it for every request.
    """

    tokens: float
    before: float = 0
    prompts: ArrayLike = 1
    last: float = True
    weight: float = 1.0


@dataclass(frozen=True)
class Replica:
    """A model on `stages` pipeline stages of `grid.width` devices each; figures (..., p, 2) are seconds and joules.

    `dispatch_s`: host time per kernel; a stage takes no less than its kernels are dispatched in. `overheads`: of the
    engine, on every stage. `speculation`: tokens that are guessed, by a model on the same devices (`draft`) or by none.
    """

    grid: LayerGrid
    network: Network
    stages: int
    dispatch_s: float = 0.0
    overheads: Overheads = NO_OVERHEADS
    speculation: Speculation | None = None
    draft: Replica | None = None

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return self.grid.width * self.stages

    @property
    def together(self) -> int:
        """Replicas that come together, for they share experts."""
        return self.grid.experts

    def most(self, devices: int) -> int:
        """Replicas that so many devices make."""
        return devices // (self.devices * self.together) * self.together

    @cached_property
    def starts(self) -> list[int]:
        """First layer of every stage: the cuts by which the longest stage is shortest at a decode batch of 64."""
        reference = min(_REFERENCE, self.grid.largest_batch)
        return even_cuts(self.grid.tokens.at(reference)[:, 0], self.stages)

    def per_stage(self, figures: Floats, axis: int = -1) -> Floats:
        """Sums over the layers of each stage."""
        found: Floats = np.add.reduceat(figures, self.starts, axis=axis)
        return found

    def pass_costs(self, decoding: ArrayLike, context: float, *chunks: Chunk | None) -> Floats:
        """A pass that decodes some sequences (...,) with `context` tokens each in the cache, on average, and chunks.

        (..., p, 2): seconds of each stage, its exchanges with its neighbours included, and joules of one device.
        A pass with nothing to do takes no time. What a draft does before it belongs to it.
        """
        own = [chunk for chunk in chunks if chunk is not None]
        sequences, *prompts = np.broadcast_arrays(
            *(np.asarray(n, dtype=np.float64) for n in (decoding, *(chunk.prompts for chunk in own)))
        )
        rows = sequences * self.grid.verified
        tokens = rows + sum(n * c.tokens for n, c in zip(prompts, own, strict=True))
        logits = rows + sum(n * c.last for n, c in zip(prompts, own, strict=True))
        costs = self._at(self._body, tokens) + self._at(self._head, logits) + self._decode(sequences, context)
        if own:
            costs = costs + (self._chunk(own[0]) if self.grid.traffic.recorded is None else self._pieces(own))
        launched = self._launched(sequences, own)
        costs[..., 0] = np.maximum(costs[..., 0], launched * self.dispatch_s) + self._exchange_s(tokens)
        costs[..., 0] += self._overhead_s(sequences) * (tokens > 0)[..., None]
        return costs if self.draft is None else costs + self._drafted(sequences, context, own)

    def _drafted(self, sequences: Floats, context: float, chunks: Sequence[Chunk]) -> Floats:
        """What the draft does for a pass: a guess of every sequence after the other, and the prompts."""
        if self.draft is None or self.speculation is None:
            return np.zeros((*sequences.shape, self.stages, 2))
        first = self.draft.pass_costs(sequences, context, *chunks)
        return first + (self.speculation.tokens - 1) * self.draft.pass_costs(sequences, context)

    def working_bytes(self, tokens: ArrayLike, logits: ArrayLike) -> Floats:
        """Activations of a pass with so many tokens, and logits of some, (..., p)."""
        line, samples = self.grid.working_bytes, self.grid.samples
        body, head = (line.at(np.clip(n, line.points[0], line.points[-1])) for n in (tokens, logits))
        each = np.where(samples, head, body)
        found: Floats = np.maximum.reduceat(each, self.starts, axis=-1)
        return found

    @cached_property
    def token_bytes(self) -> float:
        """Cache that a token of a prompt adds, on the device of the stage that holds most of it."""
        return float(self.per_stage(self.grid.token_bytes[1]).max())

    @cached_property
    def _body(self) -> Line:
        return self._reduced(self.grid.tokens, ~self.grid.samples)

    @cached_property
    def _head(self) -> Line:
        return self._reduced(self.grid.tokens, self.grid.samples)

    @cached_property
    def _attention(self) -> list[Line]:
        return [self._reduced(line) for line in self.grid.decode_attention]

    @cached_property
    def _prompts(self) -> Line:
        return self._reduced(self.grid.prompt_attention)

    @cached_property
    def _chunks(self) -> dict[int, Line]:
        return {size: self._reduced(line) for size, line in self.grid.chunk_attention.items()}

    def _reduced(self, line: Line, where: NDArray[np.bool_] | None = None) -> Line:
        """A line of layers as a line of stages; layers elsewhere count nothing."""
        values = line.values if where is None else line.values * where[:, None]
        return Line(line.points, self.per_stage(values, axis=-2))

    def _at(self, line: Line, count: Floats) -> Floats:
        """Figures for a number of tokens; of none, nothing; of a part of one (on average), the part."""
        found = line.at(np.maximum(count, 1.0))
        return found * np.minimum(count, 1.0)[..., None, None]

    def _decode(self, sequences: Floats, context: float) -> Floats:
        at, share = _between(self.grid.contexts, context)
        first = self._at(self._attention[at], sequences)
        if not share:
            return first
        return first * (1 - share) + self._at(self._attention[at + 1], sequences) * share

    def _chunk(self, chunk: Chunk) -> Floats:
        if np.any(np.asarray(chunk.prompts) > 1):
            return self._prompts.at(chunk.prompts)
        return self._chunks[int(chunk.tokens)].at(chunk.before)

    def _pieces(self, chunks: Sequence[Chunk]) -> Floats:
        """Attention of pieces of recorded prompts: of the first one whole, of others what they add to it."""
        total, beside = np.zeros(2), False
        for chunk in chunks:
            prompts = np.asarray(chunk.prompts, dtype=np.float64)[..., None, None]
            one, more = (self._piece(which, chunk.tokens, chunk.before) for which in (0, 1))
            total = total + (more * prompts if beside else one + more * (prompts - 1))
            beside = True
        return total

    def _piece(self, which: int, tokens: float, before: float) -> Floats:
        """Attention of a piece of any size, alone or beside others, (p, 2): straight in its tokens up to a tile.

        Beyond, time per token is straight in their number, as each token attends to half of them and all earlier ones.
        """
        sizes = self.grid.piece_sizes
        at, share = _between(sizes, tokens)
        if len(sizes) == 1:
            return self._known(which, 0, before)
        by = np.array(sizes[at : at + 2], dtype=np.float64) if sizes[at] > 1 else np.ones(2)
        first, second = self._known(which, at, before), self._known(which, at + 1, before)
        found: Floats = first / by[0] * (1 - share) + second / by[1] * share
        return found * tokens if sizes[at] > 1 else found

    def _known(self, which: int, at: int, before: float) -> Floats:
        """A piece of a costed size; beyond the tokens before it at which it is costed as a smaller one goes on."""
        line, sizes = self._piece_lines[at][which], self.grid.piece_sizes
        most = float(line.points[-1])
        found = line.at(min(before, most))
        if before > most and at:
            smaller = self._piece_lines[at - 1][which]
            slope = (smaller.values[-1] - smaller.values[0]) / max(float(np.ptp(smaller.points)), 1.0)
            found = found + (before - most) * slope * (sizes[at] / sizes[at - 1])
        return found

    @cached_property
    def _piece_lines(self) -> list[tuple[Line, Line]]:
        return [(self._reduced(one), self._reduced(more)) for one, more in self.grid.piece_attention]

    def _launched(self, sequences: Floats, chunks: Sequence[Chunk]) -> Floats:
        """Kernels of a pass, (..., p): attention once for decoding sequences, once for chunks."""
        attentions = self.per_stage(self.grid.attentions)
        kinds = (sequences > 0).astype(np.float64)[..., None] + (len(chunks) > 0)
        some = kinds > 0
        return some * (self.per_stage(self.grid.kernels) - attentions) + kinds * attentions

    def _overhead_s(self, sequences: Floats) -> Floats:
        """Seconds that the engine adds to a pass on every stage, (..., p)."""
        of, experts = self.overheads, self.per_stage(self.grid.expert_layers)
        found: Floats = of.step_s + of.sequence_s * sequences[..., None] + of.expert_layer_s * experts
        return found

    def _exchange_s(self, tokens: Floats) -> Floats:
        """Seconds that each stage spends on tensors from the stage before and to the one after, (..., p).

        As in training (`Communication.transfer_s`): devices send 1/t each and the group gathers; charged at both ends.
        """
        cuts = self.grid.boundary_bytes[np.array(self.starts[1:], dtype=np.intp) - 1]
        payload, width = tokens[..., None] * cuts, self.grid.width
        links = self.grid.chip.table["link_bandwidth_bytes_per_s"]
        bandwidth, latency_s = tier(self.network, self.network.spanned(self.devices * self.together), links)
        inside, inside_latency_s = tier(self.network, 0, links)
        each = send_s(payload / width, bandwidth, latency_s)
        each = each + collective_s(Collective.ALL_GATHER, payload, width, inside, inside_latency_s)
        seconds = np.zeros((*tokens.shape, self.stages))
        seconds[..., :-1] += each
        seconds[..., 1:] += each
        return np.where(tokens[..., None] > 0, seconds, 0.0)


def _between(points: Sequence[int], where: float) -> tuple[int, float]:
    """The point at or before a place, and the share of the way to the next one; beyond the ends the line goes on."""
    if len(points) == 1:
        return 0, 0.0
    at = min(max(bisect_right(points, where) - 1, 0), len(points) - 2)
    return at, (where - points[at]) / (points[at + 1] - points[at])


def even_cuts(weights: Floats, parts: int) -> list[int]:
    """First positions of `parts` runs, none empty, whose largest sum is smallest. ValueError for too many."""
    if parts > len(weights):
        msg = f"{len(weights)} layers make no {parts} stages"
        raise ValueError(msg)
    low, high = float(weights.max()), float(weights.sum())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_filled(weights, middle)) <= parts else (middle, high)
    starts = _filled(weights, high)
    while len(starts) < parts:  # fewer would do: halve the run of most layers
        longest = int(np.argmax(np.diff([*starts, len(weights)])))
        end = [*starts, len(weights)][longest + 1]
        starts.insert(longest + 1, (starts[longest] + end) // 2)
    return starts


def _filled(weights: Floats, limit: float) -> list[int]:
    """First positions of runs that are filled up to a limit one after the other."""
    starts, load = [0], 0.0
    for position, weight in enumerate(weights.tolist()):
        if load + weight > limit * (1 + LAST_DIGITS) and position > starts[-1]:
            starts.append(position)
            load = 0.0
        load += weight
    return starts


DEVIATIONS = 3.0  # of a random sum that there is room for: one time in a thousand there is not


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest device of a replica, (...,) each."""

    weight_bytes: Floats
    cache_bytes: Floats
    working_bytes: Floats

    @property
    def total_bytes(self) -> Floats:
        """Sum of all parts."""
        return self.weight_bytes + self.cache_bytes + self.working_bytes

    def take(self, at: NDArray[np.intp]) -> Memory:
        """Some of the entries."""
        return Memory(self.weight_bytes[at], self.cache_bytes[at], self.working_bytes[at])


def replica_memory(
    replica: Replica,
    decoding: ArrayLike,
    filling: ArrayLike,
    tokens: ArrayLike,
    load: Traffic | None = None,
) -> Memory:
    """Memory with some sequences decoding, others with a prompt alone in the cache, and passes of so many tokens.

    All (...,), counts of the whole replica. A contiguous cache keeps room for a whole request; pages come as
    sequences grow, so that those of sequences of all ages are as many as of half-grown ones, and three
    standard deviations more. `load`: the requests, as the replica's prefix cache has them (default: those of its grid).
    """
    sequences, prompts, passing = np.broadcast_arrays(
        *(np.asarray(n, dtype=np.float64) for n in (decoding, filling, tokens))
    )
    cache = _held(replica, load or replica.grid.traffic, sequences, prompts)
    weights = replica.per_stage(replica.grid.weight_bytes)
    logits = (sequences / replica.stages) * replica.grid.verified + 1
    working = replica.working_bytes(passing, np.minimum(logits, passing))
    if replica.draft is not None:
        weights = weights + replica.draft.per_stage(replica.draft.grid.weight_bytes)
        cache = cache + _held(replica.draft, load or replica.grid.traffic, sequences, prompts)
    fullest = (weights + cache + working).argmax(axis=-1)[..., None]
    parts = (np.broadcast_to(part, cache.shape) for part in (weights, cache, working))
    return Memory(*(np.take_along_axis(part, fullest, axis=-1)[..., 0] for part in parts))


def _held(replica: Replica, load: Traffic, sequences: Floats, prompts: Floats) -> Floats:
    """Cache with some sequences decoding and some prompts filling, (..., p)."""
    if load.recorded is not None:
        return _held_of_many(replica, load, load.recorded, sequences, prompts)
    grown = _whole_outputs(replica, sequences)
    begin, end = (replica.per_stage(figure) for figure in replica.grid.cache_bytes)
    held = end if replica.grid.served.kv_cache is KvCache.CONTIGUOUS else begin
    return sequences[..., None] * begin + grown[..., None] * (end - begin) + prompts[..., None] * held


def _whole_outputs(replica: Replica, sequences: Floats) -> Floats:
    """Outputs from first token to last that there must be room for with some sequences decoding."""
    if replica.grid.served.kv_cache is KvCache.CONTIGUOUS:
        return sequences
    half_grown = sequences / 2 + DEVIATIONS * np.sqrt(sequences / 12)
    return np.minimum(half_grown, sequences)


def _held_of_many(
    replica: Replica, load: Traffic, recorded: RecordedLoad, sequences: Floats, prompts: Floats
) -> Floats:
    """The same of recorded requests, (..., p): mean contexts and three standard deviations of their sum more.

    No more than if all were the longest. What a shared prefix takes is none of theirs.
    """
    grid, weights = replica.grid, recorded.later
    each, variance = recorded.mean_context, recorded.context_variance
    if grid.served.kv_cache is KvCache.CONTIGUOUS:
        whole = recorded.prompts + np.maximum(recorded.later - 1, 0)
        each = float(np.average(whole, weights=weights))
        variance = float(np.average((whole - each) ** 2, weights=weights))
    tokens = sequences * each + DEVIATIONS * np.sqrt(sequences * variance)
    tokens = np.minimum(tokens, sequences * recorded.longest_context) + prompts * recorded.prompts.mean()
    if load.shared:
        tokens = tokens - sequences * float(np.average(recorded.cached, weights=weights))
        tokens = np.maximum(tokens - prompts * recorded.cached.mean(), sequences + prompts)
    start, each_token = (replica.per_stage(figure) for figure in grid.token_bytes)
    count = sequences + prompts
    tokens = tokens + count * (
        1 + grid.served.kv_cache.page / 2
    )  # the one in the making, half of a last page
    found: Floats = count[..., None] * start + tokens[..., None] * each_token
    return found


def crowd(mean: ArrayLike) -> Floats:
    """Sequences there must be room for where a Poisson stream keeps `mean` at work on average."""
    average = np.asarray(mean, dtype=np.float64)
    return average + DEVIATIONS * np.sqrt(average)
