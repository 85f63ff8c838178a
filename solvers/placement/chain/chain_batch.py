"""The placement problem of many architectures at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.chain_problem import PlacementProblem, PlacementResult


@dataclass(frozen=True)
class PlacementBatch:
    """One chain of L layers in W tensor-parallel widths on one cluster, built of A different architectures.

    `problem`: the graph, the cluster, the bytes and everything else that the architectures share.
    `forward_s`, `backward_s` (A, W, L): their latencies, which replace those of the problem's models.
    `device_memory_bytes` (A,): their memories; if left out, all have that of the problem.
    """

    problem: PlacementProblem
    forward_s: Floats
    backward_s: Floats
    device_memory_bytes: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        """Fill in the memory; check shapes and signs.

        Raises:
            ValueError: arrays do not fit the problem, or a number is negative or not finite.
        """
        if self.device_memory_bytes.size == 0:
            memory = np.full(len(self.forward_s), self.problem.device_memory_bytes)
            object.__setattr__(self, "device_memory_bytes", memory)
        count, shape = len(self.forward_s), (len(self.problem.models), len(self.problem.layer_ids))
        shapes = (self.forward_s.shape, self.backward_s.shape, self.device_memory_bytes.shape)
        if shapes != ((count, *shape), (count, *shape), (count,)):
            raise ValueError(f"shapes {shapes} do not fit {count} architectures, widths and layers {shape}")
        for numbers in (self.forward_s, self.backward_s, self.device_memory_bytes):
            if not np.isfinite(numbers).all() or (numbers < 0).any():
                raise ValueError("latencies and memories must be finite and not negative")

    @classmethod
    def of(cls, problem: PlacementProblem) -> PlacementBatch:
        """The batch of one architecture, with the latencies of the problem."""
        forward_s = np.array([[model.forward_s for model in problem.models]])
        return cls(problem, forward_s, np.array([[model.backward_s for model in problem.models]]))

    @property
    def architectures(self) -> int:
        """Number of architectures A."""
        return len(self.forward_s)

    def one(self, architecture: int) -> PlacementProblem:
        """The problem of one architecture alone."""
        forward_s, backward_s = self.forward_s[architecture].tolist(), self.backward_s[architecture].tolist()
        models = tuple(
            replace(model, forward_s=tuple(forward), backward_s=tuple(backward))
            for model, forward, backward in zip(self.problem.models, forward_s, backward_s, strict=True)
        )
        memory_bytes = float(self.device_memory_bytes[architecture])
        return replace(self.problem, device_memory_bytes=memory_bytes, models=models)


@dataclass(frozen=True)
class BatchResult:
    """The best plan of each architecture, and their figures as arrays (A,); infinite and 0 if nothing fits."""

    plans: tuple[PlacementResult, ...]
    runtime_s: float

    @property
    def time_per_batch_s(self) -> Floats:
        """Proven optimal seconds per batch."""
        return np.array([plan.lower_bound_s for plan in self.plans], dtype=np.float64)

    @property
    def tensor_parallel(self) -> Integers:
        """Tensor-parallel widths."""
        return np.array([plan.tensor_parallel or 0 for plan in self.plans], dtype=np.int64)

    @property
    def data_parallel(self) -> Integers:
        """Data-parallel degrees."""
        return np.array([plan.data_parallel or 0 for plan in self.plans], dtype=np.int64)

    @property
    def num_stages(self) -> Integers:
        """Numbers of stages."""
        return np.array([plan.num_stages or 0 for plan in self.plans], dtype=np.int64)
