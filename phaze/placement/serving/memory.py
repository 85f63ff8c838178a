"""What fits on a replica: weights, key-value caches of all sequences, activations of a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.placement.serving.replica import Replica
from phaze.workload.operators.kv_cache import KvCache

DEVIATIONS = 3.0  # of a random sum that there is room for: one time in a thousand there is not


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest device of a replica, (...,) each."""

    weight_bytes: Floats
    cache_bytes: Floats
    working_bytes: Floats

    @property
    def total_bytes(self) -> Floats:
        """All of it."""
        return self.weight_bytes + self.cache_bytes + self.working_bytes

    def take(self, at: NDArray[np.intp]) -> Memory:
        """Some of the entries."""
        return Memory(self.weight_bytes[at], self.cache_bytes[at], self.working_bytes[at])


def memory(replica: Replica, decoding: ArrayLike, filling: ArrayLike, tokens: ArrayLike) -> Memory:
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
    """How many outputs from first token to last there must be room for with some sequences decoding."""
    if replica.grid.served.kv_cache is KvCache.CONTIGUOUS:
        return sequences
    half_grown = sequences / 2 + DEVIATIONS * np.sqrt(sequences / 12)
    return np.minimum(half_grown, sequences)


def crowd(mean: ArrayLike) -> Floats:
    """Sequences there must be room for where a Poisson stream keeps `mean` at work on average."""
    average = np.asarray(mean, dtype=np.float64)
    return average + DEVIATIONS * np.sqrt(average)
