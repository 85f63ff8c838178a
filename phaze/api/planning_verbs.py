"""Plan on one architecture: `phaze.plan`, `phaze.whatif`, `phaze.plan_serving`, `phaze.export`; and what they come
back with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze.api.python_arguments import speaks_python
from phaze.api.result_tables import Table, columns_of, dataframe, plan_row
from phaze.api.self_display import Shown

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from phaze.explore.documents.fleet_document import FleetCertificate, FleetDocument, FleetPlan
    from phaze.explore.documents.plan_document import (
        PlanCertificate,
        PlanDocument,
        PlanResult,
        WhatIfDocument,
        WhatIfPoint,
    )
    from phaze.explore.documents.serving_document import ServingDocument, ServingFigures, TrialFigures
    from phaze.inputs.options.plan_options import PlanOptions, PlanPoolsOptions
    from phaze.inputs.options.serving_options import PlanServingOptions
    from phaze.inputs.options.whatif_options import (
        WhatIfBubblesOptions,
        WhatIfColocateOptions,
        WhatIfFailuresOptions,
        WhatIfOptions,
    )
    from phaze.parallel.serving import ServingPlan, ServingSpace
    from phaze.parallel.serving.serving_trial import Trial

_PLANS = ("data_parallel", "tensor_parallel", "pipeline_parallel", "iteration_time_s", "memory_bytes")
_VARIED = ("value", "iteration_time_s", "throughput_samples_per_s", "mfu", "memory_bytes")


@dataclass(frozen=True, repr=False)
class Planned(Shown):
    """The best training plan and the next ones; `document` is what `dse plan --json` prints."""

    document: PlanDocument

    @property
    def best(self) -> PlanResult:
        """The best plan: strategy, time, MFU, energy, memory, where the time goes."""
        return self.document.best

    @property
    def certificate(self) -> PlanCertificate:
        """How many plans there are, and how each was dealt with."""
        return self.document.certificate

    @property
    def plans(self) -> Table[PlanResult]:
        """The best plan, then the next ones."""
        plans = (self.document.best, *self.document.next_best)
        return Table("Plans", plans, columns_of([plan_row(plan) for plan in plans]), _PLANS)

    def to_dataframe(self) -> pd.DataFrame:
        """The plans as a pandas data frame."""
        return self.plans.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.plans.plan_tables import plan_head, plan_proof, plan_table

        yield plan_head(self.document)
        yield plan_table(self.document.best, self.document.request)
        yield plan_proof(self.document)


@dataclass(frozen=True, repr=False)
class PlannedPools(Shown):
    """The best training plan in a fleet of unlike devices; `document` is what `dse plan pools --json` prints."""

    document: FleetDocument

    @property
    def best(self) -> FleetPlan:
        """The best plan: devices by pool, stages, time, money, energy."""
        return self.document.best

    @property
    def certificate(self) -> FleetCertificate:
        """How far any plan of the space could be better."""
        return self.document.certificate

    def to_dataframe(self) -> pd.DataFrame:
        """A row for the best plan and each of the others as a pandas data frame."""
        plans = (self.document.best, *self.document.others)
        nested = {"plan", "pipeline", "pools"}
        return dataframe(
            columns_of([one.pools | one.model_dump(mode="json", exclude=nested) for one in plans])
        )

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.plans.fleet_tables import fleet_blocks

        yield from fleet_blocks(self.document)


@dataclass(frozen=True, repr=False)
class Varied(Shown):
    """The best plans as one thing varies; `document` is what `dse whatif --json` prints."""

    document: WhatIfDocument

    @property
    def points(self) -> Table[WhatIfPoint]:
        """A row for every value; of one that does not fit, `reason` says why."""
        points = tuple(self.document.points)
        rows = [_varied_row(point) for point in points]
        return Table(f"By {self.document.varied}", points, columns_of(rows), _VARIED)

    def to_dataframe(self) -> pd.DataFrame:
        """The rows as a pandas data frame."""
        return self.points.to_dataframe()

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.plans.bubble_tables import bubble_blocks
        from phaze.report.terminal.plans.failure_tables import failure_blocks
        from phaze.report.terminal.plans.whatif_table import whatif_blocks

        blocks = {"domain": failure_blocks, "fill": bubble_blocks}.get(self.document.varied, whatif_blocks)
        return blocks(self.document)


@dataclass(frozen=True, repr=False)
class PlannedServing(Shown):
    """The best way to serve requests; `document` is what `dse plan serving --json` prints."""

    document: ServingDocument
    space: ServingSpace
    found: tuple[ServingPlan, Trial | None]

    @property
    def best(self) -> ServingFigures:
        """Pools, batches, latencies and rates of the best plan."""
        return self.document.best

    @property
    def simulation(self) -> TrialFigures | None:
        """Percentiles over simulated requests, where `simulate` asked for them."""
        return self.document.simulation

    def to_dataframe(self) -> pd.DataFrame:
        """A row for every pool as a pandas data frame."""
        return dataframe(columns_of([pool.model_dump(mode="json") for pool in self.best.pools]))

    def _blocks(self) -> Iterator[RenderableType]:
        from phaze.report.terminal.plans.serving_tables import serving_tables

        yield from serving_tables(self.found[0], self.space, self.found[1], self.document.cost)


def plan(options: PlanOptions) -> Planned:
    """Find the fastest training plan that fits in memory, with a proof, as `dse plan` does; what is fixed stays fixed.

    Raises InputError where arguments are not valid or contradict one another, InfeasibleError where no plan fits.
    """
    from phaze.inputs.plan_inputs import plan_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        document = record_question(plan_answer(options), "plan", options)
        keep(document)
    return Planned(document)


def plan_pools(options: PlanPoolsOptions) -> PlannedPools:
    """Find the best training plan on pools of unlike devices, with a bound, as `dse plan pools` does.

    Raises InputError where arguments or the fleet are not valid, InfeasibleError where the fleet cannot hold the model.
    """
    from phaze.inputs.fleet_inputs import fleet_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        document = record_question(fleet_answer(options), "plan pools", options)
        keep(document)
    return PlannedPools(document)


def whatif(options: WhatIfOptions) -> Varied:
    """Vary one parameter and re-plan for each value, as `dse whatif` does; what is fixed stays fixed.

    Raises InputError where an argument, a name or a value is not valid, InfeasibleError where no value has a plan.
    """
    from phaze.inputs.plan_inputs import whatif_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.report.terminal.plans.whatif_table import check_plot_file, write_plot
    from phaze.runs.run_directory import kept_answer

    if options.plot is not None:
        check_plot_file(options.plot)
    with kept_answer(options.out) as keep:
        document = record_question(whatif_answer(options), "whatif", options)
        keep(document)
    if options.plot is not None:
        write_plot(document, options.plot)
    return Varied(document)


def whatif_bubbles(options: WhatIfBubblesOptions) -> Varied:
    """Tell the bubbles of the best plan, and what fills them, as `dse whatif bubbles` does: a row for each workload.

    Raises InputError where an argument is not valid, InfeasibleError where no plan fits.
    """
    from phaze.inputs.plan_inputs import bubbles_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        document = record_question(bubbles_answer(options), "whatif bubbles", options)
        keep(document)
    return Varied(document)


def whatif_colocate(options: WhatIfColocateOptions) -> Varied:
    """Tell how jobs on one device slow each other down, as `dse whatif colocate` does: a row for each job beside it.

    Raises InputError where an argument is not valid, InfeasibleError where no plan fits.
    """
    from phaze.inputs.plan_inputs import colocate_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        document = record_question(colocate_answer(options), "whatif colocate", options)
        keep(document)
    return Varied(document)


def whatif_failures(options: WhatIfFailuresOptions) -> Varied:
    """Plan for goodput in scale-up domains of several sizes, as `dse whatif failures` does.

    Raises InputError where an argument is not valid; where nothing fits a domain, its row says why.
    """
    from phaze.inputs.plan_inputs import failures_answer
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        document = record_question(failures_answer(options), "whatif failures", options)
        keep(document)
    return Varied(document)


def plan_serving(options: PlanServingOptions) -> PlannedServing:
    """Plan the serving of a model within latency targets, as `dse plan serving` does.

    Without `rate`, the most that the devices can serve; with it, the fewest devices that serve it.

    Raises InputError where an argument is not valid, InfeasibleError where nothing meets the targets.
    """
    from phaze.inputs.recorded.recorded_question import record_question
    from phaze.inputs.serving_inputs import serving_answer
    from phaze.runs.run_directory import kept_answer

    with kept_answer(options.out) as keep:
        space, (best, tried, told) = serving_answer(options)
        document = record_question(told, "plan serving", options)
        keep(document)
    return PlannedServing(document, space, (best, tried))


@speaks_python
def export(plan: Planned | str | Path, target: str = "megatron-lm") -> str:
    """Write a training plan as a launch recipe, as `dse plan export` does.

    `plan`: a result of `phaze.plan`, a folder that kept one, or what `dse plan --json` printed. `target`: megatron-lm,
    torchtitan or maxtext. The plan is what that framework can run of it, the time at the top what it takes there.

    Raises InputError for a plan that the framework cannot run, and for inference.
    """
    from phaze.runs.document_formats import read_plan

    document = plan.document if isinstance(plan, Planned) else read_plan(Path(plan))
    return launch_recipe(document, target, "--target")[0]


def launch_recipe(document: PlanDocument, target: str, option: str) -> tuple[str, tuple[str, ...]]:
    """The recipe of a plan as a framework runs it, and sentences on what is otherwise there or could not be said.

    `option`: how the target was given. Raises InputError.
    """
    from phaze.inputs.named_choices import choose
    from phaze.inputs.runnable_plan import runnable_plan
    from phaze.report.exports.recipe_export import Target, check_launchable, recipe

    software = choose(Target, target, option)
    check_launchable(document)
    found = runnable_plan(document, software.framework, counts_blocks=software.counts_blocks)
    told = recipe(found.document, software)
    return told.text, (*found.remarks, *told.remarks)


def _varied_row(point: WhatIfPoint) -> dict[str, Any]:
    """A value with the figures of its plan, or the reason why it has none."""
    if point.plan is None:
        return {"value": point.value, "reason": point.reason}
    best = point.plan.best
    fill = best.bubbles and best.bubbles.fill
    kept = (best.goodput, best.convergence, best.bubbles, fill, best.colocation)
    told = plan_row(best)
    each = [one.model_dump(exclude={"stages", "fill"}) for one in kept if one]
    return {"value": point.value, **told, **{name: value for one in each for name, value in one.items()}}
