"""The survey of a space shows every combination of hardware that costs depend on."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.hardware_factors import factor_table
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.spaces.space_file import load_space


@pytest.fixture(params=["default", "phaze"])
def candidates(request):
    return Candidates(load_space(request.param), Budgets())


def test_costs_worked_out_for_it_serve_all_candidates(candidates):
    known = factor_table(candidates.survey(), Fidelity.ANALYTIC)
    for start in range(3):
        assert known.on(candidates.table(np.arange(start, candidates.size, 3))) is not None


def test_every_value_of_every_field_is_met(candidates):
    few, whole = candidates.survey(1 << 12), candidates.table(range(candidates.size))
    assert len(few) <= 1 << 12
    for field in candidates.varied:
        assert set(np.unique(few[field])) == set(np.unique(whole[field]))
