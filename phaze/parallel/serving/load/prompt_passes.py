"""Passes that take prompts: chunks of equal prompts, or of recorded ones, of which a few kinds stand for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.parallel.serving.load.recorded_load import Counts, RecordedLoad
from phaze.parallel.serving.replicas.model_replica import Chunk
from phaze.parallel.serving.serving_requests import Traffic

KINDS = 6
"""Of recorded passes with whole prompts, and of passes with parts of one, at most."""


@dataclass(frozen=True)
class PromptPasses:
    """Kinds of passes (K) that take a prompt, how many of each for every request among their `weight`.

    `moments` (K, K): mean over requests of products of these numbers, from which follows how the times of prompts vary.
    `whole` (K,): prompts that a pass takes whole, so that several may share it, `most` (K,) of them. `counts` (K, N):
    passes of each kind that every one of N recorded requests takes.
    """

    chunks: tuple[Chunk, ...]
    moments: Floats
    whole: Flags
    most: Floats
    counts: Floats

    @classmethod
    def of(cls, traffic: Traffic, size: int, pass_tokens: int = 0) -> PromptPasses:
        """Prompts in passes of at most `size` tokens of one, and of several that are whole so many in all."""
        if traffic.recorded is not None:
            return _recorded(traffic.recorded, size, max(size, pass_tokens))
        chunks = chunks_of(traffic, size)
        ones = np.ones(len(chunks))
        return cls(chunks, np.outer(ones, ones), np.full(len(chunks), len(chunks) == 1), ones, ones[:, None])


def chunks_of(traffic: Traffic, chunk: int) -> tuple[Chunk, ...]:
    """A prompt in as many passes as chunks of that size make, all of them whole, after what is cached."""
    fresh, cached = traffic.fresh_tokens, traffic.cached_tokens
    return tuple(
        Chunk(tokens, cached + before, last=before + tokens == fresh)
        for tokens, before in pieces(fresh, chunk)
    )


def pieces(tokens: int, size: int) -> list[tuple[int, int]]:
    """Tokens of a prompt in as many passes as pieces of that size make, and those before each, all pieces alike."""
    count = -(-tokens // size)
    each = -(-tokens // count)
    return [(each, min(i * each, tokens - each)) for i in range(count)]


def _recorded(recorded: RecordedLoad, size: int, pass_tokens: int) -> PromptPasses:
    fresh, cached = recorded.fresh, recorded.cached
    count = -(-fresh // size)
    each = -(-fresh // count)
    of = np.repeat(np.arange(len(fresh)), count)
    number = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    before = np.minimum(number * each[of], fresh[of] - each[of])
    last = number == count[of] - 1
    tokens, before, single = each[of], before + cached[of], count[of] == 1
    chunks, moments, whole = [], [], []
    for some, key in ((single, tokens), (~single, before)):
        for kind in _alike(np.flatnonzero(some), key):
            chunks.append(_mean_chunk(tokens[kind], before[kind], last[kind], len(fresh)))
            moments.append(np.bincount(of[kind], minlength=len(fresh)).astype(np.float64))
            whole.append(some is single)
    counts = np.stack(moments)
    most = np.array([max(1.0, pass_tokens / chunk.tokens) for chunk in chunks])
    return PromptPasses(tuple(chunks), counts @ counts.T / len(fresh), np.array(whole), most, counts)


def _alike(rows: Counts, key: Counts) -> list[Counts]:
    """Groups of passes with about as many in each, alike in their key."""
    if not len(rows):
        return []
    order = rows[np.argsort(key[rows], kind="stable")]
    return [part for part in np.array_split(order, KINDS) if len(part)]


def _mean_chunk(tokens: Counts, before: Counts, last: Counts, requests: int) -> Chunk:
    """One pass for several: as many tokens on average, which attend to as many earlier ones on average."""
    mean = float(tokens.mean())
    attended = float(np.average(before + tokens / 2, weights=tokens))
    return Chunk(mean, max(attended - mean / 2, 0.0), last=float(last.mean()), weight=len(tokens) / requests)
