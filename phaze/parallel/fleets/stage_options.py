"""Options of a stage in a fleet, as tables: every run of blocks on every pool at every tensor width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.cluster import Recompute
from phaze.parallel.fleets.fleet_file import Pool
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.cut_pipelines import GroupTimes
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.parallel.plan_search.mixed_pipelines import Architectures
from phaze.parallel.plan_search.mixed_plan_search import Cutting
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.stage_times import passes_of
from phaze.solvers.placement.pools import PoolChain
from phaze.solvers.placement.pools.pool_chain_search import MOST_STATES
from phaze.solvers.placement.stage_costs import interval_sums
from phaze.tolerances import BOUND_ROUNDING
from phaze.workload.parallel_degrees import Sharding


@dataclass(frozen=True)
class Member:
    """A pool with its estimator and plan space, bytes that plans may fill of a device, and what a device is worth.

    `rate`: of the objective, for each second that one is in use.
    """

    pool: Pool
    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Common:
    """What the stages of a plan share: samples of a microbatch, replicas, and what these divide."""

    microbatch: int
    replicas: int
    zero: Zero


@dataclass(frozen=True)
class Width:
    """A tensor width on a pool: runs of blocks at one size of microbatch."""

    member: Member
    shape: ParallelPlan

    @property
    def tensor(self) -> int:
        """Devices of one replica of the stage."""
        return self.shape.sharding.tensor

    @cached_property
    def _cutting(self) -> Cutting:
        e, options = self.member.estimator, self._options
        rows = passes_of(e.layer_costs(self.shape), options.kinds[0], e.framework)
        rows = rows.reshape(1, 7, -1) if rows.ndim == 2 else rows.transpose(1, 0, 2)
        times = GroupTimes(rows, np.array([float(e.rates.optimizer_s)]))
        link = np.asarray(e.table["link_bandwidth_bytes_per_s"], dtype=np.float64)
        return Cutting(
            options, Architectures(times, np.array([self.member.capacity_bytes]), link, np.ones(1))
        )

    @cached_property
    def _options(self) -> ShapeOptions:
        return ShapeOptions(self.member.estimator.layouts, self.member.space, self.shape)

    @cached_property
    def load_s(self) -> Floats:
        """Least seconds of a microbatch in blocks i..j, recomputing nothing that need not be, (L, L)."""
        found: Floats = self._cutting.runs_s(self._options.recomputation)[0] * (1 - BOUND_ROUNDING)
        return found

    def once_s(self, common: Common) -> Floats:
        """Least seconds that blocks i..j take once per iteration: the step of the optimizer, (L, L)."""
        e, sizes = self.member.estimator, self._options.layouts.sizes(self.shape)
        groups = np.add.reduceat(sizes.parameters[0], [first for first, _ in self._options.division.groups])
        each = np.add.reduceat(groups, self._options.blocks)
        ranks = common.replicas if common.zero is not Zero.NONE else 1
        rate = float(e.rates.optimizer_s) * e.framework.optimizer_stretch / ranks
        found: Floats = interval_sums(each) * rate * (1 - BOUND_ROUNDING)
        return found

    def deepest(self, common: Common) -> Integers:
        """Largest index from the end at which blocks i..j fit, with as much recomputed as may be, (L, L)."""
        plan = replace(self.shape, data_parallel=common.replicas, zero=common.zero)
        capacity = np.array([self.member.capacity_bytes])
        found: Integers = self._cutting.deepest(plan, self._cutting.modes[-1], capacity)[0]
        return found


@dataclass(frozen=True)
class StageOptions:
    """Options of the stages of all plans that have one microbatch size in common; what they share is kept."""

    members: tuple[Member, ...]
    microbatch: int
    _kept: dict[tuple[int, Zero], Integers] = field(default_factory=dict)

    @cached_property
    def widths(self) -> tuple[Width, ...]:
        """Every tensor width of every pool."""
        return tuple(Width(member, shape) for member in self.members for shape in self._shapes(member))

    def _shapes(self, member: Member) -> Sequence[ParallelPlan]:
        space, most = member.space, member.pool.devices
        frugal = Recompute.FULL in space.recomputes and space.frugal
        recompute = Recompute.FULL if Recompute.FULL in space.recomputes else space.recomputes[0]
        return [
            ParallelPlan(
                self.microbatch,
                sharding=Sharding(t, max(space.sequence) and t > 1),
                schedule=Schedule.ONE_F_ONE_B,
                recompute=recompute,
                recomputed=0 if frugal else None,
            )
            for t in space.tensor
            if t <= most
        ]

    @cached_property
    def pool_of(self) -> tuple[int, ...]:
        """Number of the pool of each width."""
        return tuple(self.members.index(width.member) for width in self.widths)

    @cached_property
    def load_s(self) -> Floats:
        """Least seconds of a microbatch, (O, L, L)."""
        return np.stack([width.load_s for width in self.widths])

    @property
    def blocks(self) -> int:
        """Blocks of the model, L."""
        return int(self.load_s.shape[1])

    def room(self, common: Common) -> tuple[int, ...]:
        """Devices of every pool for one replica."""
        widest = [max(w.tensor for w in self.widths if w.member is member) for member in self.members]
        rooms = [member.pool.devices // common.replicas for member in self.members]
        return tuple(min(n, t * self.blocks) for n, t in zip(rooms, widest, strict=True))

    def microbatches(self, common: Common) -> int:
        """Microbatches of every pipeline."""
        batch = self.members[0].estimator.cluster.global_batch
        return -(-batch // (common.microbatch * common.replicas))

    def least_s(self, common: Common) -> float:
        """Lower bound of the seconds of an iteration, from devices and work alone.

        On pool k a block takes r_k times the device-seconds of a base or more, so that room_k devices kept busy for c
        seconds do no more than room_k c / r_k of it.
        """
        each = np.diagonal(self.load_s, axis1=1, axis2=2) * np.array([w.tensor for w in self.widths])[:, None]
        base, pools = each.min(axis=0), np.array(self.pool_of)
        ratios = [float((each[pools == k].min(axis=0) / base).min()) for k in range(len(self.members))]
        able = sum(room / ratio for room, ratio in zip(self.room(common), ratios, strict=True))
        return self.microbatches(common) * float(base.sum()) / able if able > 0 else inf

    def opens(self, common: Common) -> bool:
        """Whether the numbers of devices left can be told apart."""
        return prod(n + 1 for n in self.room(common)) <= MOST_STATES

    def chain(self, common: Common) -> PoolChain:
        """The chain of blocks on the pools."""
        tensors = tuple(width.tensor for width in self.widths)
        return PoolChain(
            self.load_s,
            np.stack([width.once_s(common) for width in self.widths]),
            np.stack([width.deepest(common) for width in self.widths]),
            self.pool_of,
            tensors,
            self.room(common),
            self.microbatches(common),
        )
