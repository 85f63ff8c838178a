"""Request to the explorer, every default spelled out, and the plans of a task: those of its space that its
framework runs, within the choices that are held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import NO_OWN, CalibrationFile, OwnConstants
from phaze.errors import InputError
from phaze.explore.request.common_score import Combine
from phaze.explore.request.design_metrics import Metric, metric
from phaze.hardware.cluster_network import Network
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.network_share import NetworkDraw
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import Offload
from phaze.parallel.plan_choices import Plans, RecomputeChoice, load_plans
from phaze.parallel.plan_space import PlanSpace, plan_space, selective_spares
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Shardable
from phaze.workload.workload import Mode, Workload


def plan_space_of(task: Task) -> PlanSpace:
    """All plans of the task, some choices held. Raises InputError for one that the model does not allow."""
    choices = dict(task.held)
    _check_held(task, choices)
    space = plan_space(task.workload, task.cluster, task.framework, task.plans)
    if task.workload.mode is not Mode.TRAINING:
        _check_forward(space, choices, task.workload.mode)
    held: dict[str, Any] = {"frugal": space.frugal and "recomputes" not in choices, **choices}
    if "whole" in held:
        sorts = frozenset(layer.shardable for layer in task.workload.chain(1, 1).layers if layer.shardable)
        held["whole"] = _among(sorts, held["whole"], task.workload.name)
    away = _offloads(task) if task.workload.mode is Mode.TRAINING else space.offloads
    found = replace(space, **held | {"offloads": away} | _zeros(space, choices))
    if all(found.whole) and (max(found.tensor) == 1 or True not in found.sequence):
        raise InputError("--whole needs sequence parallelism over two or more tensor-parallel devices")
    return found


def _check_held(task: Task, held: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise InputError for what is held and the framework, the space of plans or the model does not have."""
    for what, choices in (("framework", task.framework.plans), ("space of plans", task.plans)):
        if (why := choices.refusal(held)) is not None:
            name = task.framework.name if what == "framework" else task.plans.name
            raise InputError(f"{what} {name} has no {why}")
    selective = Recompute.SELECTIVE in held.get("recomputes", ())
    if (
        selective
        and task.workload.mode is Mode.TRAINING
        and not selective_spares(task.workload, task.framework)
    ):
        raise InputError(
            f"selective recompute spares nothing of {task.workload.name}: flash attention keeps no scores as it is; "
            "give none or full, or --attention unfused"
        )
    workload = task.workload
    widths = "tensor", "tensor-parallel width", workload.tensor_parallel_divisors
    groups = "expert", "expert-parallel degree", workload.expert_parallel_divisors
    for name, word, divisors in (widths, groups):
        admissible = divisors(task.devices)
        for degree in held.get(name, ()):
            if degree not in admissible:
                possible = ", ".join(map(str, admissible))
                raise InputError(f"{word} {degree} is not possible for {workload.name}; possible: {possible}")


def _check_forward(space: PlanSpace, held: Mapping[str, tuple[Any, ...]], mode: Mode) -> None:
    """Raise InputError for choices that inference does not have."""
    names = ["schedules", "chunks", "recomputes", "zeros", "offloads"]
    names += ["sequence", "context", "whole"] if mode is Mode.DECODE else []
    for name in names:
        there = getattr(space, name)
        wrong = [value for value in held.get(name, ()) if value not in there]
        if wrong:
            raise InputError(
                f"{mode} has no plans with {name} {_word(wrong[0])}, but {', '.join(str(_word(v)) for v in there)}"
            )


