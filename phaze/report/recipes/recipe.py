"""One plan as the options of a training framework, and what of it the framework has no option for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord


@dataclass(frozen=True, slots=True)
class Recipe:
    """The text of a script or configuration, and sentences about what it could not say."""

    text: str
    remarks: tuple[str, ...]


def heading(document: PlanDocument) -> list[str]:
    """Comment lines that say what the recipe is of."""
    best, request = document.best, document.request
    name = ", ".join(request["workloads"])
    return [
        f"# {name} on {request['devices']} x {request['architecture']}, planned under framework "
        f"{request['framework']}",
        f"# expected: {best.iteration_time_s:.4g} s per iteration, {100 * best.mfu:.1f} % MFU, "
        f"{best.memory_bytes / 2**30:.1f} GiB per device",
    ]


def most_recomputed(s: StrategyRecord) -> int | None:
    """Blocks that recompute in the part with most of them; None where all do."""
    return max(s.recomputed_blocks) if s.recomputed_blocks is not None else None


def uneven(s: StrategyRecord) -> bool:
    """Whether stages have numbers of blocks of their own."""
    return s.blocks is not None and len(set(s.blocks)) > 1


def divides_all(s: StrategyRecord, software: str) -> Iterator[str]:
    """That software divides the weights of every layer alike, where the plan keeps some whole."""
    if s.whole_layers:
        named = ", ".join(s.whole_layers)
        yield f"{software} divides the weights of every layer: the recipe does so with those that stay whole ({named})"


def device_batch(document: PlanDocument) -> int:
    """Samples that one replica works on in an iteration, rounded up."""
    return ceil(int(document.request["global_batch"]) / document.best.strategy.data_parallel)
