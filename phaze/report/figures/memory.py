"""What fills the memory of a device in every stage, against what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phaze.report import format as fmt
from phaze.report.figures.contents import Contents, by_workload
from phaze.report.figures.plan import stage_memories as stage_memories_of
from phaze.report.page.markup import Bar, Html, Section, bars, figure, join, legend, table
from phaze.report.replay.memory import StageMemory, stage_memories
from phaze.report.replay.replay import Replay

_LOOKS: Mapping[str, tuple[str, str]] = {
    "weights_bytes": ("weights", "c1"),
    "gradients_bytes": ("gradients", "c2"),
    "optimizer_bytes": ("optimizer state", "c5"),
    "activations_bytes": ("activations", "c3"),
    "cache_bytes": ("key-value cache", "c6"),
    "working_bytes": ("working", "c4"),
}


def memory(contents: Contents) -> Iterator[Section]:
    """The peaks of the placements that could be played again."""
    if contents.replays:
        body = by_workload((name, _chart(plan)) for name, plan in contents.replays.items())
        yield Section("memory", "Memory of each stage", body)
    if contents.plans:
        body = by_workload((name, stage_memories_of(played)) for name, played in contents.plans.items())
        yield Section("memory", "Memory of each stage", body)


def _chart(plan: Replay) -> Html:
    stages = stage_memories(plan)
    used = {name: told for name, told in _LOOKS.items() if any(getattr(s, name) for s in stages)}
    capacity = plan.planner.memory_bytes
    rows = [
        [f"stage {k}", *_figures(one, capacity), _bar(one, used, capacity)] for k, one in enumerate(stages, 1)
    ]
    picture = join(
        [
            legend({look: name for name, look in used.values()}),
            table(("", "peak", "of all", "held", ""), rows, look="wide"),
        ]
    )
    caption = (
        f"Full width is the capacity of a device, {fmt.memory(capacity)}. Held: microbatches whose activations a stage "
        "keeps at a time."
    )
    heads = ("", *(name for name, _ in used.values()))
    behind = table(heads, [[f"stage {k}", *_parts(one, used)] for k, one in enumerate(stages, 1)])
    return figure(picture, caption, behind)


def _figures(one: StageMemory, capacity: float) -> tuple[str, ...]:
    return fmt.memory(one.total_bytes), fmt.percent(one.total_bytes / capacity), f"{one.held:,}"


def _bar(one: StageMemory, used: Mapping[str, tuple[str, str]], capacity: float) -> Html:
    return bars([Bar(getattr(one, field) / capacity, look, name) for field, (name, look) in used.items()])


def _parts(one: StageMemory, used: Mapping[str, tuple[str, str]]) -> list[str]:
    return [fmt.memory(getattr(one, field)) for field in used]
