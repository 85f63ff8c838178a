"""Times of the pieces of a model that a pipeline runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.tolerances import SAME


@dataclass(frozen=True)
class Chunks:
    """Seconds per microbatch of every chunk in model order, each (C,); C = stages x chunks per device.

    For bounds of many plans at once, leading axes are plans: (..., C).
    `input_gradient_s` includes what is recomputed. `transfer_s` (C-1,): from each chunk to the next, and of the
    gradient back; only chunks on different devices pay it. Where `blocking`, the two devices do nothing else during
    a transfer (a send and a receive may go on at once); otherwise it only delays the receiver.
    `paired_s`: forward pass of a chunk run together with the whole backward pass of chunk C-1-c, where a schedule
    does so (DualPipe); at least as long as either alone. None: one after the other.
    `graph`: which chunks feed which, one on each device; then `transfer_s` (E,) is that of every edge. None: a chain.
    Raises ValueError where shapes disagree or a time is negative or not finite.
    """

    forward_s: Floats
    input_gradient_s: Floats
    weight_gradient_s: Floats
    transfer_s: Floats
    blocking: bool = False
    paired_s: Floats | None = None
    graph: StageGraph | None = None

    def __post_init__(self) -> None:
        """Check shapes and signs."""
        *plans, count = np.shape(self.forward_s)
        for name in ("forward_s", "input_gradient_s", "weight_gradient_s", "transfer_s", "paired_s"):
            times, expected = getattr(self, name), (*plans, self._length(name))
            if times is None:
                continue
            if np.shape(times) != expected:
                raise ValueError(f"{name}: shape {np.shape(times)} where {count} chunks need {expected}")
            if not np.all(np.isfinite(times) & (times >= 0.0)):
                raise ValueError(f"{name}: times must be finite and not negative")
        alone_s = np.maximum(self.forward_s, self.backward_s[..., ::-1])
        if np.any(self.pairs_s < alone_s * (1 - SAME)):  # but for rounding
            raise ValueError("paired_s: two passes together cannot be faster than either alone")

    def _length(self, name: str) -> int:
        """Number of times of a name."""
        if name != "transfer_s":
            return self.count
        return self.count - 1 if self.graph is None else len(self.graph.edges)

    @property
    def count(self) -> int:
        """C."""
        return int(self.forward_s.shape[-1])

    def per_device(self, stages: int) -> int:
        """Chunks per device. Raises ValueError where they do not spread evenly."""
        each, rest = divmod(self.count, stages)
        if rest:
            raise ValueError(f"{self.count} chunks do not spread evenly over {stages} stages")
        return each

    def take(self, rows: Integers) -> Chunks:
        """Chunk times of some of many plans."""
        names = ("forward_s", "input_gradient_s", "weight_gradient_s", "transfer_s")
        paired_s = None if self.paired_s is None else self.paired_s[rows]
        return replace(self, **{name: getattr(self, name)[rows] for name in names}, paired_s=paired_s)

    def of_plan(self, row: int) -> Chunks:
        """Chunk times of one of many plans."""
        found = self.take(np.array([row]))
        times = {name: value[0] for name, value in vars(found).items() if isinstance(value, np.ndarray)}
        return replace(found, **times)

    @property
    def backward_s(self) -> Floats:
        """Both gradients, (C,)."""
        return self.input_gradient_s + self.weight_gradient_s

    @property
    def pairs_s(self) -> Floats:
        """Forward pass of a chunk and backward pass of chunk C-1-c, together or one after the other, (C,)."""
        return self.forward_s + self.backward_s[..., ::-1] if self.paired_s is None else self.paired_s


def even_chunks(count: int, forward_s: float, input_gradient_s: float, weight_gradient_s: float) -> Chunks:
    """Equal chunks without transfers."""
    f, b, w = (np.full(count, float(seconds)) for seconds in (forward_s, input_gradient_s, weight_gradient_s))
    return Chunks(f, b, w, transfer_s=np.zeros(count - 1))
