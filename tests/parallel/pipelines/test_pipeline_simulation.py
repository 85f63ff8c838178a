"""The simulation against the independent checker and the longest path; what makes a pipeline slower."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import pipelines

from phaze.parallel.pipelines import pipeline_simulation, simulation_loops, step_waves
from phaze.parallel.pipelines.action_order import ActionKind, ActionsOfAll, all_actions, orders
from phaze.parallel.pipelines.chunk_times import Chunks, even_chunks
from phaze.parallel.pipelines.compiled_loops import PLAIN_STEPS, Machine
from phaze.parallel.pipelines.pipeline_schedule import Schedule, device_of, refusal
from phaze.parallel.pipelines.pipeline_simulation import (
    pipeline_period_s,
    pipeline_s,
    pipelines_s,
    precedence,
    precedence_of,
    simulate,
)
from phaze.parallel.pipelines.unit_times import ONE_WAY, unit_times, waves_at
from phaze.parallel.recount.timeline_checker import check_timeline

SMALL = settings(max_examples=100, deadline=None, derandomize=True)


@SMALL
@given(pipelines())
def test_every_timeline_passes_the_checker(case):
    schedule, stages, microbatches, chunks = case
    timeline = simulate(schedule, microbatches, stages, chunks)
    check_timeline(timeline, schedule, microbatches, stages, chunks)
    assert timeline.makespan_s == pipeline_s(schedule, microbatches, stages, chunks)
    assert timeline.period_s == pytest.approx(pipeline_period_s(schedule, microbatches, stages, chunks))
    assert np.all((timeline.idle_share >= -1e-12) & (timeline.idle_share <= 1.0))


def longest_path_s(schedule, stages, microbatches, chunks):
    """Longest path through a graph of all starts and ends, made from the orders alone."""
    graph, last = nx.DiGraph(), chunks.count - 1
    home = device_of(schedule, stages, chunks.per_device(stages))
    half = microbatches // schedule.weight_copies

    def way(k, near):
        here, there = home[k // half, near : near + 2]
        return chunks.transfer_s[near] if here != there else 0.0

    passes = (chunks.forward_s, chunks.backward_s, chunks.input_gradient_s, chunks.weight_gradient_s)
    groups = {}
    for device, order in enumerate(orders(schedule, stages, microbatches, chunks.per_device(stages))):
        steps = []
        for action in order:
            steps = [*steps[:-1], [*steps[-1], action]] if action.joined else [*steps, [action]]
        named = {(device, place): step for place, step in enumerate(steps)}
        groups |= named
        for before, after in pairwise(named):
            graph.add_edge((before, "end"), (after, "start"), weight=0.0)
    ends = {
        (kind is ActionKind.FORWARD, k, c): name
        for name, step in groups.items()
        for kind, k, c, _ in step
        if kind is not ActionKind.WEIGHT_GRADIENT
    }
    for name, step in groups.items():
        kind, _, c, _ = step[0]
        took = chunks.pairs_s[c] if len(step) > 1 else passes[kind][c]
        graph.add_edge((name, "start"), (name, "end"), weight=took)
        sources = []
        for kind, k, c, _ in step:
            if kind is ActionKind.FORWARD and c > 0:
                sources.append((ends[True, k, c - 1], way(k, c - 1)))
            elif kind is ActionKind.WEIGHT_GRADIENT:
                sources.append((ends[False, k, c], 0.0))
            elif kind is not ActionKind.FORWARD:
                sources.append((ends[True, k, c], 0.0) if c == last else (ends[False, k, c + 1], way(k, c)))
        received = sum(wait for _, wait in sources)
        for source, wait in sources:
            delay = received if chunks.blocking else wait
            # joined passes of two steps may exchange both ways: the longer one counts
            ends_here = graph.get_edge_data((source, "end"), (name, "start"), {"weight": 0.0})["weight"]
            graph.add_edge((source, "end"), (name, "start"), weight=max(ends_here, delay))
        before = (name[0], name[1] - 1)
        if chunks.blocking and before in groups:
            sent = sum(sent_s(action, last, way) for action in groups[before])
            graph[before, "end"][name, "start"]["weight"] = max(sent, received)
    return nx.dag_longest_path_length(graph)


def sent_s(action, last, way):
    kind, k, c, _ = action
    if kind is ActionKind.FORWARD:
        return way(k, c) if c < last else 0.0
    return way(k, c - 1) if kind is not ActionKind.WEIGHT_GRADIENT and c > 0 else 0.0


@SMALL
@given(pipelines(most_stages=4))
def test_the_makespan_is_the_longest_path(case):
    schedule, stages, microbatches, chunks = case
    path_s = longest_path_s(schedule, stages, microbatches, chunks)
    assert pipeline_s(schedule, microbatches, stages, chunks) == pytest.approx(path_s, rel=1e-12)


@SMALL
@given(pipelines(), st.data())
def test_a_longer_pass_or_transfer_never_makes_it_shorter(case, data):
    schedule, stages, microbatches, chunks = case
    names = ["forward_s", "input_gradient_s", "weight_gradient_s"]
    name = data.draw(st.sampled_from([*names, "transfer_s"] if chunks.count > 1 else names))
    times = getattr(chunks, name).copy()
    times[data.draw(st.integers(0, len(times) - 1))] += data.draw(st.floats(0.0, 5.0))
    slower = replace(chunks, **{name: times}, paired_s=None)
    before_s = pipeline_s(schedule, microbatches, stages, replace(chunks, paired_s=None))
    assert pipeline_s(schedule, microbatches, stages, slower) >= before_s * (1 - 1e-12)


@SMALL
@given(pipelines())
def test_more_microbatches_never_take_less(case):
    schedule, stages, microbatches, chunks = case
    more = microbatches + {Schedule.INTERLEAVED: stages, Schedule.DUALPIPE: 2}.get(schedule, 1)
    before_s = pipeline_s(schedule, microbatches, stages, chunks)
    assert pipeline_s(schedule, more, stages, chunks) >= before_s * (1 - 1e-12)


@SMALL
@given(pipelines())
def test_transfers_that_block_never_take_less(case):
    schedule, stages, microbatches, chunks = case
    times = [pipeline_s(schedule, microbatches, stages, replace(chunks, blocking=b)) for b in (False, True)]
    assert times[0] <= times[1] * (1 + 1e-12)


def test_transfers_that_block_cost_both_devices_in_every_turn():
    """In the steady state of 1F1B a device sends and receives at once, twice per microbatch: f + b + w + 2 t."""
    one, t = np.ones(4), 0.25
    chunks = Chunks(one, one, one, t * one[1:], blocking=True)
    each = [pipeline_s(Schedule.ONE_F_ONE_B, m, 4, chunks) for m in (16, 17)]
    assert each[1] - each[0] == pytest.approx(3.0 + 2 * t)


@SMALL
@given(pipelines())
def test_every_step_is_looked_at_once_and_behind_what_it_waits_for(case):
    schedule, stages, microbatches, chunks = case
    work = precedence(schedule, stages, microbatches, chunks.per_device(stages))
    place = np.append(np.argsort(work.queue), -1)
    assert sorted(work.queue) == list(range(len(work.kind)))
    assert np.all(place[work.before] < place[:-1])
    assert np.all(place[work.source] < place[:-1, None])


def test_orders_that_wait_for_one_another_are_refused():
    first, second = orders(Schedule.ONE_F_ONE_B, 2, 2)
    swapped = replace(second, **{name: getattr(second, name)[::-1] for name in ("kind", "microbatch")})
    with pytest.raises(ValueError, match="wait for one another"):
        precedence_of(ActionsOfAll.of((first, swapped)), 2, 2)


def test_machine_code_answers_the_same():
    machine, chunks = Machine(), even_chunks(6, 0.1, 0.2, 0.3)
    work = precedence(Schedule.INTERLEAVED, 3, 12, 2)
    seconds = np.linspace(0.1, 0.7, len(work.kind))
    way_s, none = np.append(chunks.transfer_s + 0.01, 0.0), np.zeros(len(seconds) + 1)
    source, ways = tuple(work.source.T), tuple(way_s[work.way].T)
    kinds_s, each = np.linspace(0.1, 2.0, 5 * 6 * 2).reshape(5, 6, 2), (work.kind, work.chunk, work.way)
    answers = []
    for steps in (1, PLAIN_STEPS):
        machine.function("sort", steps)
        queue = machine.sort(work.first, work.source)
        end_s = machine.fill("run", queue, work.before, source, seconds, ways, none, False, end_s=none.copy())
        many_s, blocked_s, sent_s = np.zeros((3, len(none), 2))
        two = queue, work.before, work.source, *each, kinds_s, np.stack([way_s, 2 * way_s], axis=1)
        machine.function("run_many", 1)(*two, many_s)
        machine.function("run_many_blocking", 1)(*two, sent_s, blocked_s)
        answers.append((queue.tolist(), end_s.tolist(), many_s.tolist(), blocked_s.tolist()))
    assert machine.function("run", 1) is not simulation_loops.run
    assert answers[0] == answers[1]


@SMALL
@given(pipelines())
def test_waves_end_as_steps_one_by_one_do_to_the_last_bit(case):
    schedule, stages, microbatches, chunks = case
    work = precedence(schedule, stages, microbatches, chunks.per_device(stages))
    queue, starts = step_waves.waves(work.first.astype(np.int64), work.source.astype(np.int64))
    wave = np.empty(len(queue) + 1, dtype=np.int64)
    wave[queue], wave[-1] = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), -1
    assert np.all(wave[:-1, None] > wave[work.source])
    seconds, way_s = np.linspace(0.1, 0.7, len(queue)), np.append(chunks.transfer_s, 0.0)[work.way]
    sent_s = np.bincount(work.source.ravel(), way_s.ravel(), len(queue) + 1)
    for blocking in (False, True):
        steps = (work.before, tuple(work.source.T), seconds, tuple(way_s.T), sent_s, blocking)
        one_by_one = Machine().fill("run", work.queue, *steps, end_s=np.zeros(len(queue) + 1))
        assert step_waves.run_waves(queue, starts, *steps).tolist() == one_by_one.tolist()


@SMALL
@given(pipelines())
def test_units_of_time_are_as_few_waves_as_of_a_pipeline_that_is_played(case):
    schedule, stages, microbatches, chunks = case
    actions = all_actions(schedule, stages, microbatches, chunks.per_device(stages))
    unit = unit_times(schedule, actions)
    assert (unit is None) == (schedule not in {*ONE_WAY, Schedule.ONE_F_ONE_B})
    played = precedence_of(actions, microbatches, chunks.count)
    if unit is not None:
        before, source = played.before, played.source
        queue, starts = waves_at(unit, before, source)
        order, each = step_waves.waves(played.first.astype(np.int64), source.astype(np.int64))
        first_run = np.empty_like(unit)
        first_run[order] = np.repeat(np.arange(len(each) - 1), np.diff(each))
        assert np.all(first_run <= unit)
        assert len(starts) == len(each)
        assert sorted(queue) == sorted(order)
        late = unit.copy()
        late[np.flatnonzero(before < len(before))[-1]] = 0  # no later than what it waits for
        assert waves_at(late, before, source) is None


def test_waves_are_not_played_where_they_are_known_or_machine_code_runs(monkeypatch):
    played, fresh = [], Machine()
    monkeypatch.setattr(pipeline_simulation, "machine", lambda: fresh)
    monkeypatch.setattr(
        pipeline_simulation, "waves", lambda *steps: played.append(steps) or step_waves.waves(*steps)
    )

    def run(schedule, stages):
        lines = even_chunks(stages, 0.11, 0.13, 0.17)
        both = {k: np.stack([v, v]) for k, v in vars(lines).items() if isinstance(v, np.ndarray)}
        pipelines_s(schedule, 48, stages, replace(lines, **both))
        return len(played)

    assert [run(Schedule.ONE_F_ONE_B, 11), run(Schedule.GPIPE, 11), run(Schedule.ZB_H1, 11)] == [0, 0, 1]
    fresh.function("run_many", PLAIN_STEPS)
    assert run(Schedule.ZB_H1, 13) == 1


def test_wide_pipelines_take_a_wave_for_a_step_of_each_device_and_known_ones_none(monkeypatch):
    ran, fresh = [], Machine()

    def run_waves(queue, starts, *steps):
        ran.append((len(queue), len(starts) - 1))
        return step_waves.run_waves(queue, starts, *steps)

    monkeypatch.setattr(pipeline_simulation, "machine", lambda: fresh)
    monkeypatch.setattr(pipeline_simulation, "run_waves", run_waves)
    chunks = even_chunks(32, 0.11, 0.13, 0.17)
    found = [pipeline_s(Schedule.ZB_H1, 99, 32, chunks) for _ in range(3)]
    assert simulate(Schedule.ZB_H1, 99, 32, chunks).makespan_s == found[0]
    ((steps, waves),) = ran
    assert steps == 32 * 99 * 3
    assert waves <= 3 * 99 + 2 * 32
    assert not len(precedence(Schedule.ZB_H1, step_waves.WIDE - 1, 99).waves)


def test_wrong_chunks_are_refused():
    with pytest.raises(ValueError, match="5 chunks do not spread evenly over 4 stages"):
        pipeline_s(Schedule.INTERLEAVED, 8, 4, even_chunks(5, 1.0, 1.0, 1.0))
    one, plans = np.ones(4), np.ones((2, 4))
    with pytest.raises(ValueError, match="one plan at a time"):
        pipeline_s(Schedule.ONE_F_ONE_B, 8, 4, Chunks(plans, plans, plans, plans[:, 1:]))
    with pytest.raises(ValueError, match="transfer_s: shape"):
        Chunks(one, one, one, one)
    with pytest.raises(ValueError, match="weight_gradient_s: times must be finite and not negative"):
        Chunks(one, one, -one, one[1:])
    with pytest.raises(ValueError, match="cannot be faster than either alone"):
        Chunks(one, one, one, one[1:], paired_s=1.5 * one)
    assert refusal(Schedule.ONE_F_ONE_B, 4, 1) is None
