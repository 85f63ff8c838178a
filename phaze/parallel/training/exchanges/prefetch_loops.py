"""The loops over groups of layers of `weight_prefetch`, plain: compiled as machine code where it is worth it."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Flags, Floats, Integers


def forward(
    compute_s: Floats, gather_s: Floats, repeats: Flags, first: Integers, gathered_s: Floats, end_s: Floats
) -> None:
    """Fill `end_s` (V, C): seconds until the last group of every chunk has computed.

    As of `Groups`; `gathered_s` (V, C): what every chunk gathers before its first group runs.
    """
    rows, chunks = first.shape
    for v in range(rows):
        for c in range(chunks):
            last = first[v, c + 1] if c + 1 < chunks else len(repeats)
            time = gathered_s[v, c]
            wire, done, before = time, 0.0, 0.0
            for g in range(first[v, c], last):
                if repeats[g]:
                    wire = max(wire, before) + gather_s[v, g]
                    time = max(time, wire)
                    before = done
                    done = time + compute_s[v, g]
                time = time + compute_s[v, g]
            end_s[v, c] = time


def backward(
    compute_s: Floats, gather_s: Floats, reduce_s: Floats, repeats: Flags, first: Integers, end_s: Floats
) -> None:
    """Fill `end_s` (V, C): seconds until the last gradient of a repeated group of every chunk is reduced."""
    rows, chunks = first.shape
    ahead = np.zeros(len(repeats) + 1)
    for v in range(rows):
        for c in range(chunks):
            start, last = first[v, c], first[v, c + 1] if c + 1 < chunks else len(repeats)
            known, inner = 0.0, last
            for g in range(start, last):
                ahead[g] = known
                if repeats[g]:
                    if inner == last:
                        inner = g
                    known = gather_s[v, g]
            time, wire, ready = 0.0, known, known
            for g in range(last - 1, start - 1, -1):
                if repeats[g]:
                    time = max(time, ready)
                    if g > inner:
                        wire = max(wire, time) + ahead[g]
                        ready = wire
                time = time + compute_s[v, g]
                if repeats[g] and reduce_s[v, g] > 0:
                    wire = max(wire, time) + reduce_s[v, g]
            end_s[v, c] = max(time, wire)
