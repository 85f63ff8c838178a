"""Slices on the threads of stages, no two of which overlap on one thread, as JSON in the Trace Event Format, which the
Perfetto UI, trace_processor and chrome://tracing read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

PASSES, LAYERS, LINK, BESIDE, HOST, ALL_CORES = (
    "passes",
    "layers",
    "link",
    "link, beside computation",
    "host",
    "all cores together",
)
_FIRST = (PASSES, LAYERS, LINK, BESIDE, HOST, ALL_CORES)

MOST_LAYERS = 200_000
"""Most layers recorded one by one: with more of them only those of the first microbatches, as many as fit."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that runs on one thread of one stage for a while."""

    stage: int
    thread: str
    name: str
    category: str
    start_s: float
    end_s: float
    args: dict[str, Any] = field(default_factory=dict)


def order(thread: str) -> int:
    """Position of a thread within its process: passes, layers, links, then cores by number."""
    if thread in _FIRST:
        return _FIRST.index(thread)
    kind, number = thread[:2], thread[2:]
    return 1000 * (1 + ("TC", "VC").index(kind)) + int(number)


_Threads = dict[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class Stage:
    """A process of the trace: its name, and its meaning where one is recorded."""

    name: str
    label: str = ""


@dataclass(frozen=True)
class Trace:
    """One iteration: its slices, and the passes of every microbatch (slices of `PASSES`) in the order of time."""

    stages: Sequence[Stage]
    slices: Iterable[Slice]
    paths: Iterable[Sequence[Slice]]
    told: Mapping[str, object]


def written(trace: Trace) -> str:
    """The whole document, one event to a line."""
    threads: _Threads = {}
    events = [_complete(one, threads) for one in trace.slices]
    rows = [*_metadata(trace.stages, threads), *events, *_flows(trace.paths, threads)]
    lines = ",\n".join(json.dumps(row, allow_nan=False, separators=(",", ":")) for row in rows)
    head = json.dumps({"displayTimeUnit": "ms", "otherData": trace.told}, allow_nan=False)
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _complete(one: Slice, threads: _Threads) -> dict[str, Any]:
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


def _flows(paths: Iterable[Sequence[Slice]], threads: _Threads) -> Iterator[dict[str, Any]]:
    """Arrows along every microbatch, each inside the passes it joins; none between passes that run as one."""
    number = 0
    for path in paths:
        for before, after in pairwise(path):
            leaves, enters = round(before.end_s * 1e9) - 1, round(after.start_s * 1e9)
            if leaves <= enters:
                number += 1
                yield _flow("s", number, before, leaves, threads)
                yield {**_flow("f", number, after, enters, threads), "bp": "e"}


def _flow(phase: str, number: int, run: Slice, time_ns: int, threads: _Threads) -> dict[str, Any]:
    return {
        "ph": phase,
        "name": "microbatch",
        "cat": "flow",
        "id": number,
        "pid": run.stage + 1,
        "tid": threads[run.stage, PASSES],
        "ts": time_ns / 1e3,
    }


def _metadata(stages: Sequence[Stage], threads: _Threads) -> Iterator[dict[str, Any]]:
    for at, stage in enumerate(stages):
        yield _meta("process_name", at + 1, {"name": stage.name})
        if stage.label:
            yield _meta("process_labels", at + 1, {"labels": stage.label})
        yield _meta("process_sort_index", at + 1, {"sort_index": at + 1})
    for (at, name), thread in threads.items():
        yield _meta("thread_name", at + 1, {"name": name}, thread)
        yield _meta("thread_sort_index", at + 1, {"sort_index": order(name)}, thread)


def _meta(name: str, process: int, args: dict[str, Any], thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0, "args": args}
