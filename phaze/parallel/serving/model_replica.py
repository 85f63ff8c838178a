"""One replica: t x p devices that hold the model once, times of a pass on each of its stages, and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.cost.collective_times import collective_s, send_s, tier
from phaze.hardware.cluster_network import Network
from phaze.parallel.serving.layer_grid import LayerGrid, Line
from phaze.parallel.serving.serving_engine import NO_OVERHEADS, Overheads
from phaze.tolerances import LAST_DIGITS
from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.work import Collective

_REFERENCE = 64  # sequences whose decode pass the stages share evenly


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt chunk of one pass: `prompts` of them, `tokens` each, after `before` earlier ones.

    `prompts`: (...,), also on average. `last`: whether the pass ends them, so that logits are wanted.
    """

    tokens: int
    before: int = 0
    prompts: ArrayLike = 1
    last: bool = True


@dataclass(frozen=True)
class Replica:
    """A model on `stages` pipeline stages of `grid.width` devices each; figures (..., p, 2) are seconds and joules.

    `dispatch_s`: host time per kernel; a stage takes no less than its kernels are dispatched in. `overheads`: of the
    engine, on every stage.
    """

    grid: LayerGrid
    network: Network
    stages: int
    dispatch_s: float = 0.0
    overheads: Overheads = NO_OVERHEADS

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

    def pass_costs(self, decoding: ArrayLike, context: float, chunk: Chunk | None = None) -> Floats:
        """A pass that decodes some sequences (...,) with `context` tokens each in the cache, on average, and a chunk.

        (..., p, 2): seconds of each stage, its exchanges with its neighbours included, and joules of one device.
        A pass with nothing to do takes no time.
        """
        sequences = np.asarray(decoding, dtype=np.float64)
        prompts = np.asarray(chunk.prompts if chunk else 0, dtype=np.float64)
        sequences, prompts = np.broadcast_arrays(sequences, prompts)
        tokens = sequences + (prompts * chunk.tokens if chunk else 0)
        logits = sequences + (prompts if chunk and chunk.last else 0)
        costs = self._at(self._body, tokens) + self._at(self._head, logits) + self._decode(sequences, context)
        if chunk is not None:
            costs = costs + self._chunk(chunk)
        launched = self._launched(sequences, chunk)
        costs[..., 0] = np.maximum(costs[..., 0], launched * self.dispatch_s) + self._exchange_s(tokens)
        costs[..., 0] += self._overhead_s(sequences) * (tokens > 0)[..., None]
        return costs

    def working_bytes(self, tokens: ArrayLike, logits: ArrayLike) -> Floats:
        """Activations of a pass with so many tokens, and logits of some, (..., p)."""
        line, samples = self.grid.working_bytes, self.grid.samples
        body, head = (line.at(np.clip(n, line.points[0], line.points[-1])) for n in (tokens, logits))
        each = np.where(samples, head, body)
        found: Floats = np.maximum.reduceat(each, self.starts, axis=-1)
        return found

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
        ends = self.grid.contexts
        share = (context - ends[0]) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0
        first, last = (self._at(self._attention[i], sequences) for i in (0, -1))
        return first * (1 - share) + last * share

    def _chunk(self, chunk: Chunk) -> Floats:
        if np.any(np.asarray(chunk.prompts) > 1):
            return self._prompts.at(chunk.prompts)
        return self._chunks[chunk.tokens].at(chunk.before)

    def _launched(self, sequences: Floats, chunk: Chunk | None) -> Floats:
        """Kernels of a pass, (..., p): attention once for decoding sequences, once for a chunk."""
        attentions = self.per_stage(self.grid.attentions)
        kinds = (sequences > 0).astype(np.float64)[..., None] + (chunk is not None)
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


def replica_memory(replica: Replica, decoding: ArrayLike, filling: ArrayLike, tokens: ArrayLike) -> Memory:
    """Memory with some sequences decoding, others with a prompt alone in the cache, and passes of so many tokens.

    All (...,), counts of the whole replica. A contiguous cache keeps room for a whole request; pages come as
    sequences grow, so that those of sequences of all ages are as many as of half-grown ones, and three
    standard deviations more.
    """
    sequences, prompts, passing = np.broadcast_arrays(
        *(np.asarray(n, dtype=np.float64) for n in (decoding, filling, tokens))
    )
    grown = _whole_outputs(replica, sequences)
    begin, end = (replica.per_stage(figure) for figure in replica.grid.cache_bytes)
    held = end if replica.grid.served.kv_cache is KvCache.CONTIGUOUS else begin
    cache = sequences[..., None] * begin + grown[..., None] * (end - begin) + prompts[..., None] * held
    weights = replica.per_stage(replica.grid.weight_bytes)
    logits = sequences / replica.stages + 1
    working = replica.working_bytes(passing, np.minimum(logits, passing))
    fullest = (weights + cache + working).argmax(axis=-1)[..., None]
    parts = (np.broadcast_to(part, cache.shape) for part in (weights, cache, working))
    return Memory(*(np.take_along_axis(part, fullest, axis=-1)[..., 0] for part in parts))


def _whole_outputs(replica: Replica, sequences: Floats) -> Floats:
    """Outputs from first token to last that there must be room for with some sequences decoding."""
    if replica.grid.served.kv_cache is KvCache.CONTIGUOUS:
        return sequences
    half_grown = sequences / 2 + DEVIATIONS * np.sqrt(sequences / 12)
    return np.minimum(half_grown, sequences)


def crowd(mean: ArrayLike) -> Floats:
    """Sequences there must be room for where a Poisson stream keeps `mean` at work on average."""
    average = np.asarray(mean, dtype=np.float64)
    return average + DEVIATIONS * np.sqrt(average)
