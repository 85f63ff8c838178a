"""Why no plan of a space fits: the smallest memory that would do, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import GIB, hbm_capacity_bytes
from phaze.parallel.pipelines.pipeline_schedule import MOST_PASSES
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_search.plan_answer import PlanAnswer
from phaze.parallel.plan_space import PlanSpace
from phaze.quantity import shown


@dataclass(frozen=True)
class LeastNeeds:
    """What some plans need of memory: how many there are, and the bytes of a device and of its host in the leanest."""

    plans: int
    memory_bytes: float
    host_bytes: float = inf

    @classmethod
    def of(cls, answer: PlanAnswer) -> LeastNeeds:
        """Those that a search looked at."""
        return cls(answer.account.total, answer.least_memory_bytes, answer.least_host_bytes)


def why_unfit_anywhere(
    task: Task, table: ArchitectureTable, name: str, needs: LeastNeeds | None = None
) -> InfeasibleError:
    """Why no plan of a task fits on any architecture of a table, called `name` together.

    `needs`: of plans on the one with most memory, linear layers as the workload has them; None: they are searched.
    """
    largest = table.take(np.array([int(np.argmax(hbm_capacity_bytes(table)))]))
    space = task.plan_space
    capacity = float(task.usable_bytes(hbm_capacity_bytes(largest))[0])
    needs = needs or LeastNeeds.of(best_plans(estimator_of(task, largest), space, capacity))
    found = why_unfit(task, largest, name, space, needs)
    return found if isinstance(found, InfeasibleError) else InfeasibleError(str(found))


def why_unfit(
    task: Task, table: ArchitectureTable, name: str, space: PlanSpace, needs: LeastNeeds
) -> InfeasibleError | InputError:
    """Why `space` has no plan on an architecture (`table` of one row) called `name`, from what its plans need."""
    plans, least, framework = needs.plans, needs.memory_bytes, task.framework
    capacity = float(task.usable_bytes(hbm_capacity_bytes(table))[0])
    if not plans:
        return InputError(
            f"{task.workload.name} on {task.devices} devices: no plan has the degrees, batch and schedule asked for"
            + _narrow(task, space)
        )
    if needs.host_bytes < inf:
        host = _value(table, "host_memory_capacity_bytes")
        levers: tuple[str, ...] = ("more devices", "more memory per host", "ZeRO, or less offloaded")
        short = Shortfall("memory of one device's host", host, needs.host_bytes, "bytes", levers)
    elif least > capacity and task.memory_bytes is not None:
        return InfeasibleError(
            f"{task.workload.name} on {name}: no plan needs as little as {shown(capacity / GIB)} GiB"
        )
    elif least <= capacity:
        return InfeasibleError(f"{task.workload.name} on {name}: the chip has no links to fill devices with")
    else:
        divided = framework.plans.divides != frozenset()
        levers = (
            "more devices",
            "more memory per device",
            "ZeRO, recompute or smaller microbatches, where held",
            *(() if divided else ("a framework that divides more than replicas",)),
        )
        if _value(table, "host_bandwidth_bytes_per_s") > 0 and not any(space.offloads):
            levers = (*levers, "--offload any, which uses the memory of hosts")
        short = Shortfall(
            f"memory of one device ({100 * framework.usable_memory:.0f} % of it can be used)",
            capacity / framework.usable_memory,
            least / framework.usable_memory,
            "bytes",
            levers,
        )
    return InfeasibleError(f"{task.workload.name} does not fit on {name} in any of {plans:,} plans", (short,))


def _value(table: ArchitectureTable, name: str) -> float:
    """A field of an architecture, 0 where it has none."""
    return float(np.nan_to_num(np.asarray(table[name], dtype=np.float64))[0])


def _narrow(task: Task, space: PlanSpace) -> str:
    """Further restrictions of a plan space on its degrees, as a sentence goes on; empty without any."""
    asked = (
        []
        if space.ragged
        else [f"data x microbatch dividing the global batch of {task.cluster.global_batch:,}"]
    )
    asked += ["equally many blocks in every stage"] if space.equal else []
    told = f", with {' and '.join(asked)} (ragged degrees: --plans any)" if asked else ""
    if task.cluster.global_batch > MOST_PASSES:
        told += f"; microbatches times parts of a pipeline are at most {MOST_PASSES:,}"
    return told
