"""The certified search gives the same answer however the space is cut into blocks and spread over threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from small_cases import certified

from phaze.cost.cost_model import CostModel
from phaze.explore.certified import block_screening
from phaze.explore.certified.block_screening import Screen
from phaze.explore.certified.search_points import WorkloadPoints
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import Clock
from phaze.hardware.spaces.space_file import load_space
from phaze.scheduling.passes import SolveLimits

MEMORY = """
schema_version: 1
name: sizes
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [vector_core_alus], values: [64, 1024]}
  - {fields: [global_buffer_bytes], values: [16MiB, 64MiB]}
hbm_capacities: [1MiB, 4MiB, 32GiB]
"""
BUDGETS = {
    "power": Budgets(power_w=300.0),
    "area": Budgets(power_w=250.0, area_mm2=250.0),
    "dvfs": Budgets(power_w=140.0, dvfs=True),
}


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 16, network, held={"microbatches": (2,)})


@pytest.fixture(scope="module")
def spaces(tmp_path_factory, small_space):
    path = tmp_path_factory.mktemp("spaces") / "sizes.yaml"
    path.write_text(MEMORY)
    return {"small": small_space, "sizes": load_space(path)}


@pytest.fixture(scope="module")
def candidates(small_space):
    return Candidates(small_space, BUDGETS["power"])


@pytest.fixture(scope="module")
def whole(task, candidates):
    """Everything at once."""
    return search(task, candidates)


def search(task, candidates, **options):
    return certified(candidates, task, **options)


def frontier(outcome):
    steps = outcome.frontier
    return list(zip(steps.tdp_w, steps.throughput, steps.keys, strict=True))


def check_counts(outcome, candidates):
    assert outcome.finished
    assert sum(outcome.pruned_by.values()) + len(outcome.evaluated) == outcome.in_budget * outcome.configs
    assert outcome.in_budget == sum(len(block) for block in candidates.blocks(64))


@pytest.mark.parametrize("budgets", BUDGETS)
@pytest.mark.parametrize("name", ["small", "sizes"])
def test_tiny_blocks_and_a_tiny_pool_give_the_frontier_of_all_at_once(task, spaces, name, budgets):
    candidates = Candidates(spaces[name], BUDGETS[budgets])
    whole = search(task, candidates)
    streamed = search(task, candidates, block=7, cap=5)
    assert frontier(streamed) == frontier(whole)
    assert len(frontier(whole)) >= 3
    for outcome in (whole, streamed):
        check_counts(outcome, candidates)


def test_the_number_of_threads_changes_nothing(task, candidates):
    one, two = (search(task, candidates, threads=threads, block=16) for threads in (1, 2))
    assert one.evaluated == two.evaluated
    assert one.pruned_by == two.pruned_by
    assert frontier(one) == frontier(two)


class HalfOver(Clock):
    """A clock with half of its time gone, which ends so many looks at points after the last block."""

    half_over = True
    left_looks = math.inf

    @property
    def over(self):
        return self.left_looks <= 0


@pytest.mark.parametrize("cap", [5, 1 << 18])
def test_time_that_is_short_changes_the_order_alone(task, candidates, whole, cap):
    found = search(task, candidates, clock=HalfOver(600.0), block=16, cap=cap)
    assert frontier(found) == frontier(whole)
    check_counts(found, candidates)


def test_where_time_is_short_all_is_bounded_and_what_leads_comes_first(task, candidates, whole, monkeypatch):
    """The gap is then that of bounds, not of points that were never looked at, and the best design is proven first."""
    clock, events, run, look = HalfOver(600.0), [], Screen.run, WorkloadPoints.look

    def looked(self, points, relevance, effort):
        events.append(float(points.bound.min()))
        found = look(self, points, relevance, effort)
        if "bounded" in events[-2:]:
            clock.left_looks = 2
        clock.left_looks -= 1
        return found

    monkeypatch.setattr(Screen, "run", lambda self, *given: events.append("bounded") or run(self, *given))
    monkeypatch.setattr(WorkloadPoints, "look", looked)
    stopped = search(task, candidates, clock=clock, block=16)
    bounded = [at for at, event in enumerate(events) if event == "bounded"]
    assert len(bounded) > 2
    assert all(event == "bounded" for event in events[bounded[0] : bounded[-1]])
    assert not stopped.finished
    assert whole.most_reached <= stopped.most < 2 * whole.most_reached


class OverAfterBlocks(HalfOver):
    """A clock with half of its time gone, and all of it where so many blocks were bounded."""

    blocks = 2


def test_what_there_was_no_time_to_bound_stays_below_what_memory_and_links_allow(
    task, candidates, monkeypatch
):
    """Not below FLOPs at peak alone, which says next to nothing of models that wait for something else."""
    clock, run = OverAfterBlocks(600.0), Screen.run

    def screened(self, *given):
        found = run(self, *given)
        clock.blocks -= 1
        clock.left_looks = math.inf if clock.blocks > 0 else 0
        return found

    monkeypatch.setattr(Screen, "run", screened)
    evaluator = Evaluator(task, candidates.survey())
    batch = task.cluster.global_batch
    most = batch / min(map(evaluator.least_s, evaluator.configs))
    roof = batch / min(evaluator.roofline_s(config).min() for config in evaluator.configs)
    stopped = search(task, candidates, clock=clock, block=16)
    assert stopped.pruned_by["open"] > 0
    assert stopped.most <= most * (1 + 1e-9) < roof
    monkeypatch.setattr(Evaluator, "known_least_s", lambda self, which, table=None: 0.0)
    clock.blocks, clock.left_looks = 2, math.inf
    assert search(task, candidates, clock=clock, block=16).most > most


def test_exchanges_change_nothing_but_what_points_are_ruled_out_by(task, candidates, whole, monkeypatch):
    monkeypatch.setattr(block_screening, "FAR", 1e-9)
    monkeypatch.setattr(block_screening, "MANY_FAR", 1)
    found = search(task, candidates, block=16)
    assert found.pruned_by["exchanges"] > 0 == whole.pruned_by.get("exchanges", 0)
    assert frontier(found) == frontier(whole)
    assert found.pruned_by.get("memory") == whole.pruned_by.get("memory")


def test_blocks_that_are_bounded_together_change_nothing(task, candidates, monkeypatch):
    runs = []
    run = Screen.run
    monkeypatch.setattr(Screen, "run", lambda self, *given: runs.append(1) or run(self, *given))
    together = search(task, candidates, block=16, threads=1)
    few, apart = len(runs), "phaze.explore.certified.certified_search.merged_numbers"
    monkeypatch.setattr(apart, list)
    alone = search(task, candidates, block=16, threads=1)
    assert few < (len(runs) - few) / 2
    assert alone.evaluated == together.evaluated
    assert alone.pruned_by == together.pruned_by
    assert frontier(alone) == frontier(together)


def test_collectives_are_costed_once_however_many_blocks_are_bounded(task, candidates, monkeypatch):
    asked = []
    links_s = CostModel.links_s
    monkeypatch.setattr(CostModel, "links_s", lambda self, links: asked.append(1) or links_s(self, links))
    counts = []
    for block in (16, 64):
        asked.clear()
        search(task, candidates, block=block)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_below_the_floor_nothing_is_looked_for(task, candidates, whole):
    floor = whole.frontier.throughput[len(whole.frontier) // 2]
    found = search(task, candidates, least=floor)
    assert [s for s in frontier(found) if s[1] >= floor] == [s for s in frontier(whole) if s[1] >= floor]
    assert len(found.evaluated) < len(whole.evaluated)
    check_counts(found, candidates)


def test_more_columns_find_more_points(task, candidates):
    """With the area beside the power every point of the frontier of power alone is found, and others."""
    by_area = search(task, candidates, axes="throughput,area")
    for point in by_area.members:
        one = by_area.evaluated[point]
        assert one.others == (one.area_mm2,)
    both = search(task, candidates, axes="throughput,tdp,area")
    for alone in (by_area, search(task, candidates)):
        assert {one for one, _ in alone.members} <= {one for one, _ in both.members}
    assert len(both.members) > len(by_area.members)
    check_counts(by_area, candidates)
    check_counts(both, candidates)


def test_each_bound_is_at_most_the_next_and_the_exact_time(task, small_space):
    candidates = Candidates(small_space, Budgets())
    evaluator = Evaluator(task, candidates.table(np.arange(96)))
    rows = np.arange(0, 96, 5)
    for setting in evaluator.configs:
        work = evaluator.work_bound(setting, rows)
        path = evaluator.iteration_bound(setting, rows)
        exact = evaluator.exact(setting, rows, np.full(len(rows), np.inf), SolveLimits(lambda: 60.0)).lower_s
        assert (work <= path * (1 + 1e-12)).all()
        assert (path <= exact * (1 + 1e-11)).all()
        np.testing.assert_array_equal(np.isinf(work), np.isinf(path))


@pytest.mark.parametrize("known", [True, False])
def test_an_evaluator_on_other_architectures_equals_a_fresh_one(task, small_space, known):
    candidates = Candidates(small_space, Budgets())
    table = candidates.table(np.arange(96))
    base, part = Evaluator(task, table), table.take(np.arange(95, 2, -9))
    if not known:
        part = part.replace(tensor_core_rows=np.where(part["tensor_core_rows"] == 64, 32, 256))
    shared, fresh = base.on(part), Evaluator(task, part)
    assert (shared.base is base) == known
    rows, nothing = np.arange(len(part)), np.full(len(part), np.inf)
    for setting in base.configs[::2]:
        mine, other = (e.exact(setting, rows, nothing, SolveLimits(lambda: 60.0)) for e in (shared, fresh))
        for evaluator in (shared, fresh):  # which strategies tell most is seen on other architectures
            assert (evaluator.iteration_bound(setting, rows) <= mine.lower_s * (1 + 1e-11)).all()
        np.testing.assert_array_equal(mine.upper_s, other.upper_s)
