"""Clocks in questions and answers: which certificates say that there is one, what is lowered, what is a neighbour."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from phaze.errors import InputError
from phaze.explore.answers.main_job import check_combinations
from phaze.explore.answers.searched_question import question_scope
from phaze.explore.explaining.winner_neighbours import axis_steps
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


def test_lowered_clocks_begin_from_one(request_):
    lowered = replace(request_, budgets=replace(WATTS, dvfs=True))
    check_combinations(lowered)
    with pytest.raises(InputError, match=r"--dvfs lowers the clock .* space default varies it"):
        check_combinations(replace(lowered, space=load_space("default")))


def test_the_nominal_clock_has_no_neighbour_above_it(request_):
    space = load_space("default")
    (options,) = (axis.options for axis in space.axes if axis.fields == ("clock_hz",))

    def neighbours(number):
        winner = SimpleNamespace(
            architecture=space.architecture(number), request=replace(request_, space=space)
        )
        steps = [step for step in axis_steps(winner) if step.name == "clock_hz"]
        return [(step.direction, step.option, step.in_space) for step in steps]

    assert neighbours(len(options) - 1) == [("down", options[-2], True)]
    below, above = neighbours(0)
    assert (below[0], below[2]) == ("down", False)  # a lower clock is none of the space, but can be had
    assert above == ("up", options[1], True)
