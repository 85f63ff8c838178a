"""Closed forms of the pipeline schedules against running their orders event by event."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from general_cases import random_problem
from phaze.solvers.placement.general.general_problem import Schedule
from phaze.solvers.placement.general.stage_tables import pipeline


def interleaved_order(place, groups, virtual, microbatches):
    """Megatron-LM's order of (pass, stage, microbatch) on one group of devices; microbatches divide into groups."""
    forward = [
        ("F", chunk * groups + place, first + i)
        for first in range(0, microbatches, groups)
        for chunk in range(virtual)
        for i in range(groups)
    ]
    last = (virtual - 1) * groups + place
    backward = [("B", last - (stage - place), i) for _, stage, i in forward]
    warm_up = min(2 * (groups - place - 1) + (virtual - 1) * groups, len(forward))
    return alternating(forward, backward, warm_up)


def alternating(forward, backward, warm_up):
    """Some forward passes, then one forward and one backward at a time, then the backward passes left."""
    order = forward[:warm_up]
    for task, other in zip(forward[warm_up:], backward, strict=False):
        order += [task, other]
    return order + backward[len(forward) - warm_up :]


def orders(schedule, stages, virtual, microbatches):
    """What each group of devices runs, in order."""
    if schedule is Schedule.INTERLEAVED:
        groups = stages // virtual
        return [interleaved_order(place, groups, virtual, microbatches) for place in range(groups)]
    found = []
    for stage in range(stages):
        forward = [("F", stage, i) for i in range(microbatches)]
        backward = [("B", stage, i) for i in range(microbatches)]
        first = microbatches if schedule is Schedule.GPIPE else min(stages - stage - 1, microbatches)
        found.append(alternating(forward, backward, first))
    return found


def run(lines, stages, seconds):
    """(time of the last event, most microbatches in flight per stage) of a chain of stages."""
    ends, now, done = {}, [0.0] * len(lines), [0] * len(lines)
    flying, most = Counter(), Counter()

    def needs(kind, stage, i):
        if kind == "F":
            return [("F", stage - 1, i)] if stage else []
        return [("B", stage + 1, i) if stage + 1 < stages else ("F", stage, i)]

    while any(done[k] < len(line) for k, line in enumerate(lines)):
        before = sum(done)
        for k, line in enumerate(lines):
            while done[k] < len(line) and all(task in ends for task in needs(*line[done[k]])):
                kind, stage, i = line[done[k]]
                start = max([now[k], *(ends[task] for task in needs(kind, stage, i))])
                now[k] = ends[kind, stage, i] = start + seconds[kind][stage]
                flying[stage] += 1 if kind == "F" else -1
                most[stage] = max(most[stage], flying[stage])
                done[k] += 1
        assert sum(done) > before
    return max(now), [most[stage] for stage in range(stages)]


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED])
def test_no_schedule_takes_longer_or_holds_more_than_its_closed_form(schedule):
    rng = random.Random(schedule.value)
    interleaved = schedule is Schedule.INTERLEAVED
    for _ in range(60):
        virtual, groups = rng.randint(2, 4) if interleaved else 1, rng.randint(1, 5)
        stages = virtual * groups
        microbatches = groups * rng.randint(1, 4) if interleaved else rng.randint(1, 12)
        problem = replace(random_problem(rng), schedule=schedule, virtual_stages=virtual)
        line = pipeline(problem, microbatches, stages)
        lines = orders(schedule, stages, virtual, microbatches)

        uneven = {kind: [rng.randint(0, 9) / 4 for _ in range(stages)] for kind in "FB"}
        work = np.array([uneven["F"], uneven["B"], [0.0] * stages])
        if schedule is Schedule.ONE_F_ONE_B:
            work = np.array([work.sum(axis=0), [0.0] * stages])
        taken_s, held = run(lines, stages, uneven)
        assert taken_s <= line.seconds(work.max(axis=1)) * (1 + 1e-12)
        assert all(most <= limit for most, limit in zip(held, line.in_flight[::-1], strict=True))

        even = {kind: [rng.randint(1, 9) / 4] * stages for kind in "FB"}
        work = [even["F"][0], even["B"][0], 0.0]
        work = [sum(work), 0.0] if schedule is Schedule.ONE_F_ONE_B else work
        assert run(lines, stages, even)[0] == pytest.approx(line.seconds(np.array(work)), rel=1e-12)


def test_many_microbatches_fill_every_stage_as_the_closed_form_says():
    for virtual, groups in ((2, 3), (3, 2), (4, 4)):
        problem = replace(
            random_problem(random.Random(0)), schedule=Schedule.INTERLEAVED, virtual_stages=virtual
        )
        stages, microbatches = virtual * groups, 6 * groups
        held = run(
            orders(Schedule.INTERLEAVED, stages, virtual, microbatches),
            stages,
            {"F": [1.0] * stages, "B": [1.0] * stages},
        )[1]
        assert held == pipeline(problem, microbatches, stages).in_flight[::-1].tolist()


def zero_bubble(schedule, microbatches, depth, work):
    problem = replace(random_problem(random.Random(0)), schedule=schedule)
    return pipeline(problem, microbatches, depth).seconds(np.array([*work, 0.5]))


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_zero_bubble_has_the_published_bubbles(depth):
    forward, backward, late = 3.0, 4.0, 2.0
    busy = 20 * (forward + backward + late) + 0.5
    published = {
        Schedule.ZB_H1: (depth - 1) * (forward + backward - late),
        Schedule.ZB_H2: (depth - 1) * (forward + backward - 2 * late),
    }
    for schedule, bubble in published.items():
        assert zero_bubble(schedule, 20, depth, (forward, backward, late)) == pytest.approx(busy + bubble)
        # No bubble is negative, and a single microbatch runs through all stages in turn.
        assert zero_bubble(schedule, 20, depth, (1.0, 1.0, 9.0)) == pytest.approx(20 * 11.0 + 0.5)
        alone = depth * (forward + backward) + late + 0.5
        assert zero_bubble(schedule, 1, depth, (forward, backward, late)) == pytest.approx(alone)


def test_more_work_of_any_kind_never_ends_a_batch_earlier():
    rng = random.Random(3)
    for schedule in Schedule:
        for _ in range(50):
            virtual = 2 if schedule is Schedule.INTERLEAVED else 1
            problem = replace(random_problem(rng), schedule=schedule, virtual_stages=virtual)
            line = pipeline(problem, rng.randint(1, 12), virtual * rng.randint(1, 6))
            work = np.array([rng.uniform(0, 5) for _ in range(line.weights.shape[1])])
            more = work + np.array([rng.choice([0.0, 1.0]) for _ in work])
            assert line.seconds(more) >= line.seconds(work) + line.least_weight @ (more - work) - 1e-9
            assert (np.diff(line.in_flight) >= 0).all()
