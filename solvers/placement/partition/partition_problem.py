"""The partition problem of many architectures at once, and the derived arrays that its solvers share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.stage_costs import interval_sums, prefix_sums

_ROUNDING = 1e-12


@dataclass(frozen=True)
class StageLimits:
    """Largest index from the end (last stage: 1) at which stage i..j fits in memory, at [i, j]; 0: nowhere.

    `plain`: the stage keeps what its layers save; `recompute`: it keeps the layers' inputs only. Both (L, L);
    `recompute` is None if recomputation is off.
    """

    plain: Integers
    recompute: Integers | None

    @property
    def inner(self) -> Integers:
        """The limits of every stage but the last."""
        return self.plain if self.recompute is None else self.recompute

    @cached_property
    def earliest(self) -> Integers:
        """First layer of the longest stage that ends with j and fits at index s, at [s, j]; j + 1 if none."""
        layers = self.plain.shape[0]
        first, last = np.triu_indices(layers)
        deepest = np.clip(self.inner[first, last], 0, layers)
        counts = np.bincount(last * (layers + 1) + deepest, minlength=layers * (layers + 1))
        shallower = np.cumsum(counts.reshape(layers, layers + 1), axis=1)
        earliest = np.zeros((layers + 1, layers), dtype=np.int64)
        earliest[1:] = shallower[:, :-1].T
        return earliest

    @cached_property
    def shallow_first(self) -> tuple[Integers, Integers]:
        """Inner stages (L * L,) by growing limit, and how many do not fit at index s = 2..L, at [s - 1]; 0 at [0]."""
        deepest = self.inner
        order = np.argsort(deepest, axis=None, kind="stable")
        passed = np.searchsorted(deepest.ravel()[order], np.arange(1, len(deepest) + 1))
        passed[0] = 0
        return order, passed


@dataclass(frozen=True)
class PartitionProblem:
    """A chain of L layers to cut into stages, for A architectures that share one memory capacity.

    `plain_s`, `recompute_s` (A, L): seconds of a layer in a stage that keeps or recomputes its activations.
    `boundary_s` (A, L+1): seconds that a cut before layer i adds to each of the two stages; at 0 and L what
    the outer ends add. `kind` (L,): equal numbers mark layers that repeat (used by the lower bound only).
    `exactly`: a number of stages means exactly, not at most, so many.
    """

    plain_s: Floats
    recompute_s: Floats
    boundary_s: Floats
    limits: StageLimits
    kind: Integers
    exactly: bool = False

    def __post_init__(self) -> None:
        """Check shapes and signs.

        Raises:
            ValueError: arrays do not fit together, or a time is negative or not finite.
        """
        count, layers = self.plain_s.shape
        shapes = (self.recompute_s.shape, self.boundary_s.shape, self.kind.shape, self.limits.inner.shape)
        if shapes != ((count, layers), (count, layers + 1), (layers,), (layers, layers)):
            raise ValueError(f"shapes {shapes} do not fit {count} architectures of {layers} layers")
        for times in (self.plain_s, self.recompute_s, self.boundary_s):
            if not np.isfinite(times).all() or (times < 0).any():
                raise ValueError("times must be finite and not negative")
        if (self.recompute_s < self.plain_s).any():
            raise ValueError("recomputing a layer cannot be faster than keeping its activations")

    @property
    def architectures(self) -> int:
        """Number of architectures A."""
        return int(self.plain_s.shape[0])

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.plain_s.shape[1])

    def select(self, architectures: Integers) -> PartitionProblem:
        """The same chain for some of the architectures."""
        return PartitionProblem(
            self.plain_s[architectures],
            self.recompute_s[architectures],
            self.boundary_s[architectures],
            self.limits,
            self.kind,
            self.exactly,
        )

    @cached_property
    def inner_s(self) -> Floats:
        """Layer times in every stage but the last (A, L)."""
        return self.plain_s if self.limits.recompute is None else self.recompute_s

    @cached_property
    def work_s(self) -> Floats:
        """Prefix sums of `inner_s` (A, L+1)."""
        return prefix_sums(self.inner_s)

    @cached_property
    def ends_s(self) -> Floats:
        """(A, L+1): a stage i..j that is not the last takes `ends_s[j + 1] - starts_s[i]`."""
        return np.ascontiguousarray(self.work_s + self.boundary_s)

    @cached_property
    def starts_s(self) -> Floats:
        """(A, L+1): see `ends_s`."""
        return np.ascontiguousarray(self.work_s - self.boundary_s)

    @cached_property
    def last_recomputes(self) -> Flags:
        """Whether a last stage that starts with layer i has to recompute (L,)."""
        return np.asarray(self.limits.plain[:, -1] < 1)

    @cached_property
    def last_s(self) -> Floats:
        """Load of a last stage that starts with layer i; infinite where it does not fit (A, L)."""
        plain = prefix_sums(self.plain_s)
        ends = self.boundary_s[:, :-1] + self.boundary_s[:, -1:]
        loads = plain[:, -1:] - plain[:, :-1] + ends
        if self.limits.recompute is None:
            return np.where(self.last_recomputes, np.inf, loads)
        recomputed = self.work_s[:, -1:] - self.work_s[:, :-1] + ends
        recomputed = np.where(self.limits.recompute[:, -1] < 1, np.inf, recomputed)
        return np.where(self.last_recomputes, recomputed, loads)


def interval_weights(weights: Floats) -> Floats:
    """Weight of stage i..j at [i, j], as differences of prefix sums, the arithmetic of all solvers (L, L)."""
    prefix = prefix_sums(weights)
    return prefix[None, 1:] - prefix[:-1, None]


def stage_limits(
    *,
    static_bytes: Floats,
    saved_bytes: Floats,
    input_bytes: Floats,
    working_bytes: Floats,
    memory_bytes: float,
    recompute: bool,
    inflight_limit: int | None = None,
) -> StageLimits:
    """Limits of where each stage fits, from the bytes of its layers, each (L,) and per device.

    A stage at index s from the end needs sum(static) + min(s, inflight_limit) * kept + working, where kept is
    the sum of the saved bytes and working the largest of the working ones. A stage that recomputes keeps its
    layers' inputs instead, and works on what one layer saves beside its working bytes.
    """
    static = interval_sums(static_bytes)
    layers = static_bytes.size
    limit = min(layers, layers if inflight_limit is None else inflight_limit)

    def deepest(kept_bytes: Floats, peak_bytes: Floats) -> Integers:
        kept = interval_sums(kept_bytes)
        peak = np.maximum.accumulate(np.triu(np.broadcast_to(peak_bytes, kept.shape)), axis=1)
        base = static + peak
        with np.errstate(divide="ignore", invalid="ignore"):
            unlimited = np.where(base <= memory_bytes, layers, 0)
            guess = np.where(kept > 0, np.floor((memory_bytes - base) / kept), unlimited)
        found = np.clip(guess, 0, limit).astype(np.int64)
        # The quotient may be rounded across an integer; the comparison itself decides.
        found += (found < limit) & (base + (found + 1) * kept <= memory_bytes)
        found -= (found > 0) & (base + found * kept > memory_bytes)
        return np.where(found >= limit, layers, found)

    plain = deepest(saved_bytes, working_bytes)
    return StageLimits(plain, deepest(input_bytes, saved_bytes + working_bytes) if recompute else None)


def fewest_stages(
    *,
    static_bytes: Floats,
    saved_bytes: Floats,
    input_bytes: Floats,
    working_bytes: Floats,
    memory_bytes: float,
    recompute: bool,
    inflight_limit: int | None = None,
) -> int:
    """Lower bound of the number of stages of any partition that fits, see `stage_limits`; 0 if there is none.

    Stages are filled from the end as far as memory allows. Part of a stage that fits fits as well, so this
    reaches furthest with every number of stages. Stages that exceed the memory by rounding alone count as fitting.
    """
    layers = static_bytes.size
    limit = layers if inflight_limit is None else inflight_limit
    static = _sums_from_the_end(static_bytes)
    plain = _sums_from_the_end(saved_bytes), working_bytes
    redo = (_sums_from_the_end(input_bytes), saved_bytes + working_bytes) if recompute else plain

    def furthest(front: int, held: int, kept: Floats, peak_bytes: Floats) -> int:
        peak = np.maximum.accumulate(peak_bytes[front - 1 :: -1])[::-1]
        need = static[:front] - static[front] + held * (kept[:front] - kept[front]) + peak
        return int(np.searchsorted(-need, -memory_bytes * (1 + _ROUNDING)))

    front, stages = min(furthest(layers, 1, *plain), furthest(layers, 1, *redo)), 1
    while front:
        before, stages = front, stages + 1
        front = furthest(before, min(stages, limit), *redo)
        if front == before:
            return 0
    return stages if layers else 0


def _sums_from_the_end(values: Floats) -> Floats:
    """Sum of values[i..] at [i], 0 at the end (L+1,)."""
    return prefix_sums(values[::-1])[::-1]
