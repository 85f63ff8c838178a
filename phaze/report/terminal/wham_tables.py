"""WHAM's search step by step, as tables of at most 80 columns and some thirty lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.strategy_report import (
    DimensionStep,
    PerStage,
    SettingSearch,
    StageSearch,
    WhamReport,
    WorkloadSearch,
)
from phaze.report import number_format as fmt
from phaze.report.plan_words import summary
from phaze.report.terminal.design_tables import plain_table
from phaze.workload.operators.low_precision import recipe_word


def wham_blocks(report: WhamReport, objective: Callable[[float], str]) -> Iterator[RenderableType]:
    """The settings, the stages of the first one in full, and the pipeline with a design per stage if there is one."""
    for workload in report.workloads:
        yield settings_table(workload, report)
        if workload.searched:
            yield stages_table(workload.searched[0])
    if report.per_stage is not None:
        yield pipeline_table(report.per_stage, objective)


def settings_table(workload: WorkloadSearch, report: WhamReport) -> Table:
    """The settings searched, with the best design that each one's stages asked for."""
    table = plain_table(
        f"WHAM on {escape(workload.workload)}: {len(workload.searched)} of {workload.settings} settings, "
        f"top {report.top_k} designs, hysteresis {report.hysteresis}",
        "microbatch, width, recompute, recipe" if _recipes(workload) else "microbatch, width, recompute",
        "promise",
        "data x stages",
        "kinds",
        "tried",
        "pruned",
    )
    for setting in workload.searched:
        tried, pruned = _tried(setting.stages)
        table.add_row(
            f"{setting.microbatch_size}, {setting.tensor_parallel}, {setting.recompute}"
            + (f", {recipe_word(setting.recipe)}" if _recipes(workload) else ""),
            fmt.number(setting.promise, 4),
            f"{setting.data_parallel} x {setting.pipeline_parallel}",
            f"{len(setting.stages)}",
            f"{tried:,}",
            f"{pruned:,}",
        )
    return table


def _recipes(workload: WorkloadSearch) -> bool:
    """Whether some setting has linear layers in few bits."""
    return any(setting.recipe for setting in workload.searched)


def stages_table(setting: SettingSearch) -> Table:
    """Course of the local search in every kind of stage of a setting."""
    table = plain_table(
        f"Stages of microbatch {setting.microbatch_size}, width {setting.tensor_parallel}, "
        f"recompute {setting.recompute}",
        "",
        "",
    )
    table.show_header = False
    table.columns[1].justify = "left"
    for stage in setting.stages:
        for name, text in _steps(stage):
            table.add_row(name, escape(text))
    return table


def _steps(stage: StageSearch) -> Iterator[tuple[str, str]]:
    """The search of one kind of stage, in its order."""
    yield f"stage {_ranges(stage.positions)}", ", ".join(f"{n} {name}" for name, n in stage.layers.items())
    tried, pruned = _tried([stage])
    yield "  levels", f"{len(stage.levels)} of halvings: {tried:,} dimensions tried, {pruned:,} pruned"
    if not stage.designs:
        yield "  designs", "none keeps the budgets"
        return
    yield "  dimensions", _path(stage.path)
    yield "  cores", " ".join(f"{s.added} {s.tensor_cores}x{s.vector_cores}".strip() for s in stage.cores)
    first, last = stage.cores[0], stage.cores[-1]
    times = f"{fmt.duration(first.stage_s)} to {fmt.duration(last.stage_s)}"
    critical = fmt.duration(last.critical_path_s)
    yield "  ended", f"{times}, critical path {critical}: {_ENDED.get(stage.ended, stage.ended)}"
    others = len(stage.designs) - 1
    yield "  best", stage.designs[0].id + (f" and {others} more" if others else "")


_ENDED = {
    "critical path": "the schedule is the critical path",
    "budget": "the budgets have no room for what is missed",
    "space": "the space has no more of what is missed",
    "no gain": "nothing is gained",
}


def _tried(stages: Iterable[StageSearch]) -> tuple[int, int]:
    """Dimensions tried in all, and those below which nothing was looked at."""
    levels = [level for stage in stages for level in stage.levels]
    return sum(level.tried for level in levels), sum(level.pruned for level in levels)


def _path(path: list[DimensionStep]) -> str:
    """Halvings on the way from the largest dimensions, equal steps together."""
    halved = [
        name
        for before, after in pairwise(path)
        for name, value in after.fields.items()
        if before.fields[name] != value
    ]
    if not halved:
        return "the largest are the best"
    parts = []
    for name, same in groupby(halved):
        times = len(list(same))
        parts.append(f"{fmt.label(name)} halved" + (f" {times} times" if times > 1 else ""))
    return f"{', then '.join(parts)}: {_ends(path, dict.fromkeys(halved))}"


def _ends(path: list[DimensionStep], names: Iterable[str]) -> str:
    """The values that the halved fields end with."""
    found = ((name, path[-1].fields[name]) for name in names)
    return ", ".join(fmt.field(name, int(value)) if value.isdecimal() else value for name, value in found)


def _ranges(positions: list[int]) -> str:
    """Stages counted from 1, runs of them together: `1, 3-7`."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return ", ".join(f"{r[0] + 1}" if len(r) == 1 else f"{r[0] + 1}-{r[-1] + 1}" for r in runs)


def _choices(mixed: PerStage) -> str:
    if mixed.plan is not None:
        return summary(mixed.plan)
    return (
        f"data {mixed.data_parallel} x tensor {mixed.tensor_parallel} x pipeline {len(mixed.stages)}, microbatch "
        f"{mixed.microbatch_size}, recompute {mixed.recompute}"
    )


def pipeline_table(mixed: PerStage, objective: Callable[[float], str]) -> Table:
    """The best pipeline with a design for every stage; neighbours alike are one row."""
    table = plain_table(
        f"A design per stage: {mixed.distinct_designs} different, {objective(mixed.value)}, "
        f"{100 * mixed.gain:+.2f} %",
        "stages",
        "design",
        "W",
        "time/microbatch",
        "memory",
    )
    table.columns[1].justify = "left"
    first = 1
    for (design, tdp_w), same in groupby(mixed.stages, key=lambda stage: (stage.id, stage.tdp_w)):
        stages = list(same)
        last = first + len(stages) - 1
        table.add_row(
            f"{first}" if first == last else f"{first}-{last}",
            escape(design),
            fmt.number(tdp_w),
            fmt.duration(max(stage.load_s for stage in stages)),
            fmt.memory(max(stage.memory_bytes for stage in stages)),
        )
        first = last + 1
    table.caption = (
        f"{_choices(mixed)}; mean {fmt.number(mixed.mean_tdp_w)} W; {mixed.designs_offered} designs offered. The "
        "certificate speaks of one design for all stages."
    )
    table.caption_justify = "left"
    return table
