"""The survey of a space shows every combination of hardware that costs depend on."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.hardware_factors import factor_table
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.architecture_naming import decoded
from phaze.hardware.spaces.space_file import load_space


@pytest.fixture(params=["one-clock", "phaze"])
def candidates(request):
    return Candidates(load_space(request.param), Budgets())


def test_costs_worked_out_for_it_serve_all_candidates(candidates):
    known = factor_table(candidates.survey(), Fidelity.ANALYTIC)
    for start in range(3):
        assert known.on(candidates.table(np.arange(start, candidates.size, 3))) is not None


@pytest.mark.parametrize("name", ["default", "phaze"])
def test_every_value_of_every_field_is_met(name):
    space = load_space(name)
    few = Candidates(space, Budgets()).survey(1 << 12)
    assert len(few) <= 1 << 12
    for axis in space.axes:
        offered = [dict(zip(axis.fields, option, strict=True)) for option in axis.options]
        for field in axis.fields:
            assert set(decoded(few, field)) == {option[field] for option in offered}
    assert set(few["hbm_capacity_bytes"].tolist()) >= set(space.hbm_capacities_bytes)
