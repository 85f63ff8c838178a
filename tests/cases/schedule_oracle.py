"""Random small problems, and their optimum by exhaustion."""

from __future__ import annotations

from hypothesis import strategies as st
from phaze.solvers.scheduling import Mode, Operator, ScheduleProblem
from schedule_exhaustion import Exhaustion

LATENCIES = [1.0, 2.0, 3.0, 5.0, 7.0, 7.5]
SPEEDUPS = [None, 0.2, 0.4, 0.55, 0.7, 1.0, 1.5]
BANDWIDTH = 8e9
DRAWS = [0.0, 1e9, 2e9, BANDWIDTH / 3, 4e9, 5e9, BANDWIDTH]


def optimum(problem):
    """Smallest makespan, s."""
    return Exhaustion(problem).solve()


@st.composite
def problems(draw, most=6, pairing=None, link=True):
    """Problems of up to `most` operators on tensor cores, vector cores and a link."""
    kinds = [("TC",), ("VC",), ("TC", "VC")] + ([("LINK",)] if link else [])
    size = draw(_sizes(most))
    operators = []
    for i in range(size):
        units = draw(st.sampled_from(kinds))
        latency = draw(st.sampled_from(LATENCIES))
        factor = None if units == ("LINK",) else draw(st.sampled_from(SPEEDUPS))
        operators.append(Operator(f"o{i}", units, latency, None if factor is None else latency * factor))
    capacity = {"TC": draw(st.integers(1, 3)), "VC": draw(st.integers(1, 3)), "LINK": 1}
    paired = draw(st.booleans()) if pairing is None else pairing
    edges = draw(_edges(size))
    return ScheduleProblem(tuple(operators), edges, capacity, paired, frozenset({"LINK"}))


@st.composite
def moldable_problems(draw, most=7):
    """Problems of up to `most` operators, most of them moldable, that share a bandwidth."""
    size = draw(_sizes(most))
    capacity = {"TC": draw(st.integers(1, 4)), "VC": draw(st.integers(1, 3)), "LINK": draw(st.integers(1, 2))}
    unblocked = draw(st.sampled_from([frozenset(), frozenset({"LINK"})]))
    operators = tuple(draw(_operator(f"o{i}", capacity, unblocked)) for i in range(size))
    edges = draw(_edges(size))
    return ScheduleProblem(operators, edges, capacity, unblocked=unblocked, bandwidth=BANDWIDTH)


@st.composite
def _operator(draw, name, capacity, unblocked):
    """An operator with zero to three moldable modes, of which further cores take less time."""
    units = draw(st.sampled_from([("TC",), ("TC",), ("VC",), ("TC", "VC"), ("LINK",)]))
    latency = draw(st.sampled_from([*LATENCIES, *LATENCIES, 0.0]))
    modes = draw(st.lists(_mode(latency, min(capacity[unit] for unit in units)), max_size=3, unique=True))
    one = draw(st.sampled_from([latency, None])) if modes else latency
    factor = None if unblocked & set(units) else draw(st.sampled_from(SPEEDUPS))
    return Operator(name, units, one, None if factor is None else latency * factor, tuple(modes))


@st.composite
def _mode(draw, latency, most):
    cores = draw(st.integers(1, most))
    return Mode(cores, latency * draw(st.sampled_from([0.5, 0.9, 1.3])) / cores, draw(st.sampled_from(DRAWS)))


def _sizes(most):
    """One to `most`, mostly large: small problems are solved before any search."""
    return st.lists(st.integers(1, most), min_size=3, max_size=3).map(max)


@st.composite
def _edges(draw, size):
    pairs = [(f"o{i}", f"o{j}") for j in range(size) for i in range(j)]
    return tuple(draw(st.lists(st.sampled_from(pairs), unique=True, max_size=size)) if pairs else [])
