"""A plan on one device that another job shares: what each asks of the device, and how they slow each other down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats
from phaze.cost.pass_energy import busy_share
from phaze.errors import InfeasibleError, InputError
from phaze.explore.documents.plan_document import PlanColocation
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.request.explore_request import Task
from phaze.hardware.derived_figures import product_flops_per_s, vector_alus
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.parallel.timeline.shared_device import KernelLoop, Shared, shared
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.work import Pass, Work
from phaze.workload.workload import Mode, Workload

RESOURCES = ("tensor cores", "vector cores", "HBM")
"""What kernels of two jobs contend for."""

_SCHEDULES = {
    Mode.TRAINING: Schedule.ONE_F_ONE_B,
    Mode.PREFILL: Schedule.FORWARD,
    Mode.DECODE: Schedule.CACHED,
}
_GIB = 2.0**30


@dataclass(frozen=True)
class DeviceJob:
    """A job on one device: passes of a microbatch of its plan, again and again."""

    costs: Estimator
    plan: ParallelPlan

    @classmethod
    def beside(cls, task: Task, played: ReplayedPlan, workload: Workload, batch: int) -> DeviceJob:
        """Passes of a model, in batches, by the software of a task on the chip of a plan that is played."""
        alone = replace(task, workload=workload, devices=1, global_batch=batch, held={})
        plan = ParallelPlan(batch, schedule=_SCHEDULES[workload.mode])
        return cls(estimator_of(alone, played.costs.table), plan)

    @property
    def memory_bytes(self) -> float:
        """All that lies on the device."""
        return self.costs.iteration(self.plan).memory_bytes

    def loop(self, *, by_cores: bool) -> KernelLoop:
        """Kernels of a pass; `by_cores`: each holds the cores that it keeps busy, otherwise it leaves room."""
        parts = [self._kernels(pass_, experts=experts) for pass_, experts in self._passes()]
        seconds, demands, held = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        runs = seconds > 0
        return KernelLoop(seconds[runs], demands[runs], (held if by_cores else np.zeros_like(held))[runs])

    def _passes(self) -> Iterator[tuple[Pass, bool]]:
        """Passes of layers in their order, forward and back."""
        chain = self.costs.layer_costs(self.plan).chain
        layers = [chain.layers[unique] for unique in chain.index]
        for layer in layers:
            yield layer.forward, layer.expert_parameters > 0
        for layer in reversed(layers):
            if layer.backward is not None:
                yield layer.backward, layer.expert_parameters > 0

    def _kernels(self, pass_: Pass, *, experts: bool) -> tuple[Floats, Floats, Floats]:
        """Seconds (O,), demands (O, R) and share of the cores (O, 1) of the operators of a pass."""

        def counted() -> tuple[Floats, Floats, Floats]:
            seconds = self.costs.costs.costed(pass_, experts=experts).alone_s[0, : len(pass_.works)]
            asked_s = np.stack([*self._busy_s(pass_.works), self._hbm_s(pass_)], axis=1)
            shares = np.divide(
                asked_s, seconds[:, None], out=np.zeros_like(asked_s), where=seconds[:, None] > 0
            )
            return seconds, np.minimum(shares, 1.0), busy_share(pass_.works, self.costs.loaded).T

        return self.costs.once(("kernels of a job", id(pass_), experts), counted)

    def _busy_s(self, works: tuple[Work, ...]) -> tuple[Floats, Floats]:
        """Seconds that operators keep all tensor cores, and all vector cores, busy at least, (O,) each."""
        table = self.costs.loaded
        formats = {gemm.operands for work in works for gemm in work.gemms}
        rate = {one: float(product_flops_per_s(table, one)[0]) / 2 for one in formats}
        products = [sum(gemm.macs / rate[gemm.operands] for gemm in work.gemms) for work in works]
        visible = [1.0 if work.flash is None else work.flash.visible for work in works]
        alus = float(vector_alus(table)[0] * table["clock_hz"][0])
        vectors = [work.vector_cycles / alus for work in works]
        return np.array(products) * visible, np.array(vectors)

    def _hbm_s(self, pass_: Pass) -> Floats:
        found = self.costs.model.costs(pass_)
        seconds: Floats = found.tables.hbm_s[found.factors.memory_of[0]]
        return seconds


def colocated(played: ReplayedPlan, task: Task, workload: Workload, batch: int) -> PlanColocation:
    """A plan that is played with another job beside it.

    Raises InputError where it is on more than one device, InfeasibleError where memory does not hold both.
    """
    if played.strategy.devices > 1:
        raise InputError("jobs share one device: give --devices 1")
    own = DeviceJob(played.costs, played.strategy)
    other = DeviceJob.beside(task, played, workload, batch)
    _check_room(own, other, task.framework.usable_bytes(played.capacity_bytes), workload.name)
    loops = [(own.loop(by_cores=held), other.loop(by_cores=held)) for held in (False, True)]
    together, turns = (shared(*both) for both in loops)
    return PlanColocation(
        workload=workload.name,
        batch=batch,
        memory_bytes=own.memory_bytes + other.memory_bytes,
        pass_alone_s=loops[0][1].alone_s,
        **_figures("together", together),
        **_figures("by_cores", turns),
        contended=_most(together),
    )


def _check_room(own: DeviceJob, other: DeviceJob, room: float, name: str) -> None:
    need = own.memory_bytes + other.memory_bytes
    if need > room:
        raise InfeasibleError(
            f"{name} needs {other.memory_bytes / _GIB:.4g} GiB beside {own.memory_bytes / _GIB:.4g} GiB of the plan; "
            f"a device has {room / _GIB:.4g} GiB for both"
        )


def _figures(name: str, found: Shared) -> dict[str, float]:
    mine, others = found.progress
    return {
        f"plan_slowdown_{name}": 1 / mine,
        f"other_slowdown_{name}": 1 / others,
        f"devices_worth_{name}": found.devices_worth,
    }


def _most(found: Shared) -> str | None:
    """The resource that slows both down for the longest; none does: None."""
    return RESOURCES[int(found.contended.argmax())] if found.contended.any() else None
