"""Goodput of a plan: throughput, times the time that failures leave it, times the replicas that they leave it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from phaze.parallel.cluster import Cluster
from phaze.parallel.failures.checkpoint_interval import Interruptions, TimeShares
from phaze.parallel.failures.domain_survival import Domains, OnFailure, Replicas, Survival
from phaze.parallel.failures.failure_record import FailureRecord
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.workload.workload import Workload


@dataclass(frozen=True)
class Goodput:
    """What failures leave of a plan: shares of the time under the best checkpoint interval, and of its replicas.

    `mtbf_s`: mean time between interruptions that nobody planned. `spare_devices`: how many more would keep all
    replicas as they are in 99 % of the time.
    """

    mtbf_s: float
    checkpoint_s: float
    time: TimeShares
    replicas_kept: float
    spare_devices: int

    @property
    def share(self) -> float:
        """Goodput over throughput."""
        return self.time.work * self.replicas_kept


@dataclass(frozen=True)
class FailingCluster:
    """A cluster that fails as a record says, and what its software does about it.

    `checkpoint_bytes`: weights and optimizer states of the model. What a plan comes to depends on its degrees alone.
    """

    cluster: Cluster
    record: FailureRecord
    policy: OnFailure
    checkpoint_bytes: float
    _kept: dict[tuple[int, int, int], Goodput] = field(default_factory=dict)

    @classmethod
    def of(
        cls, workload: Workload, cluster: Cluster, record: FailureRecord, policy: OnFailure
    ) -> FailingCluster:
        """The cluster with a workload on it: a checkpoint holds its state without the gradients."""
        each = workload.numerics.state_bytes - workload.numerics.gradient_bytes
        return cls(cluster, record, policy, workload.parameter_count * each)

    def on(self, cluster: Cluster) -> FailingCluster:
        """The same failures of a cluster that works on another batch."""
        return replace(self, cluster=cluster, _kept={})

    @property
    def domains(self) -> Domains:
        """Scale-up domains of its network."""
        size = min(self.cluster.network.scale_up_devices, self.cluster.devices)
        count, rest = divmod(self.cluster.devices, size)
        rest_out = self.record.devices_out(rest) if rest else np.ones(1)
        return Domains(count, self.record.devices_out(size), rest_out)

    def slowdown(self, plan: ParallelPlan) -> float:
        """Seconds of the wall clock for each second of iterations; infinite where nothing gets done."""
        share = self.goodput(plan).share
        return 1 / share if share > 0 else inf

    def goodput(self, plan: ParallelPlan) -> Goodput:
        """What failures leave of a plan."""
        key = plan.data_parallel, plan.pipeline_parallel, plan.width
        if key not in self._kept:
            self._kept[key] = self._goodput(plan)
        return self._kept[key]

    def _goodput(self, plan: ParallelPlan) -> Goodput:
        domains, job = self.domains, self._interruptions(plan, self.domains.size)
        batch = -(-self.cluster.global_batch // plan.data_parallel)
        replicas = Replicas(plan.data_parallel, plan.pipeline_parallel, plan.width, batch)
        left = Survival(domains, replicas, self.policy)
        return Goodput(job.mtbf_s, job.checkpoint_s, job.shares(), left.kept, left.spare_groups * plan.width)

    def _interruptions(self, plan: ParallelPlan, domain: int) -> Interruptions:
        """Interruptions of the devices that a plan uses."""
        rates = (
            self.record.interruptions_per_s(plan.devices, domain, planned=planned)
            for planned in (False, True)
        )
        failed_s, planned_s = (1 / rate if rate > 0 else inf for rate in rates)
        write_s = self.record.write_s(self.checkpoint_bytes)
        return Interruptions(failed_s, write_s, self.record.restart_s, planned_s)
