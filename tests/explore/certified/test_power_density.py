"""The budget of power over silicon, through the candidates of a search."""

import numpy as np
import pytest

from phaze.errors import InfeasibleError
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import parse_space

SPACE = parse_space(
    """
schema_version: 1
name: small
axes:
  - {fields: [tensor_cores], powers_of_two: [1, 16]}
  - {fields: [global_buffer_bytes], powers_of_two: [32MiB, 128MiB]}
""",
    "small.yaml",
)


def test_a_limit_on_power_density_keeps_the_cooler_designs():
    table = SPACE.table()
    density = 1.2 * tdp_w(table) / area_mm2(table)
    limit = float(np.median(density))
    block = Candidates(SPACE, Budgets(power_density_w_per_mm2=limit, tdp_margin=1.2)).all()
    np.testing.assert_array_equal(block.numbers, np.flatnonzero(density <= limit))


def test_the_smallest_power_density_is_named_with_the_other_budgets_held():
    table = SPACE.table()
    power, area = tdp_w(table), area_mm2(table)
    smallest = (power / area).min()
    with pytest.raises(InfeasibleError) as caught:
        Candidates(SPACE, Budgets(power_density_w_per_mm2=0.9 * smallest)).all()
    (short,) = caught.value.shortfalls
    assert (short.what, short.demand, short.unit) == ("power density", smallest, "W/mm2")
    largest = float(np.sort(area)[2])
    budgets = Budgets(area_mm2=largest, power_density_w_per_mm2=1.001 * smallest)
    with pytest.raises(InfeasibleError) as caught:
        Candidates(SPACE, budgets).all()
    by_name = {short.what: short.demand for short in caught.value.shortfalls}
    assert by_name == {
        "area": area[power / area <= 1.001 * smallest].min(),
        "power density": (power / area)[area <= largest].min(),
    }


def test_the_clock_falls_until_the_power_density_holds():
    limit = 0.8 * float((tdp_w(SPACE.table()) / area_mm2(SPACE.table())).min())
    block = Candidates(SPACE, Budgets(power_density_w_per_mm2=limit, dvfs=True)).all()
    assert len(block)
    assert (block.tdp_w / block.area_mm2 <= limit).all()
    assert (block.table["clock_hz"] < SPACE.base.value("clock_hz")).all()
