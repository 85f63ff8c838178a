"""From what the search did to what is reported of it."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.explore.documents.plan_record import StrategyRecord
from phaze.explore.documents.strategy_report import (
    AxisReport,
    CoreStep,
    DimensionStep,
    Level,
    MixedStageReport,
    PerStage,
    SettingSearch,
    StageDesignReport,
    StageSearch,
)
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.strategies.wham.mixed_designs import MixedPlan
from phaze.explore.strategies.wham.stage_search import LocalResult, LocalSearch, Node, Visit
from phaze.explore.strategies.wham.wham_axes import SearchAxes
from phaze.explore.strategies.wham.wham_target import Promise
from phaze.workload.work import LayerChain


def tell_axes(axes: SearchAxes) -> list[AxisReport]:
    """Every axis of the space and its treatment."""
    treatment = dict.fromkeys(axes.halved, "halved") | dict.fromkeys(axes.enumerated, "enumerated")
    treatment |= dict.fromkeys(axes.followed, "follows the arrays")
    treatment |= dict.fromkeys(axes.clocked, "follows the budgets")
    return [
        AxisReport(fields=list(axis.fields), options=len(axis.options), treatment=treatment.get(k, "cores"))
        for k, axis in enumerate(axes.space.axes)
    ]


def tell_setting(promise: Promise, plan: StrategyRecord, stages: Sequence[StageSearch]) -> SettingSearch:
    """One config, with its reference plan."""
    return SettingSearch(
        microbatch_size=promise.config.microbatch,
        tensor_parallel=promise.config.tensor_parallel,
        recompute=plan.recompute,
        recipe=promise.config.recipe,
        promise=promise.value,
        data_parallel=plan.data_parallel,
        pipeline_parallel=plan.pipeline_parallel,
        plan=plan,
        stages=list(stages),
    )


def tell_stage(search: LocalSearch, found: LocalResult, chain: LayerChain) -> StageSearch:
    """The local search of one kind of stage; without designs its path and cores are empty."""
    kind, names = found.kind, [layer.kind for layer in chain.layers]
    layers: dict[str, int] = {}
    for name, count in zip(names, kind.backward, strict=True):
        if count:
            layers[name] = layers.get(name, 0) + count
    best = found.designs[0].node if found.designs else None
    return StageSearch(
        layers=layers,
        positions=list(kind.positions),
        repeats=list(kind.repeats),
        levels=_levels(found.visits),
        path=[] if best is None else _path(search, found.visits, best),
        cores=[] if best is None else _cores(search, found, best),
        ended="no design keeps the budgets" if best is None else found.growths[best].end.value,
        designs=_designs(search, found),
    )


def _levels(visits: Sequence[Visit]) -> list[Level]:
    deepest = max((sum(visit.node[1:]) for visit in visits), default=-1)
    found = []
    for halvings in range(deepest + 1):
        here = [visit for visit in visits if sum(visit.node[1:]) == halvings]
        worths = [visit.value for visit in here if visit.value is not None]
        found.append(
            Level(
                halvings=halvings,
                tried=len(here),
                with_design=len(worths),
                pruned=sum(visit.pruned for visit in here),
                best_metric=max(worths)[-1] if worths else None,
            )
        )
    return found


def _path(search: LocalSearch, visits: Sequence[Visit], best: Node) -> list[DimensionStep]:
    at = {visit.node: visit for visit in visits}
    node: Node | None = best
    steps: list[DimensionStep] = []
    while node is not None:
        visit = at[node]
        value = None if visit.value is None else visit.value[-1]
        fields = search.fields(node)
        steps.append(DimensionStep(fields=fields, metric=value, fruitless_levels=visit.misses))
        node = visit.parent
    return steps[::-1]


def _cores(search: LocalSearch, found: LocalResult, best: Node) -> list[CoreStep]:
    tensor, vector = search.grid(best).cores
    return [
        CoreStep(
            added=step.added,
            tensor_cores=int(tensor[step.counts]),
            vector_cores=int(vector[step.counts]),
            stage_s=step.time.seconds,
            critical_path_s=step.time.critical_s,
            lost_to_tensor_cores_s=step.time.lost_s["TC"],
            lost_to_vector_cores_s=step.time.lost_s["VC"],
            metric=step.worth[-1],
        )
        for step in found.growths[best].steps
    ]


def _designs(search: LocalSearch, found: LocalResult) -> list[StageDesignReport]:
    return [
        StageDesignReport(
            id=search.axes.candidates.architecture(design.number).name,
            number=design.number,
            metric=design.worth[-1],
            stage_s=design.seconds,
            critical_path_s=design.critical_s,
            tdp_w=design.tdp_w,
            area_mm2=design.area_mm2,
        )
        for design in found.designs
    ]


def tell_mixed(mixed: MixedPlan, one: float, candidates: Candidates, batch: int) -> PerStage:
    """The best mixed pipeline for a global batch, beside the `one` best design's value."""
    plan, seconds = mixed.planned.record, mixed.planned.iteration.iteration_s
    names = {n: candidates.architecture(n).name for n in set(mixed.numbers)}
    stages = mixed.planned.placement(mixed.config.recipe).stages
    return PerStage(
        value=batch / mixed.value,
        gain=batch / mixed.value / one - 1.0,
        throughput_samples_per_s=batch / seconds,
        iteration_time_s=seconds,
        mean_tdp_w=mixed.mean_tdp_w,
        distinct_designs=len(names),
        designs_offered=mixed.designs,
        microbatch_size=plan.microbatch_size,
        tensor_parallel=plan.tensor_parallel,
        recompute=plan.recompute,
        recipe=mixed.config.recipe,
        data_parallel=plan.data_parallel,
        plan=plan,
        stages=[
            MixedStageReport(
                layers=stage.layers,
                id=names[number],
                load_s=stage.load_s,
                memory_bytes=stage.memory_bytes,
                tdp_w=tdp_w,
            )
            for stage, number, tdp_w in zip(stages, mixed.numbers, mixed.tdp_w, strict=True)
        ],
        options=mixed.options,
        options_solved=mixed.options_solved,
    )
