"""A training plan in pictures: where its time goes, its pipeline, its memory, the plans next to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from phaze.explore.documents.plan_document import PlanDocument, PlanResult
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.report import number_format as fmt
from phaze.report.figures.iteration_timeline import pipeline_chart
from phaze.report.figures.operator_figures import operator_charts, roofline_chart
from phaze.report.figures.question_and_answer import repeat, request_table
from phaze.report.figures.report_contents import Contents, Schedules, by_workload
from phaze.report.html_markup import (
    Bar,
    Html,
    Section,
    bar,
    bars,
    figure,
    join,
    legend,
    paragraph,
    table,
    tag,
)
from phaze.report.plan_words import BYTES, TIMES, next_plan_rows, next_plans_head
from phaze.report.terminal.plans.plan_tables import plan_proof

TIME_LOOKS: Mapping[str, str] = {
    **dict.fromkeys(("product_s", "vector_s"), "c1"),
    "recompute_s": "c2",
    **dict.fromkeys(
        ("tensor_s", "context_s", "expert_s", "transfer_s", "gather_s", "reduction_s", "offload_s"), "c4"
    ),
    **dict.fromkeys(("bubble_s", "host_s"), "c7"),
    "optimizer_s": "c5",
}
TIME_GROUPS = {
    "c1": "computation",
    "c2": "recompute",
    "c4": "exposed communication",
    "c7": "waiting",
    "c5": "optimizer step",
}
_BYTE_LOOKS: Mapping[str, str] = dict(zip(BYTES, ("c1", "c2", "c5", "c3", "c4", "c6", "c7"), strict=True))


@dataclass(frozen=True)
class PlanContents:
    """A plan document under a name; `played`: its best plan in time, or the reason why it is not there."""

    name: str
    document: PlanDocument
    played: ReplayedPlan | str


def sections(contents: PlanContents) -> Iterator[Section]:
    """All of them; the pipeline and the memory of every stage only of a plan that could be played again."""
    document, played = contents.document, contents.played
    yield Section("time", "Where the time goes", _time(document.best))
    if isinstance(played, ReplayedPlan):
        yield Section("iteration", "One iteration", one_iteration(document.best.strategy, played))
        schedules = Schedules.of_plan(played)
        yield Section("operators", "Operators of each layer", operator_charts(schedules))
        yield Section("roofline", "Roofline", roofline_chart(schedules, "roofline"))
        yield Section("memory", "Memory of each stage", stage_memories(played))
    else:
        yield Section("memory", "Memory", _memory(document.best))
    if document.next_best:
        yield Section("next-best", "Next best plans", _others(document))
    yield Section("certificate", "What was proven", _proof(document))
    yield Section("assumptions", "Inputs", join(_asked(contents)))
    yield repeat(document.manifest)


def _time(best: PlanResult) -> Html:
    """Exposed parts, which sum to the iteration, and what is hidden behind computation."""
    parts = {name: getattr(best.breakdown, name) for name in TIMES if getattr(best.breakdown, name) > 0}
    total = best.iteration_time_s
    longest = max(parts.values())
    rows: list[list[object]] = [
        [TIMES[n], fmt.duration(s), fmt.percent(s / total), bars([Bar(s / longest, TIME_LOOKS[n])])]
        for n, s in parts.items()
    ]
    rows.append([tag("strong", "iteration"), tag("strong", fmt.duration(total)), "", ""])
    if hidden_s := best.breakdown.hidden_s:
        rows.append(
            ["hidden beside computation", fmt.duration(hidden_s), "", bars([Bar(hidden_s / longest, "c6")])]
        )
    used = {TIME_LOOKS[name] for name in parts}
    whole = bar(Bar(s / total, TIME_LOOKS[n], TIMES[n]) for n, s in parts.items())
    note = "Exposed time on the device with most to do; hidden time runs beside computation and is no part of the sum."
    shown = {look: name for look, name in TIME_GROUPS.items() if look in used}
    return join([legend(shown), whole, figure(table(("", "time", "share", ""), rows, look="wide"), note)])


def one_iteration(plan: StrategyRecord, played: ReplayedPlan) -> Html:
    """The pipeline of a plan in time, with a sentence on it."""
    s, timeline = plan, played.timeline
    busy = float(timeline.busy_s.sum()) / (len(timeline.orders) * timeline.makespan_s)
    words = (
        f"Each pipeline of {s.pipeline_parallel:,} stages runs {s.microbatches:,} microbatches of "
        f"{s.microbatch_size:,}, schedule {s.schedule}"
        + (f" with {s.chunks} parts of the model on each device" if s.chunks > 1 else "")
        + f". Passes take {fmt.duration(timeline.makespan_s)} of the iteration and fill {fmt.percent(busy)} of it; "
        "reduction, gathers and the optimizer step follow."
    )
    return join([paragraph(words), pipeline_chart(played)])


def stage_memories(played: ReplayedPlan) -> Html:
    """Memory of a device of every stage by use, with its share of the capacity."""
    capacity = played.capacity_bytes
    rows = [
        [
            f"stage {k}",
            fmt.memory(one.total_bytes),
            fmt.percent(one.total_bytes / capacity),
            bars([Bar(getattr(one, n) / capacity, look, BYTES[n]) for n, look in _BYTE_LOOKS.items()]),
        ]
        for k, one in enumerate(played.iteration.memory, 1)
    ]
    used = [n for n in BYTES if any(getattr(one, n) > 0 for one in played.iteration.memory)]
    picture = join(
        [
            legend({_BYTE_LOOKS[n]: BYTES[n] for n in used}),
            table(("", "peak", "of all", ""), rows, look="wide"),
        ]
    )
    heads = ("", *(BYTES[n] for n in used))
    each = enumerate(played.iteration.memory, 1)
    behind = table(heads, [[f"stage {k}", *(fmt.memory(getattr(one, n)) for n in used)] for k, one in each])
    return figure(picture, f"Full width is the capacity of a device, {fmt.memory(capacity)}.", behind)


def _memory(best: PlanResult) -> Html:
    """Of the fullest device alone."""
    parts = {name: getattr(best.memory, name) for name in BYTES if getattr(best.memory, name) > 0}
    rows = [
        [
            BYTES[n],
            fmt.memory(size),
            fmt.percent(size / best.memory_bytes),
            bars([Bar(size / max(parts.values()), _BYTE_LOOKS[n])]),
        ]
        for n, size in parts.items()
    ]
    rows.append([tag("strong", "total"), tag("strong", fmt.memory(best.memory_bytes)), "", ""])
    return figure(table(("", "size", "share", ""), rows, look="wide"), "On the device that needs most.")


def _others(document: PlanDocument) -> Html:
    return table(next_plans_head(document), next_plan_rows(document), look="wide")


def _proof(document: PlanDocument) -> Html:
    scope = tag("ul", *(tag("li", part) for part in document.certificate.scope))
    return join(
        [paragraph(plan_proof(document)), paragraph("It is a proof within the model. It holds for:"), scope]
    )


def _asked(contents: PlanContents) -> Iterator[Html]:
    yield request_table(contents.document.request)
    if isinstance(contents.played, str):
        yield paragraph("The pipeline and the memory of each stage are left out: ", contents.played)


def memory(contents: Contents) -> Iterator[Section]:
    """The peaks of the plans that could be played again."""
    if contents.plans:
        body = by_workload((name, stage_memories(played)) for name, played in contents.plans.items())
        yield Section("memory", "Memory of each stage", body)


def pipeline(contents: Contents) -> Iterator[Section]:
    """The iterations that could be played again."""
    results = contents.document.best.workloads
    told = {name: results[name].placement.plan for name in contents.plans}
    drawn = [(name, one_iteration(record, contents.plans[name])) for name, record in told.items() if record]
    if drawn:
        body = by_workload(drawn)
        yield Section("iteration", "One iteration", body)
