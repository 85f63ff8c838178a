"""A trace is valid, nothing overlaps on a thread, and it is as long as the iteration."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from phaze.report.replay.operators import layer_schedules
from phaze.report.trace.chrome import written
from phaze.report.trace.events import trace_of
from phaze.report.trace.gantt_svg import draw, picture_of
from phaze.report.trace.slices import ALL_CORES, LAYERS, PASSES

EVIL = '</title><script>alert("1")</script> & é'


def read(plan):
    document = json.loads(written(trace_of(plan, EVIL)))
    events = document["traceEvents"]
    return document, [e for e in events if e["ph"] == "X"], [e for e in events if e["ph"] == "M"]


def test_it_has_the_form_of_a_trace(case):
    _, plan = case
    document, events, metadata = read(plan)
    assert document["otherData"]["title"] == EVIL
    assert {e["ph"] for e in document["traceEvents"]} <= set("XMsf")
    for event in events:
        assert set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert isinstance(event["name"], str)
    processes = {e["pid"]: e["args"]["name"] for e in metadata if e["name"] == "process_name"}
    assert [processes[k].split(":")[0] for k in sorted(processes)] == [
        f"stage {k + 1}" for k in range(len(plan.stages))
    ]
    threads = {(e["pid"], e["tid"]) for e in metadata if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events} == threads


def test_nothing_overlaps_and_the_last_event_ends_the_iteration(case):
    result, plan = case
    _, events, _ = read(plan)
    lanes = defaultdict(list)
    for event in events:
        start = round(event["ts"] * 1000)
        lanes[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for spans in lanes.values():
        for before, after in pairwise(sorted(spans)):
            assert after[0] >= before[1]
    assert min(s for spans in lanes.values() for s, _ in spans) == 0
    end_s = max(e for spans in lanes.values() for _, e in spans) / 1e9
    assert end_s == pytest.approx(result.iteration_time_s, abs=2e-9)


def test_layers_lie_in_their_pass_and_operators_of_the_first_microbatch_in_their_layer(pipeline):
    _, events, metadata = read(pipeline)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in metadata if e["name"] == "thread_name"}
    on = defaultdict(list)
    for event in events:
        on[names[event["pid"], event["tid"]]].append(event)
    passes = {
        (e["pid"], e["args"]["microbatch"], e["cat"]): e for e in on[PASSES] if "microbatch" in e["args"]
    }
    layers = {}
    for event in on[LAYERS]:
        args = event["args"]
        assert inside(event, passes[event["pid"], args["microbatch"], args["pass"]])
        layers[event["pid"], args["microbatch"], args["pass"], event["name"]] = event
    operators = [e for e in events if e["cat"] == "operator"]
    count = sum(one.runs * len(one.problem.operators) for one in layer_schedules(pipeline))
    assert len(operators) >= count
    for event in operators:
        args = event["args"]
        assert args["microbatch"] == 1
        assert inside(event, layers[event["pid"], 1, args["pass"], args["layer"]])
    assert on[ALL_CORES]


def inside(event, other):
    return (
        event["ts"] >= other["ts"] - 1e-3 and event["ts"] + event["dur"] <= other["ts"] + other["dur"] + 2e-3
    )


def test_the_gantt_chart_is_one_picture_with_every_pass(case):
    _, plan = case
    root = ElementTree.fromstring(draw(picture_of(plan), EVIL))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{svg}title").text == EVIL
    assert not root.findall(f".//{svg}script")
    looks = [rect.get("class") for rect in root.iter(f"{svg}rect") if rect.find(f"{svg}title") is not None]
    passes = len(plan.stages) * plan.microbatches
    assert looks.count("c2") == passes
    assert looks.count("c1") == (passes if plan.training else 0)


def test_flows_join_the_passes_of_a_microbatch_in_order(case):
    _, plan = case
    document, events, metadata = read(plan)
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in metadata if e["name"] == "thread_name"}
    passes = defaultdict(list)
    for event in events:
        if threads[event["pid"], event["tid"]] == PASSES and "microbatch" in event["args"]:
            passes[event["pid"], event["tid"]].append(event)
    starts, ends = ({e["id"]: e for e in document["traceEvents"] if e["ph"] == phase} for phase in "sf")
    turns = 2 if plan.training else 1
    assert set(starts) == set(ends)
    assert len(starts) == plan.microbatches * (turns * len(plan.stages) - 1)
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e"
        one, other = (around(passes[e["pid"], e["tid"]], e["ts"]) for e in (start, end))
        assert one["args"]["microbatch"] == other["args"]["microbatch"]
        assert one is not other
        assert end["ts"] >= start["ts"]


def around(slices, time):
    """The one slice that a flow event binds to: the one that its time lies in."""
    at = round(time * 1000)
    (found,) = (s for s in slices if 0 <= at - round(s["ts"] * 1000) < round(s["dur"] * 1000))
    return found


def test_events_are_those_of_the_format(pipeline):
    """Trace Event Format: phases with the fields they need, numbers finite, metadata known, slices nested."""
    needed = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
        "M": {"name", "ts", "pid", "tid", "args"},
        "s": {"name", "cat", "id", "ts", "pid", "tid"},
        "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    }
    known = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
    document, _, metadata = read(pipeline)
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert set(event) == needed[event["ph"]] | {"ph"}
        assert all(isinstance(event[k], int) for k in ("pid", "tid"))
        assert all(isinstance(event[k], int | float) and event[k] >= 0 for k in ("ts", "dur") if k in event)
    assert {e["name"] for e in metadata} == known
    once = [(e["name"], e["pid"], e["tid"]) for e in metadata]
    assert len(once) == len(set(once))
