"""Two designs for the stages of a pipeline: against every pipeline of every pair, and against bounds."""

from __future__ import annotations

import numpy as np
import pytest
from mixed_cases import every_pipeline
from phaze.solvers.placement.mixed import Goal

from phaze.explore.answers.main_job import explore
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.strategies.pairs.pair_frontier import (
    ConfigBounds,
    PairFrontier,
    distinct_rows,
    undominated,
)
from phaze.explore.strategies.pairs.pair_search import PairSearch, deep_task
from phaze.hardware.spaces.space_file import parse_space
from phaze.parallel.plan_batches.cut_pipelines import GroupTimes
from phaze.parallel.plan_choices import load_plans
from phaze.parallel.plan_search.mixed_pipelines import Architectures, mixed_pipelines
from phaze.scheduling.passes import SolveLimits

THREE = """
schema_version: 1
name: three
axes:
  - {fields: [tensor_cores], values: [1, 2]}
  - {fields: [vector_core_alus], values: [256, 1024]}
where: ["tensor_cores * vector_core_alus <= 1024"]
"""  # three chips: small, with much for products, with much for vectors

PLANS = """
schema_version: 1
name: deep
source: a test
microbatches: [2]
tensor: [1]
chunks: [1]
zero: [1]
orders: [tensor-context-data-pipeline]
schedules: [1f1b]
pipeline: [2, 3]
"""
LIMITS = SolveLimits(lambda: 600.0)


@pytest.fixture(scope="module")
def task(tiny, network, tmp_path_factory):
    file = tmp_path_factory.mktemp("plans") / "deep.yaml"
    file.write_text(PLANS)
    return deep_task(Task(tiny, 3, network, plans=load_plans(file)))


@pytest.fixture(scope="module")
def block():
    return Candidates(parse_space(THREE, "three.yaml"), Budgets()).all()


@pytest.fixture(scope="module")
def evaluator(task, block):
    return Evaluator(task, block.table)


@pytest.fixture(scope="module")
def every(evaluator, block):
    """Seconds of every pipeline of at most two designs, by config."""
    found = {}
    for config in evaluator.configs:
        pipelines = every_pipeline(evaluator, block, config, most=2, any_cut=False)
        found[config] = [(plan, seconds) for plan, seconds, _ in pipelines]
    return found


def best_pair(evaluator, block, below_s=np.inf, gap=0.0):
    search = PairSearch(evaluator, block, below_s, Clock(600.0), SilentProgress(), gap)
    return search.best(), search.tally


def test_the_best_pair_is_that_of_all_pipelines(evaluator, block, every):
    found, tally = best_pair(evaluator, block)
    least = min(seconds for some in every.values() for _, seconds in some)
    assert found.seconds <= least * (1 + 1e-9)  # a cut of its own may be better
    assert found.bound_s == pytest.approx(found.seconds, rel=1e-9)
    assert len(set(found.plan.numbers)) == 2
    assert found.plan.planned.iteration.iteration_s == pytest.approx(found.seconds, rel=1e-9)
    assert tally.searched >= 1


def test_a_better_time_that_is_known_is_not_beaten(evaluator, block, every):
    least, _ = best_pair(evaluator, block)
    found, _ = best_pair(evaluator, block, least.seconds)
    assert (found.plan, found.seconds) == (None, least.seconds)
    assert found.bound_s >= least.seconds * (1 - 1e-9)
    coarse, tally = best_pair(evaluator, block, least.seconds * 1.5, gap=2.0)
    assert coarse.bound_s >= least.seconds / 2.01  # whoever allows gaps may get them
    assert tally.searched <= 1


def test_no_pipeline_is_faster_than_bounds_of_its_designs(evaluator, block, every):
    rows = np.arange(len(block))
    for config, some in every.items():
        bounds = ConfigBounds(evaluator, config)
        least = bounds.least_s()
        frontier = PairFrontier.of(bounds, np.inf)
        whole = bounds.seconds(frontier.figures.lower.min(axis=0)[None], np.inf)[0]
        assert 0 < least <= whole * (1 + 1e-12)
        assert whole <= min((seconds for _, seconds in some), default=np.inf)
        while not frontier.ready:
            frontier.step(LIMITS)
            assert frontier.bound_s <= min((seconds for _, seconds in some), default=np.inf)
        assert set(frontier.pairs.ravel().tolist()) <= set(rows.tolist())


def test_devices_of_two_designs_are_chosen_exhaustively(evaluator, block, task):
    (config, *_) = evaluator.configs
    rows, options = np.array([1, 2]), evaluator.options(config)
    times = evaluator.times(config, rows, evaluator.timed(config).exact(rows, LIMITS)[1])
    held = evaluator.capacity_bytes[rows], evaluator.link_bytes_per_s[rows]
    chips = Architectures(times, *held, block.tdp_w[rows])
    twice = GroupTimes(np.stack([times.rows[0], 2 * times.rows[0]]), times.optimizer_s[[0, 0]])
    slower = Architectures(twice, *(some[[0, 0]] for some in held), block.tdp_w[rows[[0, 0]]])
    for depth in options.depths:
        for plan in options.plans(depth):
            for one in mixed_pipelines(options, plan, chips):
                all_ = np.array(np.meshgrid(*[[0, 1]] * len(one.first))).T.reshape(-1, len(one.first))
                fits = one.able[all_, np.arange(len(one.first))].all(axis=1)
                if not fits.any():
                    continue
                seconds = one.iteration_s(all_[fits])
                assert one.is_exhaustive(Goal.TIME)
                assert one.iteration_s(one.choices(Goal.TIME)).min() == pytest.approx(
                    seconds.min(), rel=1e-12
                )
                assert one.least_s() <= seconds.min()
            for one in mixed_pipelines(options, plan, slower):
                assert one.choices(Goal.TIME).tolist() == [[0] * len(one.first)]


def test_rows_are_told_apart_and_dominated_as_by_definition():
    values = np.random.default_rng(1).integers(0, 4, (60, 3)).astype(float)
    first, which = distinct_rows(values)
    assert (values[first][which] == values).all()
    assert len(np.unique(values[first], axis=0)) == len(first)
    some = values[first]
    kept = {
        k for k, one in enumerate(some) if not ((some <= one).all(axis=1) & (some < one).any(axis=1)).any()
    }
    assert set(undominated(some).tolist()) == kept


def test_what_a_second_design_buys_is_told(task, network):
    space = parse_space(THREE, "three.yaml")
    answer = explore(ExploreRequest(task, space, two_designs=True))
    told = answer.document.two_designs
    common = answer.document.certificate.objective_value
    assert told.optimal
    assert told.gain == pytest.approx(told.throughput_samples_per_s / common - 1)
    if told.pipeline is not None:
        assert told.gain > 0
        assert sum(design.stages for design in told.designs) == told.pipeline.plan.pipeline_parallel
        assert sum(design.devices for design in told.designs) <= task.devices
    one = explore(ExploreRequest(task, space)).document
    assert (one.two_designs, one.best) == (None, answer.document.best)
