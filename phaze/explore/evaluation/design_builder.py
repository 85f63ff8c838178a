"""From an architecture and its best plan to what is reported of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np

from phaze.arrays import Flags, Rows
from phaze.cost.fidelity import Fidelity, check_fidelity
from phaze.cost.simt_chips import runs_kernels
from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.explore.documents.result_document import Design, WorkloadResult
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s, flops_utilisation, takes_recipe
from phaze.explore.evaluation.memory_shortfall import LeastNeeds, why_unfit_anywhere
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimator_of, worked_out
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.hardware.silicon.die_area import area_mm2, area_parts_mm2
from phaze.hardware.silicon.package_power import power_parts_w, tdp_w
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_search.plan_answer import EvaluatedPlan, PlanAnswer
from phaze.parallel.recount.plan_checker import PlanError
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.scheduling.passes import SolveLimits
from phaze.workload.operators.low_precision import Recipe

_ONE = np.array([0])


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """Of one architecture's plans: how many there are, how many were evaluated, and what none of them beats."""

    total: int
    evaluated: int
    lower_s: float


@dataclass(frozen=True)
class BatchEstimators:
    """Plans of a task on some architectures, whose layers are worked out for all of them at once.

    Those that run kernels apart from those whose layers are scheduled, which takes longer and is done for few plans. On
    the calibrated rung each is alone, as the constants of its links are those of its own family. `left_s`: as of
    `DesignBuilder`.
    """

    task: Task
    architectures: tuple[Architecture, ...]
    left_s: Callable[[], float]
    _kept: dict[tuple[Recipe | None, bool], list[Estimator]] = field(default_factory=dict)
    _laid_out: dict[Recipe | None, PlanLayouts] = field(default_factory=dict)

    def estimator(self, architecture: Architecture, recipe: Recipe | None) -> Estimator:
        """Plans on one of them, linear layers in a recipe; the same to the last bit whatever is beside it."""
        if self.task.rung is Fidelity.CALIBRATED:
            return self._costs(to_table([architecture]), recipe)
        place = self.architectures.index(architecture)
        kind = bool(self._kernels[place])
        if (recipe, kind) not in self._kept:
            alike, known = to_table(self.architectures).take(self._alike(kind)), self._laid_out.get(recipe)
            costs = self._costs(alike, recipe, known)
            self._laid_out[recipe] = costs.layouts
            self._kept[recipe, kind] = costs.each()
        return self._kept[recipe, kind][int(np.searchsorted(self._alike(kind), place))]

    def _costs(
        self, table: ArchitectureTable, recipe: Recipe | None, known: PlanLayouts | None = None
    ) -> Estimator:
        return estimator_of(self.task, table, recipe, known, self.left_s)

    def _alike(self, kind: bool) -> Rows:
        return np.flatnonzero(self._kernels == kind)

    @cached_property
    def _kernels(self) -> Flags:
        """Which run kernels."""
        return runs_kernels(to_table(self.architectures), self.task.rung)


