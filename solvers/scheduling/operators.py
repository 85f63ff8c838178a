"""Operators and the ways to run them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run an operator: on `cores` of each of its units, for `latency_s` without interruption.

    `cores` None is core-parallel: on all cores, excluding every operator that needs a blocked unit.
    `bandwidth` is what it draws of the problem's shared bandwidth while it runs, in the same unit (such as
    byte/s): concurrent operators divide it by the modes they are given.
    """

    cores: int | None
    latency_s: float
    bandwidth: float = 0.0


@dataclass(frozen=True, slots=True)
class Operator:
    """One indivisible piece of work.

    `units` are the unit types it needs, such as ("TC",), ("TC", "VC") or ("LINK",). It runs in one of its
    `modes`: on one core of each unit for `latency_s` (None: not so), core-parallel for
    `parallel_latency_s` (None: not so), or in one of the `moldable` ones, side by side with others.
    """

    id: str
    units: tuple[str, ...]
    latency_s: float | None
    parallel_latency_s: float | None = None
    moldable: tuple[Mode, ...] = ()

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Every way to run it: one core of each unit, core-parallel, then the moldable ones."""
        one = () if self.latency_s is None else (Mode(1, self.latency_s),)
        every = () if self.parallel_latency_s is None else (Mode(None, self.parallel_latency_s),)
        return (*one, *every, *self.moldable)
