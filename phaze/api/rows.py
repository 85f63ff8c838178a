"""Results as rows of a table: flat, with units in the names of the columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from phaze.api.table import Columns

if TYPE_CHECKING:
    from phaze.explore.document import Comparison, Design, WorkloadResult
    from phaze.explore.planning.document import PlanResult

Row = Mapping[str, Any]


def columns_of(rows: Sequence[Row]) -> Columns:
    """Rows as columns, in the order the names first appear; None where a row has no such value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def design_rows(designs: Iterable[tuple[str, Design]]) -> Iterator[dict[str, Any]]:
    """A row for every workload of every design, each design called as it is told."""
    for name, design in designs:
        for workload, result in design.workloads.items():
            yield {
                "architecture": name,
                "workload": workload,
                "area_mm2": design.area_mm2,
                "tdp_w": design.tdp_w,
                **figures(result),
                **design.architecture,
            }


def known_row(known: Comparison) -> dict[str, Any]:
    """A known chip beside the winner."""
    own = known.model_dump(exclude={"result"})
    return own | (figures(known.result) if known.result else {})


def plan_row(plan: PlanResult) -> dict[str, Any]:
    """A plan with its figures, where its time goes (`time.`) and its memory (`memory.`)."""
    told = plan.model_dump(mode="json")
    strategy, memory, time = (told.pop(part) for part in ("strategy", "memory", "breakdown"))
    return {**strategy, **told, **_within("time", time), **_within("memory", memory)}


def figures(result: WorkloadResult) -> dict[str, Any]:
    """What a workload comes to, its degrees, and where its time goes: five parts (`time.`), and by cause (`cause.`)."""
    told = result.model_dump(mode="json", exclude={"memory", "kinds", "host_memory_bytes"})
    placement, time = told.pop("placement"), told.pop("breakdown")
    stages, plan = placement.pop("stages"), placement.pop("plan") or {}
    causes = time.pop("parts") or {}
    if not time["host_s"]:
        del time["host_s"]
    return {
        **told,
        **placement,
        **plan,
        "stages": len(stages),
        **_within("time", time),
        **_within("cause", causes),
    }


def _within(part: str, values: Row) -> dict[str, Any]:
    return {f"{part}.{name}": value for name, value in values.items()}
