"""The iteration of a training plan as JSON in the Trace Event Format: one process per device of a pipeline.

Its threads: the passes of every microbatch, and what follows the last of them. All replicas and all devices of one
tensor-parallel group do the same. Format: as in `chrome.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from phaze.explore.document import WorkloadResult
from phaze.explore.plan_record import StrategyRecord
from phaze.explore.planning.again import PlayedPlan
from phaze.placement.pipelines.order import Action, Kind

_PASSES, _REST = 1, 2
_THREADS = {_PASSES: "passes", _REST: "after the last pass"}
_NAMES: Mapping[Kind, str] = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT_GRADIENT: "input gradient",
    Kind.WEIGHT_GRADIENT: "weight gradient",
}


@dataclass(frozen=True)
class _Run:
    """Actions of one device that run as one."""

    device: int
    actions: tuple[Action, ...]
    start_s: float
    end_s: float


def plan_trace(
    played: PlayedPlan, plan: StrategyRecord, title: str, workload: str, result: WorkloadResult | None = None
) -> str:
    """The whole document, one event to a line; `result` tells what layers the stages have."""
    runs = list(_runs(played))
    events = [
        *_metadata(played, result),
        *(_complete(run) for run in runs),
        *_rest(played),
        *_flows(runs),
    ]
    other = {
        "title": title,
        "workload": workload,
        "iteration_time_s": played.iteration.iteration_s,
        "replicas": plan.data_parallel,
        "devices_per_stage": plan.tensor_parallel * plan.context_parallel,
        "microbatches_per_replica": plan.microbatches,
    }
    lines = ",\n".join(json.dumps(one, allow_nan=False, separators=(",", ":")) for one in events)
    head = json.dumps({"displayTimeUnit": "ms", "otherData": other}, allow_nan=False)
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _runs(played: PlayedPlan) -> Iterator[_Run]:
    """Passes of every device in its order, those that run as one together."""
    timeline = played.timeline
    each = zip(timeline.orders, timeline.starts_s, timeline.ends_s, strict=True)
    for device, (order, starts_s, ends_s) in enumerate(each):
        run: _Run | None = None
        for action, start_s, end_s in zip(order, starts_s.tolist(), ends_s.tolist(), strict=True):
            if run and action.joined:
                both = (*run.actions, action)
                run = _Run(device, both, min(run.start_s, start_s), max(run.end_s, end_s))
                continue
            if run:
                yield run
            run = _Run(device, (action,), start_s, end_s)
        if run:
            yield run


def _complete(run: _Run) -> dict[str, Any]:
    first = run.actions[0]
    return _slice(
        run.device,
        _PASSES,
        " and ".join(f"{_NAMES[one.kind]} {one.microbatch + 1}" for one in run.actions),
        _NAMES[first.kind],
        (run.start_s, run.end_s),
        {"microbatch": first.microbatch + 1, "part": first.chunk + 1},
    )


def _rest(played: PlayedPlan) -> Iterator[dict[str, Any]]:
    """From the last pass of all devices to the end of the iteration."""
    span = played.timeline.makespan_s, played.iteration.iteration_s
    if span[1] > span[0]:
        for device in range(len(played.timeline.orders)):
            yield _slice(device, _REST, "gradients, weights and optimizer step", "rest", span, {})


def _slice(
    device: int, thread: int, name: str, category: str, span_s: tuple[float, float], args: dict[str, Any]
) -> dict[str, Any]:
    """A complete event, its start and end each rounded to a nanosecond so that neighbours still meet."""
    start, end = round(span_s[0] * 1e9), round(span_s[1] * 1e9)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": device + 1,
        "tid": thread,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": args,
    }


def _flows(runs: Sequence[_Run]) -> Iterator[dict[str, Any]]:
    """Arrows along every microbatch, through its forward passes and then back."""
    paths: dict[int, list[_Run]] = {}
    for run in sorted(runs, key=lambda one: one.start_s):
        for action in run.actions:
            if action.kind is not Kind.WEIGHT_GRADIENT:
                paths.setdefault(action.microbatch, []).append(run)
    number = 0
    for path in paths.values():
        for before, after in pairwise(path):
            number += 1
            leaves, enters = round(before.end_s * 1e9) - 1, round(after.start_s * 1e9)
            if leaves <= enters:
                yield _flow("s", number, before.device, leaves)
                yield {**_flow("f", number, after.device, enters), "bp": "e"}


def _flow(phase: str, number: int, device: int, time_ns: int) -> dict[str, Any]:
    return {
        "ph": phase,
        "name": "microbatch",
        "cat": "flow",
        "id": number,
        "pid": device + 1,
        "tid": _PASSES,
        "ts": time_ns / 1e3,
    }


def _metadata(played: PlayedPlan, result: WorkloadResult | None) -> Iterator[dict[str, Any]]:
    for device in range(len(played.timeline.orders)):
        layers = result.placement.stages[device].layers if result else []
        span = f": {layers[0]} .. {layers[-1]}" if layers else ""
        yield _meta("process_name", device, {"name": f"stage {device + 1}{span}"})
        yield _meta("process_sort_index", device, {"sort_index": device + 1})
        for thread, name in _THREADS.items():
            yield _meta("thread_name", device, {"name": name}, thread)
            yield _meta("thread_sort_index", device, {"sort_index": thread}, thread)


def _meta(name: str, device: int, args: dict[str, Any], thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": device + 1, "tid": thread, "ts": 0, "args": args}
