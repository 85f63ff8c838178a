"""The linear relaxation of modes: never above the optimum, and a weighting that holds at every moment."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import Mode, Operator, ScheduleProblem, schedule
from phaze.solvers.scheduling.indexed_problem import index_problem
from phaze.solvers.scheduling.mode_relaxation import ModeProgram, ModeRows
from phaze.solvers.scheduling.schedule_bounds import lower_bounds
from schedule_oracle import problems

ROUNDING = 1e-9


@st.composite
def moldable(draw):
    """Operators on one or more of four cores of two units, beside a link, with a bandwidth to share."""
    operators = []
    for i in range(draw(st.integers(2, 6))):
        units = draw(st.sampled_from([("TC",), ("VC",), ("TC", "VC"), ("LINK",)]))
        alone = draw(st.sampled_from([1.0, 2.0, 3.0, 5.0]))
        draws = draw(st.sampled_from([0.0, 0.3, 0.6]))
        wide = () if units == ("LINK",) else (Mode(2, alone * 0.6, draws), Mode(None, alone * 0.3, draws))
        operators.append(Operator(f"o{i}", units, None, None, (Mode(1, alone, draws), *wide)))
    pairs = [(f"o{i}", f"o{j}") for j in range(len(operators)) for i in range(j)]
    edges = tuple(draw(st.lists(st.sampled_from(pairs), unique=True, max_size=4)))
    capacity = {"TC": 4, "VC": draw(st.sampled_from([2, 4])), "LINK": 1}
    return ScheduleProblem(tuple(operators), edges, capacity, False, frozenset({"LINK"}), 1.0)


def check(problem):
    best = schedule(problem)
    assert best.optimal
    ix, optimum = index_problem(problem), best.makespan_s
    upper = optimum * 1.1 + 1e-3
    bounds = lower_bounds(ix, upper)
    program = ModeProgram(ix, bounds, upper)
    mixed = program.mixed()
    assert mixed.lower_s <= optimum * (1 + ROUNDING)
    assert mixed.lower_s >= lower_bounds(ix, upper).work.sum(axis=1).max() * (1 - 1e-6)
    assert program.integral(200, 10.0).lower_s <= optimum * (1 + ROUNDING)
    assert lower_bounds(ix, upper, mixed.share[None]).lower_s <= optimum * (1 + ROUNDING)
    moments = sorted({*best.starts_s.values(), *best.ends_s.values()})
    chosen = [
        [m.position for m in ix.modes[i]].index(best.modes[op.id]) for i, op in enumerate(problem.operators)
    ]
    for now, then in pairwise(moments):
        runs = [
            i
            for i, op in enumerate(problem.operators)
            if best.starts_s[op.id] < then - ROUNDING and best.ends_s[op.id] > now + ROUNDING
        ]
        assert sum(mixed.share[i, chosen[i]] for i in runs) <= 1 + ROUNDING


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems(most=7))
def test_no_schedule_beats_the_relaxation(problem):
    check(problem)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(moldable())
def test_no_schedule_of_moldable_operators_beats_the_relaxation(problem):
    check(problem)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems(most=6), st.randoms(use_true_random=False))
def test_any_prices_give_a_valid_weighting(problem, rng):
    ix, optimum = index_problem(problem), schedule(problem).makespan_s
    make = ModeRows(ix, lower_bounds(ix, optimum * 2 + 1e-3), 1.0)
    rows = list(make.first())
    share = make.weighting(rows, np.array([rng.uniform(-1, 1) for _ in rows]))
    work = [min(value * share[i, m] for m, value in enumerate(row)) for i, row in enumerate(ix.latency)]
    assert sum(work) <= optimum * (1 + ROUNDING)


def test_serial_and_shared_time_add_up():
    """Beside the long pair three of four tensor operators fit, when cut in pieces; one takes the whole chip."""
    operators = (
        *(Operator(f"l{k}", ("VC",), 6.0) for k in range(2)),
        *(Operator(f"s{k}", ("TC",), 8.0, 2.0) for k in range(4)),
    )
    problem = ScheduleProblem(operators, (("l0", "l1"),), {"TC": 2, "VC": 2})
    ix = index_problem(problem)
    cheap = lower_bounds(ix, 20.0)
    assert cheap.lower_s == 12.0
    assert ModeProgram(ix, cheap, 20.0).mixed().lower_s == pytest.approx(14.0)
    assert schedule(problem).makespan_s == pytest.approx(16.0)


def test_a_program_says_nothing():
    code = (
        "from phaze.solvers.scheduling.mode_relaxation import silent_highs\n"
        "program = silent_highs()\n"
        "program.addVar(0.0, 1.0)\n"
        "program.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
