"""Energy of one iteration on all devices, for many architectures at once, each with a plan of its own.

Beside the chain of layers and the architecture, energy depends on four figures of a plan alone and grows with
each of them, so that least figures give a bound that no plan falls below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.collectives.collective_times import wire_bytes
from phaze.cost.cost_model import PassCosts
from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.cost.pass_energy import (
    Events,
    as_kernels,
    dynamic_j,
    full_load_w,
    optimizer_events,
    pass_events,
    product_events,
    static_w,
    within_full_load,
)
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.training.operator_costs import scored, stretch_of
from phaze.scheduling.layers import TimedChain
from phaze.workload.work import Collective, LayerChain
from phaze.workload.workload import Numerics


@dataclass(frozen=True)
class Drivers:
    """Figures of a plan that its energy depends on, for (A,) architectures; one value serves all.

    `recomputed` (A, U): layers of each unique kind that run forward twice; `data_parallel` (A,): pipelines;
    `cut_bytes` (A,): tensors between stages, all cuts together; `iteration_s` (A,). `gathers`: how often weights that
    ranks divide are put together in an iteration, `host_bytes`: what all devices exchange with the memory of hosts.
    """

    recomputed: Floats
    data_parallel: Floats
    cut_bytes: Floats
    iteration_s: Floats
    gathers: Floats | float = 0.0
    host_bytes: Floats | float = 0.0

    @classmethod
    def join(cls, each: Sequence[Drivers]) -> Drivers:
        """Those of several plans, each on one architecture."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([np.atleast_1d(getattr(one, name)) for one in each]) for name in names))


@dataclass(frozen=True)
class ChainEnergy:
    """One chain on one cluster, for the architectures of the timed chain's table."""

    timed: TimedChain
    cluster: Cluster
    numerics: Numerics
    framework: Framework = field(default_factory=load_framework)

    def energy_j(self, rows: Rows, plans: Drivers) -> Floats:
        """Joules of one iteration on all devices, (A,): its work, and what flows whatever runs.

        E = min(work + standing power x devices x time, power at full load x devices x time) on chips that firmware
        holds to the latter. Source: docs/decisions/0085-never-above-full-load.md.
        """
        table, device_s = self.timed.table.take(rows), self.cluster.devices * plans.iteration_s
        joules = self.work_j(rows, plans) + static_w(table) * device_s
        return within_full_load(joules, device_s, full_load_w(table))

    def work_j(self, rows: Rows, plans: Drivers) -> Floats:
        """Joules of the events of all that runs on all devices, (A,), whatever time it takes."""
        chain, table = self.timed.chain, self.timed.table.take(rows)
        groups = self.cluster.global_batch / chain.microbatch * _ranks(chain)
        return dynamic_j(self._compute(rows, plans.recomputed) * groups + self._exchange(plans, table), table)

    def _compute(self, rows: Rows, recomputed: Floats) -> Events:
        """Events of one microbatch through the whole chain, on one device of every stage's group."""
        total, forward = Events(), self._counts + recomputed
        for unique, count in enumerate(self._counts):
            total = total + self._pass(self.timed.forward[unique].costs, rows) * forward[:, unique]
            total = total + self._pass(self.timed.backward[unique].costs, rows) * count
        return total

    def _pass(self, costs: PassCosts, rows: Rows) -> Events:
        """Events of a pass whose kernels take as long as in training by the framework."""
        each = np.array([stretch_of(work, self.framework) for work in costs.pass_.works])
        return pass_events(costs, rows, self.framework.stretch * each) + self._score_passes(costs, rows)

    def _score_passes(self, costs: PassCosts, rows: Rows) -> Events:
        """Events of the kernels that read the scores of the vocabulary beside the loss."""
        read = sum(work.stream_bytes for work in scored(costs.pass_))
        if not (moved := self.framework.score_passes * read):
            return Events()
        table = self.timed.table.take(rows)
        running_s = self.framework.stretch * moved / hbm_bandwidth_bytes_per_s(table)
        return as_kernels(Events(buffer_bytes=moved, hbm_bytes=moved), running_s, table)

    @cached_property
    def _counts(self) -> Floats:
        """Layers of each unique kind, (U,)."""
        chain = self.timed.chain
        return np.bincount(chain.index, minlength=len(chain.layers)).astype(np.float64)

    def _exchange(self, plans: Drivers, table: ArchitectureTable) -> Events:
        """Exchanges of stages and hosts, gradient reduction and optimizer step of all devices.

        Links count both ends, those to hosts the device's own.
        """
        chain = self.timed.chain
        width, d = chain.tensor_parallel, plans.data_parallel
        replicas = d * chain.sharding.context  # ranks that share a sample hold the same parameters
        ways = 2 if any(layer.backward is not None for layer in chain.layers) else 1
        shares = width * wire_bytes(Collective.ALL_GATHER, plans.cut_bytes, width)
        microbatches = self.cluster.global_batch / chain.microbatch
        sent = microbatches * ways * (plans.cut_bytes + shares)
        reduced = self._among_replicas(Collective.ALL_REDUCE, self.numerics.gradient_bytes, replicas)
        gathered = self._among_replicas(Collective.ALL_GATHER, self.numerics.weight_bytes, replicas)
        exchanged = Events(link_bytes=2 * (reduced + plans.gathers * gathered))
        stepping_s = self.framework.optimizer_stretch * optimizer_s_per_parameter(table, self.numerics)
        stepped = optimizer_events(chain.parameters, self.numerics)
        step = as_kernels(stepped, chain.parameters * stepping_s, table) + exchanged
        hosts = Events(hbm_bytes=plans.host_bytes, link_bytes=plans.host_bytes)
        return step * (_ranks(chain) * d) + Events(link_bytes=2 * sent) + hosts

    def _among_replicas(self, collective: Collective, each_bytes: float, replicas: Floats) -> Floats:
        """Bytes that a device sends of so many per parameter; tensor ranks are replicas of what they keep whole."""
        chain = self.timed.chain
        whole = chain.replicated_parameters
        own = wire_bytes(collective, (chain.parameters - whole) * each_bytes, replicas)
        return own + wire_bytes(collective, whole * each_bytes, replicas * chain.tensor_parallel)


def least_products(chain: LayerChain, cluster: Cluster) -> Events:
    """Products of one iteration on all devices, nothing recomputed: what any plan of a chain does at least."""
    total = Events()
    for unique, layer in enumerate(chain.layers):
        passes = [layer.forward] if layer.backward is None else [layer.forward, layer.backward]
        for each in passes:
            total = total + product_events(each) * chain.index.count(unique)
    return total * (cluster.global_batch / chain.microbatch * _ranks(chain))


def _ranks(chain: LayerChain) -> int:
    """Devices that work on one microbatch in one stage."""
    return chain.sharding.tensor * chain.sharding.context
