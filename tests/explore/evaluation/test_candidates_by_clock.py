"""Candidates that differ in the clock alone: ruled out together where the lowest clock is already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phaze.explore.evaluation import design_candidates
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.budgets import weigh
from phaze.hardware.spaces.clock_steps import with_lower_clocks
from phaze.hardware.spaces.space_axis import Condition, Override
from phaze.hardware.spaces.space_file import load_space

SPACE = """
schema_version: 1
name: clocks
base: {base}
axes:
  - {{fields: [tensor_cores], powers_of_two: [1, 64]}}
  - {{fields: [clock_hz], values: [{clocks}]}}
  - {{fields: [vector_cores], powers_of_two: [1, 4]}}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""
LIMITS = [
    {"power_w": 250.0},
    {"power_w": 150.0, "tdp_margin": 1.2},
    {"power_w": 300.0, "power_density_w_per_mm2": 0.6},
    {"area_mm2": 300.0},
    {"power_w": 1e9},
]


@pytest.fixture(params=["800MHz, 500MHz, 1.2GHz", "1GHz, 600MHz"])
def space(request, tmp_path):
    path = tmp_path / "clocks.yaml"
    path.write_text(SPACE.format(base="tpuv4", clocks=request.param), encoding="utf-8")
    return load_space(path)


@pytest.mark.parametrize("limits", LIMITS)
def test_those_within_the_budgets_are_found_as_one_by_one(space, limits, monkeypatch):
    candidates = Candidates(space, Budgets(**limits))
    weighed, weigh = [], design_candidates.weigh

    def counted(table, *given):
        weighed.append(len(table))
        return weigh(table, *given)

    monkeypatch.setattr(design_candidates, "weigh", counted)
    numbers = np.arange(space.size)
    block = candidates.within(numbers)
    kept = weigh(space.table(), *candidates.budgets.limits).kept
    assert block.numbers.tolist() == numbers[kept].tolist()
    alone = [candidates.within(numbers[i : i + 1]) for i in numbers.tolist()]
    assert np.concatenate([one.tdp_w for one in alone]).tolist() == block.tdp_w.tolist()
    assert np.concatenate([one.area_mm2 for one in alone]).tolist() == block.area_mm2.tolist()
    # The lowest clock is looked at once for all of them, and what it rules out no more.
    assert weighed[0] == space.size / len(space.axes[1].options)
    assert (
        weighed[1] == np.isin(space.slowest(numbers), space.slowest(numbers)[_at_lowest(space, kept)]).sum()
    )


def _at_lowest(space, kept):
    numbers = np.arange(space.size)
    return (space.slowest(numbers) == numbers) & kept


def test_memory_sizes_are_told_apart(space):
    sizes = replace(space, hbm_capacities_bytes=(16e9, 32e9))
    candidates = Candidates(sizes, Budgets(power_w=250.0))
    found = candidates.within(range(candidates.size)).numbers
    alone = Candidates(space, Budgets(power_w=250.0)).within(range(space.size)).numbers
    assert found.tolist() == [2 * number + size for number in alone.tolist() for size in (0, 1)]


def test_the_slowest_differs_in_the_clock_alone(space):
    numbers = np.arange(space.size)
    table, slowest = space.table(), space.table(space.slowest(numbers))
    clocks = [hz for (hz,) in space.axes[1].options]
    assert set(slowest["clock_hz"].tolist()) == {min(clocks)}
    for name in table.columns:
        if name != "clock_hz":
            np.testing.assert_array_equal(table[name], slowest[name])


def test_a_space_without_clocks_with_conditions_or_what_follows_clocks_has_none(space):
    numbers = np.arange(4)
    like = (Condition("clock_hz", (space.axes[1].options[0][0],)),)
    figure = Override("hbm_bandwidth_bytes_per_s", 1e12, like, {})
    assert replace(space, overrides=(figure,)).slowest(numbers) is None
    assert replace(space, ties={"peak_clock_hz": "clock_hz"}).slowest(numbers) is None
    assert replace(space, axes=(space.axes[0], space.axes[2])).slowest(numbers) is None
    filtered = replace(space, pins=(Condition("vector_cores", (1,)),))
    assert filtered.is_filtered
    assert filtered.slowest(numbers) is None


@pytest.mark.parametrize("name", ["default", "precision", "few-bits"])
def test_no_budget_is_kept_at_a_higher_clock_and_missed_at_a_lower_one(name):
    """Limits of power, heat and density grow with the clock; others do not know it."""
    space = with_lower_clocks(load_space(name))
    rng = np.random.default_rng(3)
    numbers = rng.integers(space.size, size=4000)
    table, slowest = space.table(numbers), space.slowest(numbers)
    assert slowest is not None
    below = space.table(slowest)
    for limits in LIMITS:
        given = Budgets(**limits).limits
        kept, lower = (weigh(one, *given).kept for one in (table, below))
        assert not (kept & ~lower).any()
