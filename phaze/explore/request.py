"""What is asked of the explorer, every default spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.cost.kernels.calibration_file import CalibrationFile
from phaze.cost.kernels.fitted import NO_OWN, Own
from phaze.cost.rung import Rung
from phaze.errors import InputError
from phaze.explore.held import space_of
from phaze.explore.portfolio.merit import Combine
from phaze.hardware.network import Network
from phaze.hardware.space import DesignSpace
from phaze.placement.cluster import Cluster
from phaze.placement.strategy.choices import Plans, load_plans
from phaze.placement.strategy.framework import Framework, load_framework
from phaze.placement.strategy.search.space import PlanSpace
from phaze.workload.low_precision import Recipe
from phaze.workload.workload import Workload


class Objective(StrEnum):
    """What is optimised; the direction is built in."""

    THROUGHPUT = "throughput"
    THROUGHPUT_PER_TDP = "throughput_per_tdp"
    TDP = "tdp"
    AREA = "area"
    ENERGY_PER_SAMPLE = "energy_per_sample"
    MEMORY = "memory"
    COST_PER_CHIP = "cost_per_chip"

    @property
    def on_frontier(self) -> bool:
        """Whether it is a function of throughput and TDP whose best is certain to be on the frontier of the two.

        The complete frontier proves the optimum of every such objective; the others need a search of their own.
        """
        return self in (Objective.THROUGHPUT, Objective.THROUGHPUT_PER_TDP, Objective.TDP)


@dataclass(frozen=True)
class Budgets:
    """Limits per accelerator; None means no limit. TDP counts with `tdp_margin`.

    Power density is TDP over the total silicon of the package, the price what a package costs to make. `dvfs`: lower
    the clock of an architecture, to whole MHz, until it keeps the budgets of power and power density.
    """

    power_w: float | None = None
    area_mm2: float | None = None
    tdp_margin: float = 1.0
    dvfs: bool = False
    power_density_w_per_mm2: float | None = None
    price_usd: float | None = None

    @property
    def limits(self) -> tuple[float | None, float | None, float, float | None, float | None]:
        """Power, area, margin, power density and price, as `phaze.hardware.budgets` takes them."""
        return (self.power_w, self.area_mm2, self.tdp_margin, self.power_density_w_per_mm2, self.price_usd)


@dataclass(frozen=True)
class ClusterBudget:
    """Budgets for all accelerators together, their number being free (that of the task does not count).

    At least one of power and cost is given. `overhead`: power of the cluster over that of its accelerators (hosts,
    switches). The cost is that of making the accelerators.
    """

    power_w: float | None = None
    overhead: float = 1.0
    cost_usd: float | None = None


@dataclass(frozen=True)
class Task:
    """A workload on a cluster: everything but the architecture.

    `rung`: of the cost model; `calibration`: constants of one chip for its calibrated rung. `recipe`: in which few
    bits linear layers may run, where the chip is faster on such operands and the iteration is. Plans are those of the
    space `plans` that `framework` runs, within the choices of `PlanSpace` fields that are `held`, and fill no more than
    `memory_bytes` of a device (None: what the framework leaves of it).
    """

    workload: Workload
    devices: int
    network: Network
    global_batch: int | None = None
    rung: Rung = Rung.ANALYTIC
    calibration: CalibrationFile | None = None
    recipe: Recipe | None = None
    framework: Framework = field(default_factory=load_framework)
    plans: Plans = field(default_factory=load_plans)
    held: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    memory_bytes: float | None = None

    def usable_bytes(self, capacity_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """What plans may fill of memories of some sizes, (A,)."""
        usable = self.framework.usable_memory * capacity_bytes
        return usable if self.memory_bytes is None else np.minimum(usable, self.memory_bytes)

    @cached_property
    def plan_space(self) -> PlanSpace:
        """The plans that may be chosen. Raises InputError for what is held that the model does not allow."""
        return space_of(self)

    @property
    def own(self) -> Own:
        """Constants that the calibrated rung takes before those of a chip's family."""
        return self.calibration.laws if self.calibration else NO_OWN

    @property
    def cluster(self) -> Cluster:
        """Devices, network and the batch they share."""
        batch = self.global_batch or self.workload.global_batch(self.devices)
        return Cluster(self.devices, batch, self.network)

    @property
    def recipes(self) -> tuple[Recipe | None, ...]:
        """Recipes of linear layers to try; None: as the workload has them."""
        return (None,) if self.recipe is None else (None, self.recipe)

    def workload_in(self, recipe: Recipe | None) -> Workload:
        """The workload with its linear layers run so."""
        return self.workload if recipe is None else self.workload.in_recipe(recipe)

    @property
    def points_per_architecture(self) -> int:
        """Points of every architecture: microbatch size, what divides layers, recompute choice and recipe."""
        return sum(1 for _ in self.plan_space.shapes(self.workload, self.cluster)) * len(self.recipes)


class Designs(StrEnum):
    """How many designs are wanted of a search along the critical path."""

    ONE = "one"  # one for all stages of a pipeline, and for all workloads
    PER_STAGE = "per-stage"  # the stages of a pipeline may differ


@dataclass(frozen=True)
class StrategyChoice:
    """A search without proof to show instead of the certified one, which is then what it is held against.

    `evaluations`: architectures it may evaluate. `designs` (None: what the space allows) and `top_k` (designs kept
    per stage) are for `wham`.
    """

    name: str
    evaluations: int = 200
    designs: Designs | None = None
    top_k: int = 10


@dataclass(frozen=True)
class TrainingLength:
    """How much is trained: a number of tokens or of samples. Electricity: None is the default of the price file."""

    tokens: float | None = None
    samples: float | None = None
    usd_per_kwh: float | None = None
    power_usage_effectiveness: float | None = None

    def samples_of(self, task: Task) -> float:
        """Samples in all. InputError where tokens are asked of a model without a sequence length."""
        if self.samples is not None:
            return self.samples
        length = task.workload.sequence_length
        if self.tokens is None or length is None:
            raise InputError(
                f"{task.workload.name} has no sequence length; give --samples instead of --tokens"
            )
        return self.tokens / length


@dataclass(frozen=True)
class ExploreRequest:
    """The main job: the best architecture of a space for a task (or several) under budgets.

    `combine` and `weights` (one per task, none: all count the same) matter where there are `others`. Floors that
    every workload has to keep: `min_throughput` in samples/s, `max_latency_s` of one iteration. `length`: how
    much is trained with the winner.
    """

    task: Task
    space: DesignSpace
    budgets: Budgets = field(default_factory=Budgets)
    objective: Objective = Objective.THROUGHPUT
    time_limit_s: float = 60.0
    gap: float = 0.0
    seed: int = 0
    others: tuple[Task, ...] = ()
    combine: Combine = Combine.GEOMEAN
    weights: tuple[float, ...] = ()
    min_throughput: float | None = None
    max_latency_s: float | None = None
    cluster: ClusterBudget | None = None
    strategy: StrategyChoice | None = None
    axes: tuple[str, ...] = ()
    robust: bool = False
    length: TrainingLength | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every workload the design is for; one common design where there are several."""
        return (self.task, *self.others)

    @property
    def over_axes(self) -> bool:
        """Whether throughput and TDP do not settle it: a search over points and their own axes does."""
        return bool(self.axes) or not self.objective.on_frontier

    @property
    def lean(self) -> bool:
        """Whether the least memory of any plan is asked for, and nothing else."""
        return self.objective is Objective.MEMORY and not self.axes
