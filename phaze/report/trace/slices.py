"""What a trace is made of: slices on the threads of its stages, no two of which overlap on one thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PASSES, LAYERS, LINK, BESIDE, HOST, ALL_CORES = (
    "passes",
    "layers",
    "link",
    "link, beside computation",
    "host",
    "all cores together",
)
_FIRST = (PASSES, LAYERS, LINK, BESIDE, HOST, ALL_CORES)

MOST_LAYERS = 200_000
"""Layers that are told one by one: with more of them only those of the first microbatches, as many as fit."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that runs on one thread of one stage for a while."""

    stage: int
    thread: str
    name: str
    category: str
    start_s: float
    end_s: float
    args: dict[str, Any] = field(default_factory=dict)


def order(thread: str) -> int:
    """Position of a thread within its process: passes, layers, links, then cores by number."""
    if thread in _FIRST:
        return _FIRST.index(thread)
    kind, number = thread[:2], thread[2:]
    return 1000 * (1 + ("TC", "VC").index(kind)) + int(number)
