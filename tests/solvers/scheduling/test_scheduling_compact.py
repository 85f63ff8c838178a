"""The compact search: against the plain one, against itself uncompiled, and its parts alone."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic

import pytest
from phaze.solvers.scheduling import Mode, Operator, ScheduleProblem, Status, read_instance, schedule
from phaze.solvers.scheduling.exact import compact_search
from phaze.solvers.scheduling.exact.compact_search import (
    BUILD_AFTER_S,
    PLAIN,
    CompactSearch,
    KernelBuilder,
    packable,
)
from phaze.solvers.scheduling.exact.core_pairs import search_paired
from phaze.solvers.scheduling.exact.kernel_arrays import interchangeable, outermost
from phaze.solvers.scheduling.indexed_problem import index_problem
from phaze.solvers.scheduling.list_scheduling import list_schedule
from phaze.solvers.scheduling.mode_relaxation import weightings
from phaze.solvers.scheduling.schedule_bounds import lower_bounds
from phaze.solvers.scheduling.schedule_plan import Outcome, SearchLimits

FOLDER = Path(__file__).parents[2] / "data" / "scheduling"


def random_operator(rng, name, capacity, bandwidth):
    units = rng.choice([("TC",), ("VC",), ("TC", "VC"), ("LINK",)])
    latency = rng.choice([0.0, 1.0, 1.0, 2.0, 3.0, 3.5])
    if units == ("LINK",):
        return Operator(name, units, latency)
    most = min(capacity[unit] for unit in units) if rng.random() < 0.3 else 0
    draws = [0.0, 2.0, 5.0, 7.0] if bandwidth else [0.0]
    moldable = [Mode(k, rng.choice([1.0, 2.0, 3.0]) / k, rng.choice(draws)) for k in range(1, most + 1)]
    faster = rng.choice([None, 0.25, 0.5, 0.7, 1.0])
    return Operator(name, units, latency, None if faster is None else latency * faster, tuple(moldable))


def random_problem(seed):
    """A front, two or three branches that are mostly alike, and an end; or operators with random edges."""
    rng = random.Random(seed)
    capacity = {"TC": rng.randint(1, 4), "VC": rng.randint(1, 3), "LINK": 1}
    bandwidth = rng.choice([None, None, 10.0])
    count, length = rng.choice([(2, 3), (3, 2), (2, 2), (1, 8)])
    kinds = [random_operator(rng, "", capacity, bandwidth) for _ in range(length)]
    operators = [random_operator(rng, "front", capacity, bandwidth)]
    inner = [(a, b) for b in range(length) for a in range(b) if rng.random() < (0.6 if count > 1 else 0.2)]
    edges = []
    for branch in range(count):
        for k, kind in enumerate(kinds):
            other = random_operator(rng, "", capacity, bandwidth)
            operators.append(replace(kind if rng.random() < 0.9 else other, id=f"{branch}.{k}"))
        edges += [(f"{branch}.{a}", f"{branch}.{b}") for a, b in inner]
        edges += [("front", f"{branch}.0")] if rng.random() < 0.7 else []
        edges += [(f"{branch}.{k}", "end") for k in range(length)] if rng.random() < 0.9 else []
    operators.append(random_operator(rng, "end", capacity, bandwidth))
    return ScheduleProblem(
        tuple(operators), tuple(edges), capacity, unblocked=frozenset({"LINK"}), bandwidth=bandwidth
    )


def worst_plan(ix):
    """A list schedule in the slowest modes: it leaves the search something to find."""
    return list_schedule(ix, [len(row) - 1 for row in ix.modes], [0.0] * ix.size)


def compact_makespan(ix, plan, *, rows):
    bounds = lower_bounds(ix, plan.makespan_s)
    search = CompactSearch(ix, bounds, plan.makespan_s, weightings(ix, bounds) if rows else None)
    search.best_first(inf, SearchLimits(inf))
    assert search.lower_s == inf
    found = search.plan()
    return plan.makespan_s if found is None else min(plan.makespan_s, found.makespan_s)


def open_problems(seeds):
    """Problems that the bounds leave open, with a schedule to beat."""
    for seed in seeds:
        ix = index_problem(random_problem(seed))
        plan = worst_plan(ix)
        if plan.makespan_s > 0.0 and lower_bounds(ix, plan.makespan_s).lower_s < plan.makespan_s * 0.999:
            yield ix, plan


@pytest.mark.parametrize("rows", [False, True])
def test_compact_and_plain_search_agree(rows):
    seen = 0
    for ix, plan in open_problems(range(200)):
        outcome = Outcome(plan, 0.0, {"states": 0})
        search_paired(ix, outcome, SearchLimits(monotonic() + 60.0))
        assert compact_makespan(ix, plan, rows=rows) == pytest.approx(outcome.plan.makespan_s, rel=1e-9)
        seen += 1
    assert seen > 100


def test_more_operators_than_a_word_has_bits():
    for seed in range(300, 312):
        problem = random_problem(seed)
        chain = tuple(Operator(f"chain{k}", ("TC",), 0.5) for k in range(60))
        edges = [(f"chain{k}", f"chain{k + 1}") for k in range(59)]
        edges += [(operator.id, "chain0") for operator in problem.operators]
        longer = replace(problem, operators=problem.operators + chain, edges=problem.edges + tuple(edges))
        ix, long_ix = index_problem(problem), index_problem(longer)
        plan, long_plan = worst_plan(ix), worst_plan(long_ix)
        short = compact_makespan(ix, plan, rows=False) if plan.makespan_s > 0.0 else 0.0
        assert compact_makespan(long_ix, long_plan, rows=False) == pytest.approx(short + 30.0, rel=1e-9)


def test_compiled_and_plain_functions_agree():
    ix, plan = next(open_problems([3]))
    workshop = KernelBuilder()
    bounds = lower_bounds(ix, plan.makespan_s)
    plain = CompactSearch(ix, bounds, plan.makespan_s, None)
    assert workshop.kernel is PLAIN
    plain.best_first(inf, SearchLimits(inf))
    workshop.report(BUILD_AFTER_S, plain.sample)
    workshop.wait()
    assert workshop.kernel is not PLAIN
    compiled = CompactSearch(ix, bounds, plan.makespan_s, None, workshop)
    compiled.best_first(inf, SearchLimits(inf))
    assert compiled.states == plain.states
    assert compiled.plan() == plain.plan()


def test_without_numba_the_plain_functions_go_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    ix, plan = next(open_problems([3]))
    workshop = KernelBuilder()
    search = CompactSearch(ix, lower_bounds(ix, plan.makespan_s), plan.makespan_s, None, workshop)
    workshop.report(BUILD_AFTER_S, search.sample)
    workshop.wait()
    assert workshop.kernel is PLAIN


def test_machine_code_is_built_once_plain_code_has_cost_as_much(monkeypatch, tmp_path):
    """In all processes together: what one of them spends counts for those that begin after it."""
    built = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(compact_search, "is_kept", lambda *_: False)
    monkeypatch.setattr(compact_search, "_compile", lambda sample: built.append(sample) or PLAIN)
    for spent_s in (0.5 * BUILD_AFTER_S, 0.25 * BUILD_AFTER_S, 0.2 * BUILD_AFTER_S):
        one = KernelBuilder()
        for _ in range(8):
            one.report(spent_s / 8, len)
        one.wait()
        assert not built
    another = KernelBuilder()
    another.report(0.2 * BUILD_AFTER_S, len)
    another.wait()
    assert built == [len]


@pytest.mark.parametrize(
    ("name", "most"), [("gpt_bwd-09", 600), ("inception_fwd-12", 500), ("towers-06", 900)]
)
def test_states_stay_few(name, most):
    result = schedule(read_instance(json.loads((FOLDER / f"{name}.json").read_text())))
    assert result.status is Status.OPTIMAL
    assert result.work["states"] <= most


def test_state_limit_is_exact_and_bounds_hold():
    ix, plan = max(open_problems(range(40)), key=lambda pair: pair[0].size)
    bounds = lower_bounds(ix, plan.makespan_s)
    whole = CompactSearch(ix, bounds, plan.makespan_s, None)
    whole.best_first(inf, SearchLimits(inf))
    best = min(plan.makespan_s, whole.plan().makespan_s)
    lower = 0.0
    for limit in range(whole.states):
        search = CompactSearch(ix, bounds, plan.makespan_s, None)
        search.best_first(limit, SearchLimits(inf))
        assert search.states == limit
        assert lower <= search.lower_s <= best * (1 + 1e-9)
        lower = search.lower_s


def test_no_time_no_states():
    ix, plan = next(open_problems([3]))
    search = CompactSearch(ix, lower_bounds(ix, plan.makespan_s), plan.makespan_s, None)
    search.best_first(inf, SearchLimits(monotonic() - 1.0))
    assert search.states == 0
    assert search.plan() is None


def test_a_search_that_somebody_stops_gives_what_it_has():
    ix, _ = max(open_problems(range(40)), key=lambda pair: pair[0].size)
    looks = iter([False] * 3)
    result = schedule(ix.problem, stopped=lambda: next(looks, True))
    proven = schedule(ix.problem)
    assert result.work["states"] < proven.work["states"]
    assert result.status is Status.FEASIBLE
    assert result.lower_bound_s <= proven.makespan_s <= result.makespan_s


def test_memory_grows_without_a_trace(monkeypatch):
    ix, plan = max(open_problems(range(40)), key=lambda pair: pair[0].size)
    bounds, answers = lower_bounds(ix, plan.makespan_s), []
    for children in (1 << 17, 1 << 6):  # room for fewer children at once means less memory to begin with
        monkeypatch.setattr("phaze.solvers.scheduling.exact.compact_search.CHILDREN", children)
        search = CompactSearch(ix, bounds, plan.makespan_s, None)
        search.best_first(inf, SearchLimits(inf))
        answers.append(search.plan().makespan_s)
    assert answers[0] == pytest.approx(answers[1], rel=1e-12)


def test_core_pairs_are_not_packable():
    operators = (Operator("a", ("TC", "VC"), 1.0), Operator("b", ("TC",), 1.0))
    problem = ScheduleProblem(operators, (), {"TC": 2, "VC": 2}, pairing=True)
    assert not packable(index_problem(problem))
    assert packable(index_problem(ScheduleProblem(operators, (), {"TC": 2, "VC": 2})))


def test_branches_that_look_and_lead_alike_are_interchangeable():
    # 0 leads to chains 1-2 and 3-4, which meet in 5; 6 looks like 2 and 4 but leads nowhere
    succs = [[1, 3, 6], [2], [5], [4], [5], [], []]
    preds = [[i for i, row in enumerate(succs) if j in row] for j in range(7)]
    assert interchangeable("xababyb", preds, succs) == [[[1, 2], [3, 4]], [[2], [4]]]
    assert interchangeable("xabcbyb", preds, succs) == [[[2], [4]]]
    assert outermost([[[1, 2], [3, 4]], [[2], [4]]], succs) == [[[1, 2], [3, 4]]]
    assert outermost([[[2], [4]]], succs) == [[[2], [4]]]


def test_weightings_bound_the_makespan():
    for ix, plan in open_problems(range(200, 260)):
        best = compact_makespan(ix, plan, rows=False)
        bounds = lower_bounds(ix, plan.makespan_s)
        for rate in weightings(ix, bounds):
            work = sum(
                min(value * rate[i, m] for m, value in enumerate(row) if value < inf)
                for i, row in enumerate(bounds.latency)
            )
            assert work <= best * (1 + 1e-9)


def test_weightings_see_that_parallel_operators_stop_other_chains():
    # Two chains of two: alone (4 s) each path fits in 4 s, but a core-parallel operator (1 s) stops the other
    chain = [Operator(f"{c}{k}", ("TC",), 4.0, 1.0) for c in "ab" for k in range(2)]
    ix = index_problem(ScheduleProblem(tuple(chain), (("a0", "a1"), ("b0", "b1")), {"TC": 8}))
    bounds = lower_bounds(ix, 10.0)
    rate = weightings(ix, bounds)[0]
    work = sum(min(value * rate[i, m] for m, value in enumerate(row)) for i, row in enumerate(ix.latency))
    assert bounds.lower_s == pytest.approx(2.0)
    assert work == pytest.approx(4.0, rel=1e-3)
