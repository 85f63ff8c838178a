"""Temperature of the junction: against small steps, monotone, and what clocks and candidates of a search make of it."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.errors import InfeasibleError
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.budgets import Limit, weigh
from phaze.hardware.hardware_fields import code
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.dvfs import fit_clock
from phaze.hardware.silicon.heat import heat_share, junction_c, leakage_growth, uncooled
from phaze.hardware.silicon.package_power import (
    cooling_share,
    power_parts_w,
    steady_and_leakage_w,
    tdp_w,
)
from phaze.hardware.spaces.space_file import parse_space

SPACE = parse_space(
    """
schema_version: 1
name: cooled
axes:
  - {fields: [tensor_cores], powers_of_two: [16, 64]}
  - {fields: [cooling], values: [unlimited, air, liquid]}
  - {fields: [clock_hz], values: [600MHz, 1.3GHz, 2.6GHz]}
""",
    "cooled.yaml",
)
NAMES = ("h100", "tpuv4", "a100-80gb", "l4", "gb200")


def cooled(kind: str):
    """Some chips with a cooling."""
    return to_table([load_architecture(name).replace(name, cooling=kind) for name in NAMES])


def settled(coolant: float, per_w: float, steady: float, leakage: float) -> float:
    """Least temperature that satisfies the law, by steps of 1/100 K from the coolant's and no Newton's method."""
    c = constants()
    t = coolant + per_w * steady + np.arange(0.0, 400.0, 1e-2)
    heat = steady + leakage * np.exp(c["leakage_growth_per_k"] * (t - c["leakage_reference_c"]))
    over = np.flatnonzero(coolant + per_w * heat <= t)
    return float(t[over[0]]) if len(over) else np.inf


@pytest.mark.parametrize("kind", ["air", "liquid"])
def test_the_junction_settles_where_heat_and_leakage_meet_or_never(kind):
    rng = np.random.default_rng(0)
    table = cooled(kind)
    row = constants().tables["cooling"].rows[kind]
    for _ in range(8):
        area, steady, leakage = (rng.uniform(*r, len(table)) for r in ((50, 900), (10, 900), (5, 400)))
        found = junction_c(table, area, steady, leakage)
        expected = [
            settled(row["coolant_c"], row["resistance_mm2_k_per_w"] / a, s, w)
            for a, s, w in zip(area, steady, leakage, strict=True)
        ]
        near = np.minimum(found, 400.0)
        assert near == pytest.approx(np.minimum(expected, 400.0), abs=2e-2)
        share = heat_share(table, area, steady, leakage)
        limit = constants()["junction_limit_c"]
        assert (found[share <= 1.0] <= limit).all()  # what its cooling carries settles below the limit


def test_more_heat_is_hotter_and_leaks_more():
    table = cooled("air")
    area, (steady, leakage) = area_mm2(table), steady_and_leakage_w(table)
    calm = leakage_growth(table, area, steady, leakage)
    for other in (
        (area, 1.1 * steady, leakage),
        (area, steady, 1.1 * leakage),
        (0.9 * area, steady, leakage),
    ):
        assert (leakage_growth(table, *other) >= calm).all()
        assert (heat_share(table, *other) > heat_share(table, area, steady, leakage)).all()


def test_full_load_counts_the_leakage_of_its_own_temperature():
    table = cooled("air")
    steady, leakage = steady_and_leakage_w(table)
    growth = leakage_growth(table, area_mm2(table), steady, leakage)
    assert tdp_w(table) == pytest.approx(steady + leakage * growth)
    assert power_parts_w(table)["leakage"] == pytest.approx(leakage * growth)
    assert tdp_w(uncooled(table)) == pytest.approx(steady + leakage)  # at the reference temperature, as ever
    assert growth[NAMES.index("a100-80gb")] < 1.0  # 0.45 W/mm2 leave a junction well below 85 C


def test_the_clock_falls_until_the_cooling_carries_the_heat():
    table = cooled("air")
    found = fit_clock(table, 5000.0)
    at = table.replace(clock_hz=found)
    assert (cooling_share(at) <= 1.0).all()
    hot = cooling_share(table.replace(clock_hz=fit_clock(uncooled(table), 5000.0))) > 1.0
    assert hot.any()
    assert (cooling_share(at)[hot] > 1.0 - 1e-6).all()  # not lower than it has to be
    limits = np.array([200.0, 300.0, 500.0, 5000.0])
    clocks = np.array([fit_clock(cooled("liquid"), limit) for limit in limits])
    powers = np.array([tdp_w(cooled("liquid").replace(clock_hz=np.nan_to_num(c, nan=1e8))) for c in clocks])
    assert (np.diff(np.nan_to_num(clocks), axis=0) >= 0).all()  # a larger budget is never slower
    assert (powers <= limits[:, None])[np.isfinite(clocks)].all()


def test_candidates_of_a_search_are_those_whose_heat_is_carried():
    table = SPACE.table()
    over = weigh(table).over[Limit.HEAT]
    air, free = (table["cooling"] == code("cooling", kind) for kind in ("air", "unlimited"))
    steady, leakage = steady_and_leakage_w(table)
    hot = steady + leakage * np.exp(constants()["leakage_growth_per_k"] * 10)
    assert over[air].tolist() == (hot * 60 / area_mm2(table) > 60)[air].tolist()
    assert not over[free].any()
    block = Candidates(SPACE, Budgets(power_w=1e9)).all()
    kept = block.numbers.tolist()
    assert set(kept) == set(np.flatnonzero(~over).tolist()) - set(np.flatnonzero(_unbuilt(table)).tolist())
    assert 0 < over.sum() < len(table)


def _unbuilt(table):
    masks = weigh(table).over
    return masks[Limit.RETICLE] | masks[Limit.SHORELINE]


def test_a_space_that_nothing_cools_says_so():
    hot = parse_space(
        """
schema_version: 1
name: hot
axes:
  - {fields: [tensor_cores], values: [64]}
  - {fields: [cooling], values: [air]}
  - {fields: [clock_hz], values: [3GHz]}
""",
        "hot.yaml",
    )
    with pytest.raises(InfeasibleError, match="cooling"):
        Candidates(hot, Budgets(power_w=1e9)).all()
