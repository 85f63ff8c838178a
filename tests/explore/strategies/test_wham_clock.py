"""The clock in WHAM's search: the highest that the budgets leave each number of cores, then what is best of all."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Oracle
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, Objective, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.explore.strategies.wham.core_latencies import core_grids
from phaze.explore.strategies.wham.wham_axes import SearchAxes
from phaze.explore.strategies.wham.wham_reporting import tell_axes
from phaze.explore.strategies.wham.wham_search import WhamSearch
from phaze.explore.strategies.wham.wham_target import WhamTarget
from phaze.hardware.spaces.space_file import parse_space

SPACE = """
schema_version: 1
name: clocks
axes:
  - {fields: [tensor_cores], values: [1, 4, 16]}
  - {fields: [vector_cores], values: [2, 8]}
  - {fields: [clock_hz], values: [500MHz, 1.3GHz, 0.9GHz]}
  - {fields: [global_buffer_bytes_per_cycle], values: [4096, 1024, 2048]}
"""
OTHERS = ("tensor_cores", "vector_cores", "global_buffer_bytes_per_cycle")
HIGHEST_FIRST = (1.3e9, 0.9e9, 0.5e9)


@pytest.fixture(scope="module")
def candidates():
    return Candidates(parse_space(SPACE, "clocks.yaml"), Budgets(power_w=250.0))


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 4, network, held={"microbatches": (2,)})


def test_every_number_of_cores_has_the_highest_clock_within_the_budgets(candidates, task):
    axes = SearchAxes(candidates)
    (clock,) = axes.clocked
    assert clock not in {*axes.halved, *axes.enumerated, *axes.followed}
    assert {report.treatment for report in tell_axes(axes)} == {
        "cores",
        "follows the arrays",
        "follows the budgets",
    }
    within = candidates.all()
    evaluator = Evaluator(task, within.table)
    config = evaluator.configs[0]
    (grid,) = core_grids(axes, evaluator, config, [{}])
    chosen = candidates.table(grid.numbers[grid.fits])
    assert len(set(chosen["clock_hz"].tolist())) > 1
    for row in range(len(chosen)):
        alike = np.logical_and.reduce([within.table[name] == chosen[name][row] for name in OTHERS])
        assert chosen["clock_hz"][row] == within.table["clock_hz"][alike].max()
    (slower,) = core_grids(axes, evaluator, config, [{clock: 0}])
    assert set(candidates.table(slower.numbers.ravel())["clock_hz"].tolist()) == {0.5e9}
    table = axes.tables(axes.grid_numbers({}).ravel())
    assert tuple(dict.fromkeys(table["clock_hz"].tolist())) == HIGHEST_FIRST


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.THROUGHPUT_PER_TDP])
def test_finds_the_best_clock_of_all(candidates, task, objective):
    target = WhamTarget(objective)
    oracle = Oracle(candidates, [task], target.merit, Clock(60.0))
    _, told = WhamSearch(target=target).search(oracle, SearchBudget(1000), 0, SilentProgress())
    best = max(oracle.evaluate(candidates.all().numbers), key=lambda found: found.value)
    assert told.one.value == pytest.approx(best.value, rel=1e-9)
