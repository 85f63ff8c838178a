"""What fills the memory of a device in every stage, against what there is."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report.figures.contents import Contents, by_workload
from phaze.report.figures.plan import stage_memories
from phaze.report.page.markup import Section


def memory(contents: Contents) -> Iterator[Section]:
    """The peaks of the plans that could be played again."""
    if contents.plans:
        body = by_workload((name, stage_memories(played)) for name, played in contents.plans.items())
        yield Section("memory", "Memory of each stage", body)