def _zeros(space: PlanSpace, held: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """ZeRO stages: what ranks divide beside pipelines of what is held; no pipelines where that is nothing."""
    if space.pipelined_zeros is None or "zeros" not in held:
        return {}
    left = tuple(zero for zero in held["zeros"] if zero in space.pipelined_zeros)
    return {"pipelined_zeros": left} if left else {"pipelined_zeros": None, "pipeline": (1,)}


def _among(
    sorts: Set[Shardable], asked: Sequence[frozenset[Shardable]], name: str
) -> tuple[frozenset[Shardable], ...]:
    """Of sets of layers that stay whole, those of layers that a model has; InputError where that is none."""
    found = tuple(some for some in asked if some <= sorts)
    if not found:
        missing = ", ".join(sorted(frozenset().union(*asked) - sorts))
        there = ", ".join(sorted(sorts)) or "none"
        raise InputError(f"--whole: {name} has no layers of sort {missing} to keep whole; there are: {there}")
    return found


def _offloads(task: Task) -> tuple[frozenset[Offload], ...]:
    """Offload choices of a task that its framework has. Raises InputError where it has none of them."""
    asked, framework = task.held.get("offloads", task.plans.offloads), task.framework
    if found := tuple(one for one in asked if framework.can_offload(one)):
        return found
    ways = "; ".join(map(str, map(_word, framework.offloads or ()))) or "nothing"
    raise InputError(
        f"framework {framework.name} does not offload {_word(asked[0])}; it does offload: {ways}"
    )


def only_on_given_chips(plans: Plans) -> str | None:
    """Why searches over chips do not take a space of plans, as a sentence; None where they do."""
    if plans.branches:
        what = "runs branches side by side"
    elif RecomputeChoice.LAYERS in (plans.recompute or ()):
        what = "chooses what of every block runs again"
    else:
        return None
    return (
        f"space of plans {plans.name} {what}, which dse plan, evaluate and compare do "
        "on given chips and searches over chips do not: take --plans full"
    )


def spelled_choices(held: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Choices that are held, as documents spell them."""
    return {name: [_word(value) for value in values] for name, values in held.items()}


def _word(value: object) -> object:
    """A choice as documents spell it."""
    if isinstance(value, frozenset):
        return "+".join(sorted(value)) or "none"
    return getattr(value, "value", value)


class Objective(StrEnum):
    """Objective that is optimised; the direction is built in."""

    THROUGHPUT = "throughput"
    THROUGHPUT_PER_TDP = "throughput_per_tdp"
    TDP = "tdp"
    AREA = "area"
    ENERGY_PER_SAMPLE = "energy_per_sample"
    MEMORY = "memory"
    COST_PER_CHIP = "cost_per_chip"
    COST_PER_SAMPLE = "cost_per_sample"
    COST_PER_MILLION_TOKENS = "cost_per_million_tokens"
    CARBON_PER_SAMPLE = "carbon_per_sample"
    CARBON_PER_MILLION_TOKENS = "carbon_per_million_tokens"

    @property
    def on_frontier(self) -> bool:
        """Whether it is a function of throughput and TDP whose best is certain to be on the frontier of the two.

        The complete frontier proves the optimum of every such objective; the others need a search of their own.
        """
        return self in (Objective.THROUGHPUT, Objective.THROUGHPUT_PER_TDP, Objective.TDP)


class PowerMeans(StrEnum):
    """What a power budget limits."""

    TDP = "tdp"
    """The worst case: every part of the chip at full load."""
    SUSTAINED = "sustained"
    """What an accelerator draws while the workload runs under its plan, mean over devices and the iteration."""


@dataclass(frozen=True)
class Budgets:
    """Limits per accelerator; None means no limit. TDP counts with `tdp_margin`.

    `power_w` limits what `power_means` says. Power density is TDP over the total silicon of the package, the price what
    a package costs to make by the figures of `economics`. `dvfs`: lower the clock of an architecture, to whole MHz,
    until it keeps the budgets of power and power density. `network`: what counts as power beside the accelerator.
    """

    power_w: float | None = None
    area_mm2: float | None = None
    tdp_margin: float = 1.0
    dvfs: bool = False
    power_density_w_per_mm2: float | None = None
    price_usd: float | None = None
    economics: Economics = field(default_factory=Economics)
    power_means: PowerMeans = PowerMeans.TDP
    network: NetworkDraw | None = None

    @property
    def tdp_limit_w(self) -> float | None:
        """Limit of the TDP in W; None where there is none."""
        return self.power_w if self.power_means is PowerMeans.TDP else None

    @property
    def drawn_limit_w(self) -> float | None:
        """Limit in W of what is drawn while the workload runs; None where there is none."""
        return self.power_w if self.power_means is PowerMeans.SUSTAINED else None

    @property
    def limits(
        self,
    ) -> tuple[float | None, float | None, float, float | None, float | None, Economics, NetworkDraw | None]:
        """Limits that are known without evaluating anything, as `weigh` takes them.

        TDP, area, margin, power density, price, the figures behind prices, and what a network draws.
        """
        density, price = self.power_density_w_per_mm2, self.price_usd
        limits = self.tdp_limit_w, self.area_mm2, self.tdp_margin, density, price
        return (*limits, self.economics, self.network)


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
    `memory_bytes` of a device (None: what the framework leaves of it). `economics`: figures behind money and carbon.
    """

    workload: Workload
    devices: int
    network: Network
    global_batch: int | None = None
    rung: Fidelity = Fidelity.ANALYTIC
    calibration: CalibrationFile | None = None
    recipe: Recipe | None = None
    framework: Framework = field(default_factory=load_framework)
    plans: Plans = field(default_factory=load_plans)
    held: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    memory_bytes: float | None = None
    economics: Economics = field(default_factory=Economics)

    def usable_bytes(self, capacity_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bytes that plans may fill of memories of some sizes, (A,)."""
        usable = self.framework.usable_memory * capacity_bytes
        return usable if self.memory_bytes is None else np.minimum(usable, self.memory_bytes)

    @cached_property
    def plan_space(self) -> PlanSpace:
        """The plans that may be chosen. Raises InputError for what is held that the model does not allow."""
        return plan_space_of(self)

    @property
    def own(self) -> OwnConstants:
        """Constants that the calibrated rung takes before those of a chip's family, for chips of that family alone."""
        return self.calibration.of_family if self.calibration else NO_OWN

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
    TWO = "2"  # beside that, the best two of which every stage has one: certified
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
    """How much is trained: a number of tokens or of samples."""

    tokens: float | None = None
    samples: float | None = None

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
    much is trained with the winner. `two_designs`: whether the best two for the stages of a pipeline are
    asked for, too.
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
    two_designs: bool = False

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every workload the design is for; one common design where there are several."""
        return (self.task, *self.others)

    @property
    def over_axes(self) -> bool:
        """Whether throughput and TDP do not settle it: a search over points and their own axes does."""
        drawn = self.budgets.drawn_limit_w is not None
        return bool(self.axes) or not self.objective.on_frontier or drawn

    @property
    def lean(self) -> bool:
        """Whether the least memory of any plan is asked for, and nothing else."""
        return self.objective is Objective.MEMORY and not self.axes


def check_weights(request: ExploreRequest) -> tuple[float, ...]:
    """One weight per workload. Raises InputError where names repeat or weights have no meaning."""
    names = [task.workload.name for task in request.tasks]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"workload {name!r} is given {names.count(name)} times; use --weight {name}=2")
    if request.weights and request.combine is Combine.WORST:
        raise InputError("weights have no meaning with --combine worst: the smallest ratio counts")
    weights = request.weights or (1.0,) * len(names)
    if len(weights) != len(names) or not all(0 < w < np.inf for w in weights):
        raise InputError(f"{len(names)} workloads need {len(names)} weights, each greater than zero")
    return weights


_OF_SEVERAL = {"throughput": "score", "throughput_per_tdp": "score_per_tdp"}
"""What stands for a metric of one workload where there are several."""


def objective_of(request: ExploreRequest) -> Metric:
    """The metric of the objective. Raises InputError where its name is not known."""
    name = request.objective.value
    return metric(_OF_SEVERAL.get(name, name) if request.others else name)


def axes_of(request: ExploreRequest) -> list[Metric]:
    """The objective, then the other axes, each once. Raises InputError where a name is not known."""
    names = [_OF_SEVERAL.get(name, name) if request.others else name for name in request.axes]
    return list({axis.name: axis for axis in (objective_of(request), *map(metric, names))}.values())
