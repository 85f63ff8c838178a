"""Slices as JSON in the Trace Event Format, which the Perfetto UI, trace_processor and chrome://tracing open.

Format: "Trace Event Format", N. Duca and D. Sinclair, Google 2016: complete events (`ph` X) with `ts` and `dur` in
microseconds, flow events (`ph` s and f) from the pass of a microbatch on one stage to its pass on the next, and
metadata events (`ph` M) that name processes and threads and give their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from phaze.report.replay.pipeline import PassRun, pass_runs
from phaze.report.replay.replay import Replay
from phaze.report.trace.events import ALL_CORES, LAYERS, LINK, PASSES, Slice, slices

_FIRST = (PASSES, LAYERS, LINK, ALL_CORES)


def trace(plan: Replay, title: str) -> str:
    """The whole document, one event to a line."""
    threads: dict[tuple[int, str], int] = {}
    events = [_complete(one, threads) for one in slices(plan)]
    rows = [*_metadata(plan, threads), *events, *_flows(plan, threads)]
    other = {
        "title": title,
        "workload": plan.workload,
        "iteration_time_s": plan.iteration_s,
        "replicas": plan.degrees.data_parallel,
        "devices_per_stage": plan.degrees.tensor_parallel,
        "microbatches_per_replica": plan.microbatches,
    }
    lines = ",\n".join(json.dumps(row, allow_nan=False, separators=(",", ":")) for row in rows)
    head = json.dumps({"displayTimeUnit": "ms", "otherData": other}, allow_nan=False)
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _complete(one: Slice, threads: dict[tuple[int, str], int]) -> dict[str, Any]:
    """A complete event, its start and end each rounded to a nanosecond so that neighbours still meet."""
    thread = threads.setdefault((one.stage, one.thread), len(threads) + 1)
    start, end = round(one.start_s * 1e9), round(one.end_s * 1e9)
    return {
        "ph": "X",
        "name": one.name,
        "cat": str(one.category),
        "pid": one.stage + 1,
        "tid": thread,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": one.args,
    }


def _flows(plan: Replay, threads: Mapping[tuple[int, str], int]) -> Iterator[dict[str, Any]]:
    """Arrows along every microbatch: forward up the stages, then backward down; each inside the passes it joins."""
    paths: dict[int, list[PassRun]] = {}
    for run in sorted(pass_runs(plan), key=lambda run: run.start_s):
        paths.setdefault(run.microbatch, []).append(run)
    number = 0
    for runs in paths.values():
        for before, after in pairwise(runs):
            number += 1
            leaves, enters = round(before.end_s * 1e9) - 1, round(after.start_s * 1e9)
            yield _flow("s", number, before, leaves, threads)
            yield {**_flow("f", number, after, enters, threads), "bp": "e"}


def _flow(
    phase: str, number: int, run: PassRun, time_ns: int, threads: Mapping[tuple[int, str], int]
) -> dict[str, Any]:
    return {
        "ph": phase,
        "name": "microbatch",
        "cat": "flow",
        "id": number,
        "pid": run.stage + 1,
        "tid": threads[run.stage, PASSES],
        "ts": time_ns / 1e3,
    }


def _metadata(plan: Replay, threads: Mapping[tuple[int, str], int]) -> Iterator[dict[str, Any]]:
    names = plan.timed.chain.names
    for at, stage in enumerate(plan.stages):
        layers = names[stage.plan.first], names[stage.plan.last]
        span = layers[0] if layers[0] == layers[1] else f"{layers[0]} .. {layers[1]}"
        label = f"{plan.degrees.tensor_parallel} x {stage.design}"
        yield _meta("process_name", at + 1, {"name": f"stage {at + 1}: {span}"})
        yield _meta("process_labels", at + 1, {"labels": label})
        yield _meta("process_sort_index", at + 1, {"sort_index": at + 1})
    for (at, name), thread in threads.items():
        yield _meta("thread_name", at + 1, {"name": name}, thread)
        yield _meta("thread_sort_index", at + 1, {"sort_index": _order(name)}, thread)


def _meta(name: str, process: int, args: dict[str, Any], thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0, "args": args}


def _order(thread: str) -> int:
    """Position of a thread within its process: passes, layers, links, then cores by number."""
    if thread in _FIRST:
        return _FIRST.index(thread)
    kind, number = thread[:2], thread[2:]
    return 1000 * (1 + ("TC", "VC").index(kind)) + int(number)
