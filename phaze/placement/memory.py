"""Memory of pipeline stages on one device, and how deep in the pipeline each can stand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.solvers.placement.partition import StageLimits, stage_limits

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ChainMemory:
    """Bytes of every layer of a chain on one device, each (L,), and the memory there is.

    `static_bytes`: weights, gradients, optimizer state. `saved_bytes`: activations kept for backward, per
    microbatch; `input_bytes`: a layer's input, all that full recompute keeps; `working_bytes`: alive only while
    the layer runs.
    """

    static_bytes: FloatArray
    saved_bytes: FloatArray
    input_bytes: FloatArray
    working_bytes: FloatArray
    memory_bytes: float
    recompute: bool
    _limits: dict[int | None, StageLimits] = field(default_factory=dict)

    def limits(self, in_flight: int | None) -> StageLimits:
        """Where stages fit when none ever holds more than `in_flight` microbatches (None: as many as its depth)."""
        if in_flight not in self._limits:
            self._limits[in_flight] = stage_limits(
                static_bytes=self.static_bytes,
                saved_bytes=self.saved_bytes,
                input_bytes=self.input_bytes,
                working_bytes=self.working_bytes,
                memory_bytes=self.memory_bytes,
                recompute=self.recompute,
                inflight_limit=in_flight,
            )
        return self._limits[in_flight]

    def peak_bytes(self, first: int, last: int, held: int, recompute: bool) -> float:
        """Peak memory of a stage of layers first..last that holds `held` microbatches."""
        part = slice(first, last + 1)
        kept = self.input_bytes if recompute else self.saved_bytes
        working = self.working_bytes + self.saved_bytes if recompute else self.working_bytes
        return float(self.static_bytes[part].sum() + held * kept[part].sum() + working[part].max())
