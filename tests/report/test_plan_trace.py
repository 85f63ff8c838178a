"""The trace of a plan holds every pass once, in order, and is as long as the iteration."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
import report_cases

from phaze.parallel.parallel_plan import Zero
from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.report.trace.chrome_trace import written
from phaze.report.trace.iteration_trace import plan_trace


@pytest.fixture(scope="module", params=["1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"])
def played(request, tmp_path_factory):
    schedule = Schedule(request.param)
    held = {"pipeline": (2,), "schedules": (schedule,), "zeros": (Zero(0),), "microbatches": (1,)}
    if schedule is Schedule.INTERLEAVED:
        held["chunks"] = (2,)
    return report_cases.played(tmp_path_factory.mktemp("workloads"), "a100", **held)


def events(played):
    result, again = played
    document = json.loads(
        written(plan_trace(again, "<a>", "tiny", [stage.layers for stage in result.placement.stages]))
    )
    assert document["otherData"]["title"] == "<a>"
    return document["traceEvents"]


def test_nothing_overlaps_and_the_last_event_ends_the_iteration(played):
    lanes = defaultdict(list)
    for event in (one for one in events(played) if one["ph"] == "X"):
        start = round(event["ts"] * 1000)
        lanes[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for spans in lanes.values():
        for before, after in pairwise(sorted(spans)):
            assert after[0] >= before[1]
    assert max(end for spans in lanes.values() for _, end in spans) / 1e9 == pytest.approx(
        played[0].iteration_time_s, abs=2e-9
    )


def test_every_pass_of_every_microbatch_is_there(played):
    result, again = played
    plan, timeline = result.placement.plan, again.timeline
    names = Counter(
        name
        for one in events(played)
        if one["ph"] == "X"
        for name in one["name"].split(" and ")
        if name[-1].isdigit()
    )
    forward = sum(int((order.kind == ActionKind.FORWARD).sum()) for order in timeline.orders)
    assert sum(count for name, count in names.items() if name.startswith("forward")) == forward
    assert {int(name.split()[-1]) for name in names} == set(range(1, plan.microbatches + 1))


def test_stages_are_called_by_their_layers(played):
    told = [one["args"]["name"] for one in events(played) if one.get("name") == "process_name"]
    assert len(told) == played[0].placement.pipeline_parallel
    assert all(name.startswith(f"stage {at}: ") for at, name in enumerate(told, 1))


def test_arrows_lead_from_one_pass_to_a_later_one(played):
    flows = [one for one in events(played) if one["ph"] in "sf"]
    starts = {one["id"]: one["ts"] for one in flows if one["ph"] == "s"}
    ends = {one["id"]: one["ts"] for one in flows if one["ph"] == "f"}
    assert starts.keys() == ends.keys() != set()
    assert all(starts[one] <= ends[one] for one in starts)


def test_events_are_those_of_the_format(played):
    """Trace Event Format: phases with the fields they need, numbers finite, metadata known, slices nested."""
    needed = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
        "M": {"name", "ts", "pid", "tid", "args"},
        "s": {"name", "cat", "id", "ts", "pid", "tid"},
        "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    }
    known = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
    found = events(played)
    for event in found:
        assert set(event) == needed[event["ph"]] | {"ph"}
        assert all(isinstance(event[k], int) for k in ("pid", "tid"))
        assert all(isinstance(event[k], int | float) and event[k] >= 0 for k in ("ts", "dur") if k in event)
    metadata = [one for one in found if one["ph"] == "M"]
    assert {one["name"] for one in metadata} <= known
    once = [(one["name"], one["pid"], one["tid"]) for one in metadata]
    assert len(once) == len(set(once))
    threads = {(one["pid"], one["tid"]) for one in metadata if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in found if one["ph"] == "X"} == threads
