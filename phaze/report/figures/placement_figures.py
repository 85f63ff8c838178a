"""How a workload is spread over devices: stages, the layers in each, the replicas; and where its time goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from phaze.explore.documents.result_document import Placement, Stage, WorkloadResult
from phaze.report import number_format as fmt
from phaze.report.figures.report_contents import Contents, by_workload
from phaze.report.figures.winner_floorplan import TIME
from phaze.report.html_markup import (
    Bar,
    Html,
    Section,
    bar,
    bars,
    figure,
    join,
    legend,
    pair,
    paragraph,
    table,
    tag,
)
from phaze.report.plan_words import summary

_MOST_DOTS = 32  # replicas that are drawn one by one
_MOST_LAYERS = 48  # layers of a stage that are drawn one by one
_LOOKS = ("c1", "c2", "c3", "c4", "c5")


def placement(contents: Contents) -> Iterator[Section]:
    """A picture per workload, then the parts of its iteration."""
    results = contents.document.best.workloads
    yield Section(
        "placement", "Placement", by_workload((name, _picture(result)) for name, result in results.items())
    )
    yield Section(
        "time", "Where the time goes", by_workload((name, _time(result)) for name, result in results.items())
    )


def _picture(result: WorkloadResult) -> Html:
    plan = result.placement
    looks = layer_looks(plan.stages)
    words = (
        f"{plan.data_parallel:,} replicas (data parallel) of a pipeline of {plan.pipeline_parallel:,} stages, each on "
        f"{plan.tensor_parallel:,} tensor-parallel devices: {result.devices_used:,} of {result.devices:,} devices. "
        f"Microbatch {plan.microbatch_size:,}, global batch {result.global_batch:,}, recompute {plan.recompute}"
        f"{f', linear layers in {plan.recipe}' if plan.recipe else ''}."
        f"{f' The plan: {summary(plan.plan)}.' if plan.plan else ''}"
    )
    caption = (
        "One row per stage, equal neighbours together. One cell per layer, coloured by kind; one square per replica, "
        f"each {plan.tensor_parallel:,} devices wide."
    )
    picture = join([legend({look: kind for kind, look in looks.items()}), _stages(plan, looks)])
    return join([paragraph(words), figure(picture, caption)])


def layer_looks(stages: Sequence[Stage]) -> dict[str, str]:
    """A colour class for each kind of layer, the most frequent first; kinds beyond the palette share the last."""
    kinds = [_kind(name) for stage in stages for name in stage.layers]
    ordered = sorted(dict.fromkeys(kinds), key=lambda kind: (-kinds.count(kind), kinds.index(kind)))
    named = dict(zip(ordered, _LOOKS, strict=False))
    return {**named, "other": "c6"} if len(ordered) > len(_LOOKS) else named


def _kind(name: str) -> str:
    """A layer's name without its number: `block12.mlp` is a `block.mlp`."""
    return ".".join(part.rstrip("0123456789") or part for part in name.split("."))


def _stages(plan: Placement, looks: Mapping[str, str]) -> Html:
    slowest = max(stage.load_s for stage in plan.stages)
    rows = [
        [
            f"{first}" if first == last else f"{first} to {last}",
            tag("td", _layers(stage, looks), look="left"),
            tag("td", span, look="left"),
            tag("td", _dots(plan.data_parallel), look="left"),
            fmt.duration(stage.load_s),
            bars([Bar(stage.load_s / slowest, "c1")]),
        ]
        for first, last, stage, span in _alike(plan.stages)
    ]
    heads = ("stage", "<layers", "", "<replicas", "per microbatch", "")
    return table(heads, rows, look="wide")


def _layers(stage: Stage, looks: Mapping[str, str]) -> Html:
    if len(stage.layers) > _MOST_LAYERS:
        return Html(f"{len(stage.layers):,} layers")
    cells = (tag("i", look=looks.get(_kind(name), "c6"), title=name) for name in stage.layers)
    return tag("div", *cells, look="layers", role="img", aria_label=f"{len(stage.layers)} layers")


def _span(alike: Sequence[Stage]) -> str:
    """First and last layer of neighbouring stages, and how many each has."""
    first, last = alike[0].layers[0], alike[-1].layers[-1]
    span = first if first == last else f"{first} … {last}"
    return f"{span}, {len(alike[0].layers)} each" if len(alike) > 1 else span


def _dots(replicas: int) -> Html:
    cells = [tag("i", look="c6") for _ in range(min(replicas, _MOST_DOTS))]
    more = replicas - len(cells)
    rest = [tag("small", f"+{more:,}")] if more else []
    return tag("div", *cells, *rest, look="dots", role="img", aria_label=f"{replicas} replicas")


def _alike(stages: Sequence[Stage]) -> Iterator[tuple[int, int, Stage, str]]:
    """Neighbouring stages with layers of the same kinds: (first, last, the slowest, all their layers), from 1."""
    first = 1
    for _, run in groupby(stages, key=lambda stage: [_kind(name) for name in stage.layers]):
        same = list(run)
        yield first, first + len(same) - 1, max(same, key=lambda stage: stage.load_s), _span(same)
        first += len(same)


def _time(result: WorkloadResult) -> Html:
    parts = result.breakdown.spent
    total = result.iteration_time_s
    whole = bar(Bar(s / total, TIME[n].look, TIME[n].name) for n, s in parts.items())
    rows: list[list[object]] = [
        [TIME[name].name, fmt.duration(seconds), fmt.percent(seconds / total)]
        for name, seconds in parts.items()
    ]
    rows.append([tag("strong", "iteration"), tag("strong", fmt.duration(total)), ""])
    note = "Counted on the slowest stage, which sets the pace."
    picture = join([legend({TIME[name].look: TIME[name].name for name in parts}), whole])
    return pair(figure(picture, note), table(["", "time", "share"], rows))