@dataclass(frozen=True)
class DesignBuilder:
    """Works out everything that is reported of one architecture.

    `left_s`: seconds that searches for its plans may take; then they raise OutOfTimeError.
    """

    task: Task
    tdp_margin: float = 1.0
    left_s: Callable[[], float] = lambda: inf

    def best(self, architecture: Architecture) -> Design:
        """The architecture under its best placement.

        Raises InfeasibleError where the model does not fit, OutOfTimeError once time is over.
        """
        return self.best_of(architecture)[0]

    def best_of(
        self, architecture: Architecture, beside: BatchEstimators | None = None
    ) -> tuple[Design, PlanCounts]:
        """The same, with an account of the plans that were looked at; `beside`: layers that others share."""
        task, table = self.task, to_table([architecture])
        self._check(architecture)
        beside = beside or BatchEstimators(task, (architecture,), self.left_s)
        capacity = float(task.usable_bytes(hbm_capacity_bytes(table))[0])
        found: list[tuple[EvaluatedPlan, Estimator, Recipe | None]] = []
        answers: dict[Recipe | None, PlanAnswer] = {}
        total = evaluated = 0
        for recipe in (one for one in task.recipes if takes_recipe(table, one)[0]):
            costs = beside.estimator(architecture, recipe)
            answer = best_plans(costs, task.plan_space, capacity)
            answers[recipe] = answer
            total, evaluated = total + answer.account.total, evaluated + answer.account.evaluated
            found += [(one, costs, recipe) for one in answer.best]
        if not found:
            needs = LeastNeeds.of(answers[None]) if None in answers else None
            raise why_unfit_anywhere(task, table, f"{_devices(task.devices)} of {architecture.name}", needs)
        best, costs, recipe = min(found, key=lambda one: one[0].iteration.iteration_s)
        planned = PlannedIteration(costs, best.plan, best.iteration)
        planned.check()
        result = self._result(
            planned.figures(recipe),
            best.iteration.model_flops,
            float(counted_flops_per_s(table, recipe or task.workload.recipe)[0]),
        )
        points = PlanCounts(total, evaluated, best.iteration.iteration_s)
        return self._design(architecture, table, result), points

    def each(self, architectures: Sequence[Architecture]) -> Iterator[tuple[int, Design | Exception]]:
        """Places of some architectures, each under its best placement or why there is none, one after the other.

        Their layers are worked out together.
        """
        beside = BatchEstimators(self.task, tuple(architectures), self.left_s)
        for place, one in enumerate(architectures):
            yield place, _or_why_not(partial(self._best_beside, one, beside))

    def _best_beside(self, architecture: Architecture, beside: BatchEstimators) -> Design:
        return self.best_of(architecture, beside)[0]

    def _check(self, architecture: Architecture) -> None:
        """Raise InputError where the rung of the task is not for an architecture."""
        check_fidelity(self.task.rung, architecture)

    def placed(
        self,
        architecture: Architecture,
        evaluator: Evaluator,
        row: int,
        config: TrainingConfig,
        known_s: float,
        effort: SolveLimits,
    ) -> Design:
        """The report of the architecture at `row` of the evaluator's table under its best plan in one config.

        `known_s`: an iteration time known to be reached in it. Raises InfeasibleError where nothing fits.
        """
        (plan,) = evaluator.plans(config, np.array([row]), np.array([known_s]), effort)
        told = None if plan is None else next(worked_out(evaluator, config, {row: plan}))
        return self.told(architecture, evaluator, row, config, told)

    def told(
        self,
        architecture: Architecture,
        evaluator: Evaluator,
        row: int,
        config: TrainingConfig,
        planned: PlannedIteration | None,
    ) -> Design:
        """The report of the architecture at `row` of the evaluator's table under a plan that is worked out.

        Raises InfeasibleError where there is none.
        """
        if planned is None:
            raise out_of_memory(evaluator, architecture.name)
        planned.check()
        figures = planned.figures(config.recipe)
        peak = float(evaluator.peak_flops_per_s(config)[row])
        table = evaluator.table.take(np.array([row]))
        return self._design(architecture, table, self._result(figures, evaluator.model_flops, peak))

    def _design(self, architecture: Architecture, table: ArchitectureTable, result: WorkloadResult) -> Design:
        area, power = area_mm2(table), tdp_w(table, self.tdp_margin)
        cost = SampleCosts.of(self.task, table, area, power).told(result)
        result = result.model_copy(update={"cost": cost})
        return Design(
            id=architecture.name,
            architecture=dict(architecture.fields),
            area_mm2=float(area[0]),
            tdp_w=float(power[0]),
            area_parts_mm2={name: float(part[0]) for name, part in area_parts_mm2(table).items()},
            power_parts_w={name: float(part[0]) for name, part in power_parts_w(table).items()},
            workloads={self.task.workload.name: result},
        )

    def _result(
        self, figures: Mapping[str, Any], model_flops: float, peak_flops_per_s: float
    ) -> WorkloadResult:
        """From the reported figures of a plan, its model FLOPs, and the peak of one device that MFU counts against."""
        cluster, tokens = self.task.cluster, self.task.workload.sequence_length
        iteration_s = figures["iteration_time_s"]
        return WorkloadResult(
            rung=self.task.rung,
            throughput_samples_per_s=cluster.global_batch / iteration_s,
            throughput_tokens_per_s=cluster.global_batch * tokens / iteration_s if tokens else None,
            mfu=flops_utilisation(model_flops, iteration_s, cluster.devices, peak_flops_per_s),
            devices=cluster.devices,
            global_batch=cluster.global_batch,
            **figures,
        )


def _or_why_not(design: Callable[[], Design]) -> Design | Exception:
    """A design, or why there is none."""
    try:
        return design()
    except (InfeasibleError, InputError, OutOfTimeError, PlanError) as error:
        return error


def out_of_memory(evaluator: Evaluator, name: str) -> InfeasibleError:
    """Why no placement fits: the smallest memory per accelerator that would do, and what would help."""
    task = evaluator.task
    return why_unfit_anywhere(task, evaluator.table, f"{_devices(task.devices)} of {name}", _needs(evaluator))


def _needs(evaluator: Evaluator) -> LeastNeeds | None:
    """What plans need where all of them need more than there is; None where a search has to tell."""
    space, plain = evaluator.task.plan_space, [c for c in evaluator.configs if c.recipe is None]
    if space.branches or any(space.offloads) or not plain:
        return None
    least = min(map(evaluator.least_bytes, plain))
    if not float(evaluator.capacity_bytes.max()) < least < inf:
        return None
    return LeastNeeds(sum(map(evaluator.plans_of, plain)), least)


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count:,} devices"
