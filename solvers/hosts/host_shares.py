"""Shares of a host's cores and memory for jobs whose accelerators wait for them (Synergy, arXiv 2110.06073).

Every job has one of its uses (cores c, memory m) with a throughput that somebody measured or told. With W the
throughput over that of its fair share, y in {0, 1}:

    maximise sum of W y   where   sum of c y <= C,   sum of m y <= M,   one use of each job,   W y >= 1 of each job,

so that no job is slower than with its fair share. Solved exactly by HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class HostUse:
    """What a job may have of a host, and its samples a second with it."""

    cores: float
    memory_bytes: float
    samples_per_s: float


@dataclass(frozen=True)
class HostJob:
    """A job with its accelerators given; `fair`: the use, by number, that it has without any choice."""

    name: str
    uses: tuple[HostUse, ...]
    fair: int = 0

    def __post_init__(self) -> None:
        """Check the numbers. ValueError where a job has no fair use or no throughput with it."""
        if not 0 <= self.fair < len(self.uses) or self.uses[self.fair].samples_per_s <= 0:
            raise ValueError(f"{self.name} has no fair use with a throughput")

    @property
    def gains(self) -> tuple[float, ...]:
        """Throughput of each use over that of the fair one."""
        return tuple(use.samples_per_s / self.uses[self.fair].samples_per_s for use in self.uses)

    @classmethod
    def fed_by_cores(
        cls,
        name: str,
        samples_per_s: float,
        core_s_per_sample: float,
        cores: Sequence[int],
        memory_bytes: float = 0.0,
        fair: int = 0,
    ) -> HostJob:
        """A job whose accelerators take so many samples a second, each of which costs a core some seconds before.

        Throughput with c cores = min(accelerators, c / core seconds of a sample): input is made beside the iteration.
        """
        rates = [min(samples_per_s, c / core_s_per_sample if core_s_per_sample else np.inf) for c in cores]
        uses = (HostUse(float(c), memory_bytes, float(rate)) for c, rate in zip(cores, rates, strict=True))
        return cls(name, tuple(uses), fair)


@dataclass(frozen=True)
class HostShares:
    """The use of every job, by number, and the sum of gains; no uses where no choice keeps to the host."""

    gain: float
    uses: tuple[int, ...] = ()


def share_host(jobs: Sequence[HostJob], cores: float, memory_bytes: float) -> HostShares:
    """The uses of greatest total gain within a host of so many cores and so much memory; exact."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    owner = np.repeat(np.arange(len(jobs)), [len(job.uses) for job in jobs])
    uses = [use for job in jobs for use in job.uses]
    gains = np.array([gain for job in jobs for gain in job.gains])
    held = np.array([[use.cores for use in uses], [use.memory_bytes for use in uses]])
    limits = np.array([cores, memory_bytes])
    scale = np.maximum(limits, 1.0)[:, None]  # bytes and cores alike near one
    one_each = (owner == np.arange(len(jobs))[:, None]).astype(float)
    found = milp(
        -gains,
        integrality=np.ones(len(uses)),
        bounds=Bounds(0, np.where(gains >= 1 - 1e-12, 1, 0)),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(held / scale, ub=limits / scale[:, 0]),
        ],
    )
    if found.x is None:
        return HostShares(0.0)
    taken = np.flatnonzero(np.round(found.x) == 1)
    firsts = np.searchsorted(owner, np.arange(len(jobs)))
    return HostShares(float(gains[taken].sum()), tuple((taken - firsts).tolist()))
