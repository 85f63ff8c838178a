"""Random small problems, and their optimum by exhaustion: every mode, every order, every core."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st
from phaze.solvers.scheduling import Operator, ScheduleProblem

LATENCIES = [1.0, 2.0, 3.0, 5.0, 7.0, 7.5]
SPEEDUPS = [None, 0.2, 0.4, 0.55, 0.7, 1.0, 1.5]


@st.composite
def problems(draw, most=6, pairing=None, link=True):
    """Problems of up to `most` operators on tensor cores, vector cores and a link."""
    kinds = [("TC",), ("VC",), ("TC", "VC")] + ([("LINK",)] if link else [])
    size = draw(st.integers(1, most))
    operators = []
    for i in range(size):
        units = draw(st.sampled_from(kinds))
        latency = draw(st.sampled_from(LATENCIES))
        factor = None if units == ("LINK",) else draw(st.sampled_from(SPEEDUPS))
        operators.append(Operator(f"o{i}", units, latency, None if factor is None else latency * factor))
    pairs = [(i, j) for j in range(size) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=size)) if pairs else []
    capacity = {"TC": draw(st.integers(1, 3)), "VC": draw(st.integers(1, 3)), "LINK": 1}
    paired = draw(st.booleans()) if pairing is None else pairing
    named = tuple((f"o{i}", f"o{j}") for i, j in edges)
    return ScheduleProblem(tuple(operators), named, capacity, paired, frozenset({"LINK"}))


def optimum(problem):
    """Smallest makespan: operators are placed in every topological order, in every mode, on every core.

    Each starts as early as its predecessors and everything placed before that conflicts with it allow, which
    reaches every schedule in which nothing can be shifted to the left.
    """
    best = [float("inf")]
    _place(problem, {}, best)
    return best[0]


def _place(problem, placed, best):
    if placed and max(end for _, end, _, _ in placed.values()) >= best[0]:
        return
    if len(placed) == len(problem.operators):
        best[0] = max(end for _, end, _, _ in placed.values())
        return
    for operator in problem.operators:
        before = {a for a, b in problem.edges if b == operator.id}
        if operator.id in placed or not before <= placed.keys():
            continue
        ready = max((placed[name][1] for name in before), default=0.0)
        for parallel, cores in _ways(problem, operator):
            start = ready
            for name, (_, end, whole, held) in placed.items():
                if _conflict(
                    problem, operator, parallel, cores, other=name, other_parallel=whole, other_cores=held
                ):
                    start = max(start, end)
            duration = operator.parallel_latency_s if parallel else operator.latency_s
            _place(problem, {**placed, operator.id: (start, start + duration, parallel, cores)}, best)


def _ways(problem, operator):
    if operator.parallel_latency_s is not None:
        yield True, frozenset()
    for numbers in product(*(range(problem.capacity[unit]) for unit in operator.units)):
        if problem.pairing and set(operator.units) == {"TC", "VC"} and len(set(numbers)) > 1:
            continue
        yield False, frozenset(zip(operator.units, numbers, strict=True))


def _conflict(problem, operator, parallel, cores, *, other, other_parallel, other_cores):
    units = next(o.units for o in problem.operators if o.id == other)
    both_blocked = set(operator.units) - problem.unblocked and set(units) - problem.unblocked
    return bool(cores & other_cores) or ((parallel or other_parallel) and bool(both_blocked))
