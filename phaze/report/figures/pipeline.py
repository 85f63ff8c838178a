"""One iteration in time: every pass of every microbatch through every stage."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report import format as fmt
from phaze.report.figures.contents import Contents, by_workload
from phaze.report.figures.plan import one_iteration
from phaze.report.figures.rows import Span, time_rows
from phaze.report.figures.windows import Window, windows
from phaze.report.page.markup import Html, Section, figure, join, legend, paragraph, tag
from phaze.report.replay.pipeline import PassRun, pass_runs
from phaze.report.replay.replay import Replay
from phaze.report.replay.stage import Side

LOOKS = {Side.FORWARD: "c2", Side.BACKWARD: "c1"}


def pipeline(contents: Contents) -> Iterator[Section]:
    """The iterations that could be played again."""
    if contents.replays:
        body = by_workload((name, chart(plan)) for name, plan in contents.replays.items())
        yield Section("iteration", "One iteration", body)
    if contents.plans:
        results = contents.document.best.workloads
        told = {name: results[name].placement.plan for name in contents.plans}
        body = by_workload(
            (name, one_iteration(record, contents.plans[name])) for name, record in told.items() if record
        )
        yield Section("iteration", "One iteration", body)


def chart(plan: Replay) -> Html:
    """The legend, a picture per window, and the loads as a table."""
    runs = pass_runs(plan)
    entries = {"c2": "forward", "c1": "backward"} if plan.training else {"c2": "forward"}
    if plan.reduction_s:
        entries["c4"] = "gradient reduction"
    if plan.optimizer_s:
        entries["c5"] = "optimizer step"
    parts = [paragraph(_words(plan, runs)), legend(entries)]
    spans = list(all_spans(plan, runs))
    parts += [_window(plan, spans, window) for window in windows(plan)]
    if plan.slots > 1:
        parts.append(tag("p", _note(plan, runs), look="soft"))
    return join(parts)


def all_spans(plan: Replay, runs: list[PassRun]) -> Iterator[Span]:
    """Passes, then reduction and step of every stage, as spans of one row each."""
    for run in runs:
        what = f"stage {run.stage + 1}, microbatch {run.microbatch + 1}, {run.side}"
        tip = f"{what}: {fmt.duration(run.end_s - run.start_s)} from {fmt.duration(run.start_s)}"
        yield Span(run.stage, run.stage, run.start_s, run.end_s, LOOKS[run.side], tip)
    for at, stage in enumerate(plan.stages):
        now = plan.turns_s
        for seconds, look, what in (
            (stage.reduction_s, "c4", "gradient reduction"),
            (stage.optimizer_s, "c5", "optimizer step"),
        ):
            if seconds:
                tip = f"stage {at + 1}, {what}: {fmt.duration(seconds)}"
                yield Span(at, at, now, now + seconds, look, tip)
                now += seconds


def _window(plan: Replay, spans: list[Span], window: Window) -> Html:
    count = len(plan.stages)
    row_px = min(22.0, max(5.0, 360 / count))
    step = 1 if row_px >= 11 else round(12 / row_px)
    labels = [f"stage {k + 1}" if k % step == 0 else "" for k in range(count)]
    inside = [s for s in spans if s.end_s >= window.start_s and s.start_s <= window.end_s]
    described = f"Pipeline of {count} stages, {window.name}: {len(inside)} passes"
    picture = time_rows(labels, inside, (window.start_s, window.end_s), row_px, described)
    span = f"{fmt.duration(window.start_s)} to {fmt.duration(window.end_s)}"
    return figure(picture, f"{window.name[0].upper()}{window.name[1:]}: {span}.")


def _words(plan: Replay, runs: list[PassRun]) -> str:
    count, m = len(plan.stages), plan.microbatches
    if count == 1 and m == 1:
        return f"One microbatch on one stage takes the whole iteration of {fmt.duration(plan.iteration_s)}."
    kind = "one forward and one backward pass in turn (1F1B)" if plan.training else "forward only"
    busy = sum(run.end_s - run.start_s for run in runs) / (count * plan.iteration_s)
    return (
        f"Each of {plan.degrees.data_parallel:,} replicas sends {m:,} microbatches through {count} "
        f"{'stage' if count == 1 else 'stages'}, {kind}. Passes fill {fmt.percent(busy)} of the time of its devices; "
        "where the rows are empty a stage waits for another."
    )


def _note(plan: Replay, runs: list[PassRun]) -> str:
    reserve = plan.turns_s - max(run.end_s for run in runs)
    text = (
        f"The model counts {plan.slots:,} turns of the slowest stage ({fmt.duration(plan.turns_s)}), then reduction "
        f"and step: {fmt.duration(plan.iteration_s)} in all."
    )
    if reserve > 1e-6 * plan.turns_s:
        text += f" Played pass by pass, as drawn, the last ends {fmt.duration(reserve)} before that."
    return text
