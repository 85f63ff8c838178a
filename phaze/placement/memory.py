"""Memory of pipeline stages on one device, and how deep in the pipeline each can stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from phaze.solvers.placement.partition import StageLimits, fewest_stages, stage_limits

FloatArray = NDArray[np.float64]


class _Needs(TypedDict):
    """What the limits of stages follow from."""

    static_bytes: FloatArray
    saved_bytes: FloatArray
    input_bytes: FloatArray
    working_bytes: FloatArray
    memory_bytes: float
    recompute: bool


@dataclass(frozen=True)
class ChainMemory:
    """Bytes of every layer of a chain on one device, each (L,), and the memory there is.

    `static_bytes`: weights, gradients, optimizer state. `saved_bytes`: activations kept for backward, per
    microbatch; `input_bytes`: a layer's input, all that full recompute keeps; `working_bytes`: alive only while
    the layer runs. `cache_bytes`: key-value cache of one microbatch; where `keeps_cache`, that of every microbatch
    of the pipeline stays (decode), otherwise only that of the one being worked on (prefill).
    """

    static_bytes: FloatArray
    saved_bytes: FloatArray
    input_bytes: FloatArray
    working_bytes: FloatArray
    cache_bytes: FloatArray
    memory_bytes: float
    recompute: bool
    keeps_cache: bool
    _limits: dict[int | None, StageLimits] = field(default_factory=dict)

    def limits(self, in_flight: int | None) -> StageLimits:
        """Where stages fit when none ever holds more than `in_flight` microbatches (None: as many as its depth).

        Where caches are kept, they are those of `in_flight` microbatches.
        """
        if in_flight not in self._limits:
            self._limits[in_flight] = stage_limits(**self._needs(in_flight), inflight_limit=in_flight)
        return self._limits[in_flight]

    def fewest_stages(self, in_flight: int | None) -> int:
        """At most the fewest stages that fit, see `limits`; 0 if nothing does. Much cheaper than the limits."""
        return fewest_stages(**self._needs(in_flight), inflight_limit=in_flight)

    def _needs(self, in_flight: int | None) -> _Needs:
        return {
            "static_bytes": self.static_bytes + self._caches(in_flight or 1) * self.cache_bytes,
            "saved_bytes": self.saved_bytes,
            "input_bytes": self.input_bytes,
            "working_bytes": self.working_bytes,
            "memory_bytes": self.memory_bytes,
            "recompute": self.recompute,
        }

    def held(self, depth: int, microbatches: int) -> int:
        """Microbatches that a stage holds: as many as it is deep (1F1B), but caches of all, where they are kept."""
        return microbatches if self.keeps_cache else min(depth, microbatches)

    def limit(self, stages: int, microbatches: int) -> int | None:
        """What `limits` is asked for `stages` stages that run so many microbatches."""
        return microbatches if self.keeps_cache or microbatches < stages else None

    def _caches(self, held: int) -> int:
        return held if self.keeps_cache else 1

    def peak_bytes(self, first: int, last: int, held: int, recompute: bool) -> float:
        """Peak memory of a stage of layers first..last that holds `held` microbatches."""
        part = slice(first, last + 1)
        kept = self.input_bytes if recompute else self.saved_bytes
        working = self.working_bytes + self.saved_bytes if recompute else self.working_bytes
        cache = self._caches(held) * self.cache_bytes[part].sum()
        return float(self.static_bytes[part].sum() + cache + held * kept[part].sum() + working[part].max())
