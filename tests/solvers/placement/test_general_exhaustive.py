"""The general placement solver against trying every plan."""

import random
from dataclasses import replace

import pytest
from general_cases import PLAIN, agrees, exhaustive, random_problem
from phaze.solvers.placement.general import place_general
from phaze.solvers.placement.general.general_problem import PHAZE, Recompute, Reduced, Schedule, Transfers

BOTH = tuple(Recompute)
CASES = {
    "gpipe": {"schedule": Schedule.GPIPE},
    "1f1b": {"schedule": Schedule.ONE_F_ONE_B},
    "interleaved": {"layers": (2, 4), "schedule": Schedule.INTERLEAVED, "virtual_stages": 2},
    "interleaved-3": {
        "layers": (3, 4),
        "schedule": Schedule.INTERLEAVED,
        "virtual_stages": 3,
        "shape": "any",
    },
    "zb-h1": {"schedule": Schedule.ZB_H1},
    "zb-h2": {"schedule": Schedule.ZB_H2, "shape": "any"},
    "recompute": {"recompute": BOTH},
    "recompute always": {"recompute": (Recompute.FULL,), "shape": "any", "layers": (3, 4)},
    "recompute with gpipe": {"recompute": BOTH, "schedule": Schedule.GPIPE, "shape": "any"},
    "widths": {"widths": (1, 2)},
    "one width": {"widths": (1, 2, 3), "uniform_width": True},
    "zero": {"zero": (0, 1, 2, 3), "layers": (1, 3)},
    "zero in zero-bubble": {"zero": (0, 2, 3), "layers": (1, 3), "schedule": Schedule.ZB_H1},
    "two device types": {"types": 2},
    "three device types": {"types": 3, "layers": (1, 3), "shape": "any"},
    "hidden": {"conventions": replace(PLAIN, transfers=Transfers.HIDDEN), "shape": "any"},
    "overlapped": {
        "conventions": replace(PLAIN, transfers=Transfers.OVERLAPPED),
        "shape": "any",
        "recompute": BOTH,
    },
    "first": {"conventions": replace(PLAIN, reduced=Reduced.FIRST), "shape": "any"},
    "uncapped": {"conventions": replace(PLAIN, in_flight_capped=False, reduction_factor=4.0)},
    "graphs": {"shape": "any", "layers": (4, 6)},
}
EVERYTHING = {"shape": "any", "layers": (1, 3), "widths": (1, 2), "types": 2, "zero": (0, 3)}
TOGETHER = {
    "1f1b": {"recompute": BOTH, "conventions": PHAZE},
    "gpipe": {"recompute": BOTH, "schedule": Schedule.GPIPE},
    "interleaved": {
        "recompute": BOTH,
        "schedule": Schedule.INTERLEAVED,
        "virtual_stages": 2,
        "layers": (2, 3),
        "conventions": replace(PLAIN, transfers=Transfers.OVERLAPPED),
    },
    "zb-h1": {"schedule": Schedule.ZB_H1},
    "zb-h2": {"schedule": Schedule.ZB_H2, "conventions": replace(PLAIN, transfers=Transfers.OVERLAPPED)},
}


def compare(seed, problems, choices):
    rng = random.Random(seed)
    answers = 0
    for _ in range(problems):
        problem = random_problem(rng, **choices)
        expected, result = exhaustive(problem), place_general(problem)
        assert agrees(result, expected), (problem, expected, result)
        answers += expected is not None
    assert answers > problems // 3


@pytest.mark.parametrize("name", CASES)
def test_equal_to_exhaustive_search(name):
    compare(name, 25, CASES[name])


@pytest.mark.parametrize("name", TOGETHER)
def test_equal_to_exhaustive_search_with_all_choices_together(name):
    compare(name, 4, {**EVERYTHING, **TOGETHER[name]})
