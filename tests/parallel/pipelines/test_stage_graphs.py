"""1F1B on graphs of stages: the chain as its special case, published invariants, the longest path, bounds, faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import seconds

from phaze.parallel.pipelines import joined_steps
from phaze.parallel.pipelines.action_order import ActionKind, ActionsOfAll, graph_actions
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.compiled_loops import PLAIN_STEPS, Machine
from phaze.parallel.pipelines.in_flight import in_flight_peak
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import (
    pipeline_s,
    pipelines_s,
    precedence,
    precedence_of,
    simulate,
)
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.parallel.recount.timeline_checker import TimelineError, check_timeline

SMALL = settings(max_examples=100, deadline=None, derandomize=True)
ONE_F_ONE_B = Schedule.ONE_F_ONE_B
TURN = ActionKind.BACKWARD


def chain(count):
    return StageGraph(count, tuple(pairwise(range(count))))


def towers(branches, stages):
    """So many equal branches of so many stages each, the last one of all joined to each of them."""
    edges, last = [], branches * stages - 1
    for branch in range(branches):
        own = range(branch * stages, (branch + 1) * stages)
        edges += [*pairwise(own), *([(own[-1], last)] if own[-1] < last else [])]
    return StageGraph(last + 1, tuple(sorted(edges)))


@st.composite
def graphs(draw, most=6):
    count = draw(st.integers(1, most))
    every = [(u, v) for v in range(count) for u in range(v)]
    return StageGraph(count, tuple(sorted(draw(st.sets(st.sampled_from(every)) if every else st.just(())))))


@st.composite
def cases(draw):
    graph = draw(graphs())
    f, b, w = (np.array(draw(st.lists(seconds, min_size=graph.count, max_size=graph.count))) for _ in "fbw")
    ways = draw(st.lists(seconds, min_size=len(graph.edges), max_size=len(graph.edges)))
    microbatches = draw(st.integers(1, 12))
    return microbatches, Chunks(f, b, w, np.array(ways), draw(st.booleans()), graph=graph)


@SMALL
@given(st.integers(1, 6), st.integers(1, 12), st.booleans(), st.randoms(use_true_random=False))
def test_a_chain_of_stages_is_the_pipeline_to_the_last_bit(count, microbatches, blocking, random):
    f, b, w, t = (np.array([random.random() for _ in range(count)]) for _ in "fbwt")
    plain = Chunks(f, b, w, t[1:], blocking)
    graph = replace(plain, graph=chain(count))
    assert graph.graph is not None
    assert graph.graph.is_chain
    one, other = (simulate(ONE_F_ONE_B, microbatches, count, chunks) for chunks in (plain, graph))
    for mine, its in zip(one.ends_s, other.ends_s, strict=True):
        assert np.array_equal(mine, its)
    held = in_flight_peak(ONE_F_ONE_B, count, microbatches)
    assert graph.graph.held(microbatches).tolist() == held[:, 0, 0].tolist()
    assert not graph.graph.waiting(microbatches).any()
    bounds = [float(pipeline_bound_s(ONE_F_ONE_B, microbatches, count, c)) for c in (plain, graph)]
    assert max(bounds) <= one.makespan_s * (1 + 1e-12)


@pytest.mark.parametrize(("branches", "stages"), [(1, 4), (2, 3), (3, 2), (4, 4)])
def test_equal_branches_have_the_depth_of_one(branches, stages):
    """GraphPipe: depth k + 1 for the branches that hand over, not q k; so are bubbles and microbatches in flight."""
    graph, m = towers(branches, stages), 16
    depth = stages + (branches > 1)
    assert graph.depth == depth
    assert graph.held(m).max() == depth <= branches * stages
    ones = np.ones(graph.count)
    chunks = Chunks(ones, ones, 0 * ones, np.zeros(len(graph.edges)), graph=graph)
    assert pipeline_s(ONE_F_ONE_B, m, graph.count, chunks) == 2 * (m + depth - 1)
    row = Chunks(ones, ones, 0 * ones, 0 * ones[1:])
    assert pipeline_s(ONE_F_ONE_B, m, graph.count, row) == 2 * (m + branches * stages - 1)


@SMALL
@given(cases())
def test_every_timeline_passes_the_checker_and_bounds_stay_below(case):
    microbatches, chunks = case
    assert chunks.graph is not None
    timeline = simulate(ONE_F_ONE_B, microbatches, chunks.count, chunks)
    check_timeline(timeline, ONE_F_ONE_B, microbatches, chunks.count, chunks)
    bound = float(pipeline_bound_s(ONE_F_ONE_B, microbatches, chunks.count, chunks))
    assert bound <= timeline.makespan_s * (1 + 1e-12)
    many = chunks.graph and replace(
        chunks,
        **{k: np.stack([v, v]) for k, v in vars(chunks).items() if isinstance(v, np.ndarray)},
    )
    both = pipelines_s(ONE_F_ONE_B, microbatches, chunks.count, many)
    assert both.tolist() == [timeline.makespan_s] * 2


@SMALL
@given(cases())
def test_transfers_that_only_delay_make_it_the_longest_path(case):
    microbatches, chunks = case
    chunks, graph = replace(chunks, blocking=False), chunks.graph
    work = nx.DiGraph()
    for device, order in enumerate(graph_actions(graph, microbatches).each()):
        steps = [(device, a.kind is TURN, a.microbatch) for a in order]
        for step in steps:
            work.add_edge((*step, "start"), (*step, "end"), weight=_lasting(chunks, step))
        for one, other in pairwise(steps):
            work.add_edge((*one, "end"), (*other, "start"), weight=0.0)
    for k in range(microbatches):
        for (u, v), way in zip(graph.edges, chunks.transfer_s, strict=True):
            work.add_edge((u, False, k, "end"), (v, False, k, "start"), weight=way)
            work.add_edge((v, True, k, "end"), (u, True, k, "start"), weight=way)
    longest = nx.dag_longest_path_length(work)
    assert pipeline_s(ONE_F_ONE_B, microbatches, chunks.count, chunks) == pytest.approx(longest)


def _lasting(chunks, step):
    device, turned, _ = step
    return float((chunks.backward_s if turned else chunks.forward_s)[device])


@SMALL
@given(cases())
def test_microbatches_in_flight_are_those_of_the_longest_path(case):
    microbatches, chunks = case
    for device, order in enumerate(simulate(ONE_F_ONE_B, microbatches, chunks.count, chunks).orders):
        held = np.cumsum(np.where(order.kind == TURN, -1, 1))
        assert held.max() == chunks.graph.held(microbatches)[device]


@SMALL
@given(graphs(), st.integers(1, 12))
def test_tensors_wait_where_edges_leave_stages_out(graph, microbatches):
    """Even stages without transfers: a chain has one tensor that is read, and one that has come."""
    ones = np.ones(graph.count)
    even = Chunks(ones, ones, 0 * ones, np.zeros(len(graph.edges)), graph=graph)
    timeline = simulate(ONE_F_ONE_B, microbatches, graph.count, even)
    ends = [end[order.kind != TURN] for order, end in zip(timeline.orders, timeline.ends_s, strict=True)]
    for (u, v), slack in zip(graph.edges, graph.waiting(microbatches), strict=True):
        there = np.arange(1, microbatches + 1)
        gone = [(ends[v] <= now).sum() for now in ends[u]]
        assert max(there - gone) <= slack + 2


@pytest.mark.parametrize("blocking", [False, True])
def test_machine_code_joins_as_plain_loops_do(blocking):
    graph, m = towers(4, 2), 5
    work = precedence(ONE_F_ONE_B, graph.count, m, 1, graph)
    random = np.random.default_rng(1)
    seconds, ways = random.random(len(work.kind)), random.random(work.source.shape)
    sent = random.random(len(work.kind) + 1) * blocking
    steps = (work.queue, work.before, work.source, seconds, ways, sent, blocking)
    ends = []
    for ran in (0, PLAIN_STEPS):
        machine = Machine(joined_steps)
        machine.function("run_joins", ran)
        ends.append(machine.fill("run_joins", *steps, end_s=np.zeros(len(work.kind) + 1)).tolist())
    assert work.source.shape[1] == 4
    assert ends[0] == ends[1]


def test_wrong_graphs_and_schedules():
    for edges in (((1, 0),), ((0, 1), (0, 1)), ((0, 3),), ((1, 2), (0, 1))):
        with pytest.raises(ValueError, match="do not lead forwards"):
            StageGraph(3, edges)
    ones = np.ones(3)
    chunks = Chunks(ones, ones, ones, np.ones(2), graph=chain(3))
    with pytest.raises(ValueError, match="runs 1f1b"):
        pipeline_s(Schedule.GPIPE, 4, 3, chunks)
    with pytest.raises(ValueError, match="transfer_s"):
        replace(chunks, transfer_s=np.ones(3))
    graph = towers(3, 2)
    *others, last = graph_actions(graph, 3).each()
    with pytest.raises(ValueError, match="wait for one another"):
        precedence_of(ActionsOfAll.of((*others, replace(last, kind=last.kind[::-1]))), 3, graph.count, graph)


@pytest.mark.parametrize("blocking", [False, True])
def test_the_checker_sees_inputs_that_are_not_there(blocking):
    graph = towers(3, 2)
    ones = np.ones(graph.count)
    chunks = Chunks(ones, ones, ones, np.full(len(graph.edges), 0.5), blocking, graph=graph)
    timeline = simulate(ONE_F_ONE_B, 4, graph.count, chunks)
    check_timeline(timeline, ONE_F_ONE_B, 4, graph.count, chunks)
    last = graph.count - 1
    for times in (timeline.starts_s[last], timeline.ends_s[last]):
        times[:1] -= 0.25
    with pytest.raises(TimelineError, match="before its input is there"):
        check_timeline(timeline, ONE_F_ONE_B, 4, graph.count, chunks)
