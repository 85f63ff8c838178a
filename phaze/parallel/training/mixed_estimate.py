"""Plans of pipelines whose devices are of different architectures: the estimate, each device on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.errors import InputError
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import device_of
from phaze.parallel.training.exchanges.gradient_sync import GradientSyncs
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.stage_times import PassTime, StageTimes
from phaze.workload.parallel_degrees import Parallel


@dataclass(frozen=True)
class MixedEstimator(Estimator):
    """Plans of one workload on pipelines of different architectures, all replicas alike.

    `table` has the architectures, `rows` the one that every device of a pipeline is. Passes and what follows them are
    those of the architecture of a device; what goes between two devices is as slow as the slower one has it. Bytes are
    the same on all architectures.
    """

    rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, several: Estimator, rows: Sequence[int]) -> MixedEstimator:
        """Devices that are one of several architectures each."""
        given = {f.name: getattr(several, f.name) for f in fields(Estimator)}
        return cls(**given, rows=tuple(rows))  # what is kept is kept for all

    def on(self, device: int) -> Estimator:
        """A pipeline of devices that are all as one of these."""
        return self._one(self.rows[device])

    def _one(self, row: int) -> Estimator:
        if "each" not in self._kept:
            plain = {f.name: getattr(self, f.name) for f in fields(Estimator)}
            self._kept["each"] = Estimator(**plain).each()
        found: Estimator = self._kept["each"][row]
        return found

    def stage_times(self, plan: ParallelPlan) -> StageTimes:
        """Seconds of one microbatch in every chunk, on its device. Raises InputError where it has none of its own."""
        device = self._devices(plan)
        known = {row: self._one(row).stage_times(plan) for row in set(self.rows)}
        each = [known[row] for row in self.rows]
        sides = ([getattr(one, name) for one in each] for name in ("forward", "recomputation", "backward"))
        forward, recomputation, backward = (picked(some, device, np.arange(len(device))) for some in sides)
        ways = np.array([one.transfer_s for one in each])
        at = np.arange(len(device) - 1)
        return StageTimes(
            forward, recomputation, backward, np.maximum(ways[device[:-1], at], ways[device[1:], at])
        )

    def gradient_sync(self, plan: ParallelPlan) -> GradientSyncs:
        """Gradient synchronisation after the last microbatch on every device of its pipeline, (1, p)."""
        known = {row: self._one(row).gradient_sync(plan) for row in set(self.rows)}
        each, place = [known[row] for row in self.rows], np.arange(len(self.rows))
        names = (f.name for f in fields(GradientSyncs))
        found = {n: np.array([getattr(one, n)[0] for one in each])[place, place][None] for n in names}
        found["reduction_s"] = found["reduction_s"] + self._tie_waits_s(plan)
        return GradientSyncs(**found)

    def _tie_waits_s(self, plan: ParallelPlan) -> Floats:
        """Seconds that the faster of both ends waits longer for the sum of gradients that they share, (p,)."""
        tied, found = self.device_parameters(plan).tied, np.zeros(len(self.rows))
        if not tied.any():
            return found
        ends = [0, len(self.rows) - 1]
        payload = float(tied[0]) * self.rates.reduced_bytes
        own_s = [float(self.on(device).exchanges(plan).tie_s(payload)[0, 0]) for device in ends]
        found[ends] = max(own_s) - np.array(own_s)
        return found

    def iteration(self, plan: ParallelPlan) -> Iteration:
        """Time and memory of an iteration. Raises InputError where cluster, model or devices do not allow it."""
        self._devices(plan)
        return super().iteration(plan)

    def energy_j(self, plan: ParallelPlan, iteration: Iteration) -> float:
        """Energy is of one architecture only: raises InputError."""
        raise InputError("energy is worked out for devices of one architecture only")

    def _devices(self, plan: ParallelPlan) -> Rows:
        """The device of every chunk, (C,): of devices that share a chunk, which are of one architecture, the first.

        Raises InputError where they are not, or the plan asks for something else than these devices.
        """
        s, rows = plan, np.array(self.rows)
        if s.pipeline_parallel != len(rows):
            raise InputError(f"{len(rows)} devices of a pipeline of {s.pipeline_parallel}")
        if s.branches:
            raise InputError("branches run side by side on devices of one architecture only")
        if s.offload:
            raise InputError("nothing can be left to hosts where devices differ")
        device: Rows = device_of(s.schedule, s.pipeline_parallel, s.chunks)
        if (rows[device] != rows[device[0]]).any():
            raise InputError(f"{s.schedule} has the same layers on two devices, which have to be alike")
        first: Rows = device[0]
        return first


def picked(sides: Sequence[PassTime], device: Rows, chunk: Rows) -> PassTime:
    """Every chunk as the side of its device has it."""

    def pick(parts: Sequence[Floats]) -> Floats:
        found: Floats = np.array(parts)[device, chunk]
        return found

    names = [f.name for f in fields(PassTime) if f.name != "exposed_s"]
    exposed = {p: pick([side.exposed_s[p] for side in sides]) for p in Parallel}
    return PassTime(
        **{name: pick([getattr(side, name) for side in sides]) for name in names}, exposed_s=exposed
    )
