"""What `dse solve placement` answers, for either format of instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phaze.solvers.placement import PlacementProblem
    from phaze.solvers.placement.general import GeneralProblem

# The result document, and a row of the table for each stage.
Answer = tuple[dict[str, Any], list[dict[str, object]]]


class Compat(StrEnum):
    """Whose rules to follow instead of the instance's own."""

    PHAZE = "phaze"


def placement_answer(data: object, compat: Compat | None) -> Answer:
    """The best plan of a parsed instance; its `format` chooses the solver.

    Raises:
        InstanceError: the instance is malformed, or too large for the exact search.
    """
    from phaze.solvers.placement import FORMAT as CHAIN
    from phaze.solvers.placement import InstanceError, read_problem
    from phaze.solvers.placement.general import FORMAT as GENERAL
    from phaze.solvers.placement.general import read_general_problem, with_phaze_conventions

    named = data.get("format", CHAIN) if isinstance(data, Mapping) else CHAIN
    if named not in (CHAIN, GENERAL):
        raise InstanceError(f"$.format: must be {CHAIN!r} or {GENERAL!r}, got {named!r}")
    if named == CHAIN:
        return _chain(read_problem(data))
    problem = read_general_problem(data)
    return _graph(with_phaze_conventions(problem) if compat is Compat.PHAZE else problem)


def _chain(problem: PlacementProblem) -> Answer:
    from phaze.solvers.placement import place

    result = place(problem)
    document = {
        "status": result.status.value,
        "time_per_batch_s": result.time_per_batch_s,
        "num_stages": result.num_stages,
        "data_parallel": result.data_parallel,
        "tensor_parallel": result.tensor_parallel,
        "stages": [{"layers": list(s.layers), "devices": s.devices} for s in result.stages],
        "runtime_s": result.runtime_s,
    }
    return document, _rows(document)


def _graph(problem: GeneralProblem) -> Answer:
    from phaze.solvers.placement.general import place_general

    result = place_general(problem)
    widths = {stage.tensor_parallel for stage in result.stages}
    document = {
        "status": result.status.value,
        "time_per_batch_s": result.time_per_batch_s,
        "num_stages": result.num_stages,
        "depth": result.depth,
        "data_parallel": result.data_parallel,
        "tensor_parallel": widths.pop() if len(widths) == 1 else None,
        "devices_used": result.devices_used,
        "stages": [
            {
                "layers": list(stage.layers),
                "devices": stage.devices,
                "device_type": stage.device_type,
                "tensor_parallel": stage.tensor_parallel,
                "recompute": stage.recompute.value,
                "zero": stage.zero,
            }
            for stage in result.stages
        ],
        "runtime_s": result.runtime_s,
    }
    return document, _rows(document)


def _rows(document: dict[str, Any]) -> list[dict[str, object]]:
    """The stages as rows of a table."""
    return [{"stage": i, **s, "layers": _span(s["layers"])} for i, s in enumerate(document["stages"])]


def _span(layers: Sequence[int]) -> str:
    """Layer ids, a run of consecutive ones as first-last."""
    consecutive = list(layers) == list(range(layers[0], layers[0] + len(layers)))
    return f"{layers[0]}-{layers[-1]}" if consecutive and len(layers) > 2 else " ".join(map(str, layers))
