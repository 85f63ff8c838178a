"""Which certificates say that all designs have one clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phaze.explore.answers.searched_question import question_scope
from phaze.explore.request.explore_request import Budgets, ExploreRequest, PowerMeans, Task
from phaze.hardware.spaces.space_file import load_space

WATTS = Budgets(power_w=300.0)


@pytest.fixture
def request_(tiny, network):
    return ExploreRequest(Task(tiny, 4, network), load_space("one-clock"), WATTS)


def clocks(request):
    return [line for line in question_scope(request) if "clock" in line]


def test_one_clock_is_told(request_):
    assert clocks(request_) == [
        "every design at one clock, 1.05 GHz (the space `default` varies it, and its voltage)"
    ]
    faster = replace(request_, space=request_.space.fixed(clock_hz=0.94e9))
    assert "one clock, 0.94 GHz" in clocks(faster)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"space": load_space("default")},
        {"budgets": Budgets(area_mm2=600.0)},
        {"budgets": replace(WATTS, dvfs=True)},
        {"budgets": replace(WATTS, power_means=PowerMeans.SUSTAINED)},
    ],
    ids=["an axis", "no watts", "lowered to the budget", "sustained"],
)
def test_it_is_not_where_clocks_follow(request_, change):
    assert clocks(replace(request_, **change)) == []
