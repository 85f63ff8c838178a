"""One common design: every rule against brute force over a small space."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from small_cases import DECODER, StopsSoon

from phaze.errors import InfeasibleError, InputError
from phaze.explore.answers.main_job import explore
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.common_points import CommonPoints
from phaze.explore.certified.workload_bounds import WorkloadBounds
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.pareto_archive import nondominated
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.common_score import Combine, CombinedScore
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task, check_weights
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.hardware.spaces.space_file import load_space
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload_loader import load_workload

SPACE = """
schema_version: 1
name: balance
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [tensor_core_columns], values: [128]}
  - {fields: [vector_cores], values: [2]}
  - {fields: [vector_core_alus], values: [64, 1024]}
  - {fields: [global_buffer_bytes], values: [16MiB]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""
WEIGHTS = (3.0, 1.0)


@pytest.fixture(scope="module")
def balance(tmp_path_factory):
    """16 architectures, some within 200 W."""
    path = tmp_path_factory.mktemp("spaces") / "balance.yaml"
    path.write_text(SPACE)
    return Candidates(load_space(path), Budgets(power_w=200.0))


@pytest.fixture(scope="module")
def tasks(tiny, network, tmp_path_factory):
    """A narrow decoder, and a wide one with longer sequences."""
    text = DECODER.replace("name: tiny", "name: wide").replace("hidden: 512", "hidden: 1024")
    path = tmp_path_factory.mktemp("workloads") / "wide.yaml"
    path.write_text(text.replace("ffn_hidden: 2048", "ffn_hidden: 4096").replace("layers: 4", "layers: 2"))
    chosen = {"microbatches": (2,)}
    return Task(tiny, 8, network, held=chosen), Task(load_workload(str(path)), 8, network, held=chosen)


@pytest.fixture(scope="module")
def truth(balance, tasks):
    """Throughput (W, A) of every candidate within budget under its best placement."""
    block = balance.all()
    rows = np.arange(len(block))
    found = [best_points(Evaluator(t, block.table), rows, SolveLimits(lambda: np.inf)) for t in tasks]
    return block, np.stack([t.cluster.global_batch / f.upper_s for t, f in zip(tasks, found, strict=True)])


def rule_of(combine, throughput, floors=()):
    return CombinedScore(combine, WEIGHTS, tuple(throughput.max(axis=1).tolist()), floors)


@pytest.fixture(scope="module")
def search(balance, resources):
    """Searches for the best of a rule."""
    survey = balance.survey()

    def run(tasks, rule, clock=None, axes=("score", "tdp"), **options):
        clock, chosen = clock or Clock(600.0), SearchAxes(tuple(map(metric, axes)))
        evaluators = [Evaluator(task, survey, memo=resources.memo) for task in tasks]
        caps = np.full(len(tasks), np.inf)
        points = CommonPoints(balance, chosen, evaluators, rule, caps, clock)
        return CertifiedSearch(points, clock, SilentProgress(), **options).run()

    return run


def staircase(tdp, score):
    best, steps = 0.0, []
    for watt, value in sorted(zip(tdp.tolist(), score.tolist(), strict=True), key=lambda p: (p[0], -p[1])):
        if value > best:
            best = value
            steps.append((watt, value))
    return steps


def test_only_what_tight_bounds_leave_open_is_scheduled_exactly(tasks, truth, monkeypatch):
    block, _ = truth
    open_, exact, tighten, settle = set(), [], Evaluator.bounds, Evaluator.exact

    def tightening(self, config, rows, give_up_s, patience):
        found = tighten(self, config, rows, give_up_s, patience)
        open_.update((config, row) for row in rows[found.lower_s < found.upper_s].tolist())
        return found

    def settling(self, config, rows, give_up_s, effort):
        exact.extend((config, row) for row in rows.tolist())
        return settle(self, config, rows, give_up_s, effort)

    monkeypatch.setattr(Evaluator, "bounds", tightening)
    monkeypatch.setattr(Evaluator, "exact", settling)
    evaluator, every = Evaluator(tasks[0], block.table), np.arange(len(block))
    bounds = WorkloadBounds(evaluator)
    one = bounds.on(block.numbers, block.table)
    one.settle(every, np.zeros(len(block)), SolveLimits(lambda: np.inf))
    assert one.exact.all()
    assert set(exact) <= open_
    assert len(exact) < len(evaluator.configs) * len(block)


def test_points_of_a_workload_are_settled_as_far_as_time_goes(tasks, truth, monkeypatch):
    """What is known then are true bounds."""
    block, throughput = truth
    evaluator, every, asked = Evaluator(tasks[0], block.table), np.arange(len(block)), []
    bounds, left = Evaluator.bounds, [3]

    def counted(self, *given):
        asked.append(given)
        left[0] -= 1
        return bounds(self, *given)

    monkeypatch.setattr(Evaluator, "bounds", counted)
    one = WorkloadBounds(evaluator).on(block.numbers, block.table)
    one.settle(every, np.zeros(len(block)), SolveLimits(lambda: float(left[0])))
    assert len(asked) == 3 and not one.exact.all()
    assert (one.reached <= throughput[0] * (1 + 1e-9)).all()
    assert (one.hoped >= throughput[0] * (1 - 1e-9)).all()


def test_points_that_few_states_leave_open_are_settled_with_more(tasks, truth, monkeypatch):
    block, throughput = truth
    evaluator, every, asked, exact = (
        Evaluator(tasks[0], block.table),
        np.arange(len(block)),
        [],
        Evaluator.exact,
    )

    def hasty(self, config, rows, give_up_s, effort):
        asked.append(effort.states)
        found = exact(self, config, rows, give_up_s, effort)
        return found if effort.states > 100 else replace(found, lower_s=found.lower_s * 0.99)

    monkeypatch.setattr(Evaluator, "exact", hasty)
    one = WorkloadBounds(evaluator).on(block.numbers, block.table)
    for states in (100, 100, np.inf, np.inf):
        one.settle(every, np.zeros(len(block)), SolveLimits(lambda: np.inf, states))
        asked.append("settled" if one.exact.all() else "open")
    few, more = asked.index("open"), asked.index("settled")
    assert asked[:few] == [100] * few and few > 0
    assert asked[few + 1] == "open"  # nobody asks twice for as many
    assert asked[few + 2 : more] == [np.inf] * (more - few - 2) and more > few + 2
    assert asked[more:] == ["settled"] * 2
    np.testing.assert_allclose(one.reached, throughput[0], rtol=1e-9)


@pytest.mark.parametrize("combine", Combine)
def test_every_rule_finds_the_frontier_that_brute_force_finds(search, tasks, truth, combine):
    block, throughput = truth
    rule = rule_of(combine, throughput)
    outcome = search(tasks, rule)
    assert outcome.finished
    steps = list(zip(outcome.frontier.tdp_w, outcome.frontier.throughput, strict=True))
    np.testing.assert_allclose(steps, staircase(block.tdp_w, rule.score(throughput)), rtol=1e-9)
    assert sum(outcome.pruned_by.values()) + len(outcome.evaluated) == outcome.in_budget == len(block)


def test_floors_rule_designs_out(search, tasks, truth):
    block, throughput = truth
    floors = (float(np.median(throughput[0])), float(np.median(throughput[1])))
    rule = rule_of(Combine.GEOMEAN, throughput, floors)
    outcome = search(tasks, rule)
    kept = (throughput >= np.array(floors)[:, None]).all(axis=0)
    expected = staircase(block.tdp_w, np.where(kept, rule.score(throughput), 0.0))
    steps = list(zip(outcome.frontier.tdp_w, outcome.frontier.throughput, strict=True))
    np.testing.assert_allclose(steps, expected, rtol=1e-9)


def test_other_axes_beside_the_score_are_those_of_brute_force(search, tasks, truth):
    """In blocks of any size; every architecture is counted once."""
    block, throughput = truth
    rule = rule_of(Combine.GEOMEAN, throughput)
    score = rule.score(throughput)
    values = np.stack([-score, block.area_mm2, -score / block.tdp_w], axis=1)
    expected = {int(n) for n in block.numbers[nondominated(values) & (score > 0)]}
    for size in (3, 64):
        outcome = search(tasks, rule, axes=("score", "area", "score_per_tdp"), block=size)
        assert outcome.finished
        assert {number for number, _ in outcome.members} == expected
        assert sum(outcome.pruned_by.values()) + len(outcome.evaluated) == outcome.in_budget == len(block)


@pytest.mark.parametrize("looks", [1, 2, 4, 8, 16])
def test_stopped_early_no_point_is_lost(search, tasks, truth, looks):
    """Whatever is missing from the frontier may still be better by its bound, and is counted as undecided."""
    block, throughput = truth
    rule = rule_of(Combine.MEAN, throughput)
    outcome = search(tasks, rule, clock=StopsSoon(looks), block=5)
    counted = sum(outcome.pruned_by.values()) + len(outcome.evaluated)
    assert counted == outcome.in_budget == len(block)
    assert all(count > 0 for count in outcome.pruned_by.values())
    others, hoped = outcome.undecided
    for tdp, score in zip(block.tdp_w.tolist(), rule.score(throughput).tolist(), strict=True):
        value = score * (1 - 1e-9)
        reached = outcome.frontier.threshold(np.array([[tdp]]))[0]
        assert reached >= value or (hoped[others[:, 0] <= tdp] >= value).any()


def test_one_workload_is_judged_by_itself(search, tasks, truth):
    block, throughput = truth
    rule = CombinedScore(Combine.GEOMEAN, (1.0,), (float(throughput[0].max()),))
    outcome = search(tasks[:1], rule)
    assert max(outcome.frontier.throughput) == pytest.approx(1.0, rel=1e-12)
    winner = outcome.frontier.keys[-1][1]
    assert throughput[0][block.numbers == winner] == pytest.approx(throughput[0].max(), rel=1e-12)


def test_the_order_of_the_workloads_does_not_matter(search, tasks, truth):
    _, throughput = truth
    rule = rule_of(Combine.GEOMEAN, throughput)
    turned = CombinedScore(Combine.GEOMEAN, WEIGHTS[::-1], rule.optima[::-1])
    there, back = search(tasks, rule), search(tasks[::-1], turned)
    assert there.frontier == back.frontier


def test_a_search_without_time_still_bounds(search, tasks, truth):
    _, throughput = truth
    rule = rule_of(Combine.MEAN, throughput)
    outcome = search(tasks, rule, clock=Clock(0.0))
    assert not outcome.finished
    assert outcome.undecided[1].max() >= rule.score(throughput).max()


@pytest.mark.parametrize("combine", Combine)
def test_the_least_throughput_reaches_the_score_and_no_less_does(combine):
    random = np.random.default_rng(7)
    throughput = random.uniform(0.1, 1.0, (3, 50))
    weights = (1.0, 1.0, 1.0) if combine is Combine.WORST else (2.0, 1.0, 0.5)
    rule = CombinedScore(combine, weights, (1.0, 0.7, 2.0))
    wanted = rule.score(throughput) * random.uniform(0.8, 1.0, 50)
    for w in range(3):
        least = rule.least(w, wanted, throughput)
        assert (least <= throughput[w] * (1 + 1e-9)).all()
        below = throughput.copy()
        below[w] = least * (1 - 1e-6)
        reached = least > 0
        assert (rule.score(below)[reached] < wanted[reached]).all()
        below[w] = least * (1 + 1e-9)
        assert (rule.score(below)[reached] >= wanted[reached] * (1 - 1e-9)).all()


def test_scores_do_not_depend_on_the_order_to_the_last_bit():
    throughput = np.random.default_rng(3).uniform(0.1, 9.0, (4, 20))
    for combine in Combine:
        scores = [
            CombinedScore(
                combine, tuple(float(i + 1) for i in order), tuple(float(i + 2) for i in order)
            ).score(throughput[list(order)])
            for order in itertools.permutations(range(4))
        ]
        assert all((s == scores[0]).all() for s in scores)


def test_the_answer_tells_regret_and_who_wins_where(balance, tasks, resources):
    request = ExploreRequest(
        tasks[0], balance.space, balance.budgets, others=tasks[1:], weights=WEIGHTS, time_limit_s=600.0
    )
    document = explore(request, resources=resources).document
    report, best = document.portfolio, document.best
    assert document.certificate.optimal
    assert document.certificate.objective == "score"
    assert list(best.workloads) == ["tiny", "wide"] == list(report.workloads)
    for name, share in report.workloads.items():
        assert share.throughput_samples_per_s == best.workloads[name].throughput_samples_per_s
        assert share.regret == pytest.approx(1 - share.ratio)
        assert share.regret >= -1e-9
        (own,) = [row for row in report.cross if name in row.winner_for]
        assert own.throughputs_samples_per_s[name] == pytest.approx(share.own.throughput_samples_per_s)
        assert own.score <= report.score * (1 + 1e-9)
    assert report.frontier[-1].score == pytest.approx(report.score)


@pytest.mark.parametrize("combine", Combine)
def test_a_gap_costs_no_more_than_it_says(balance, tasks, combine, resources):
    """Designs that others rule out by the gap alone, seeds among them, are within the bound."""
    request = ExploreRequest(
        tasks[0], balance.space, balance.budgets, others=tasks[1:], combine=combine, time_limit_s=600.0
    )
    best = explore(request, resources=resources).document.certificate
    for gap in (0.01, 0.1, 0.5):
        found = explore(replace(request, gap=gap), resources=resources).document.certificate
        assert found.objective_value * (1 + gap) >= best.objective_value * (1 - 1e-9)
        assert found.upper_bound >= best.objective_value * (1 - 1e-9)
        assert found.gap <= gap + 1e-9
        assert found.evaluated + found.pruned + found.over_budget == found.space_size
    assert found.gap > 0  # some were ruled out by the gap alone


def test_weights_that_mean_nothing_are_refused(balance, tasks):
    request = ExploreRequest(tasks[0], balance.space, balance.budgets, others=tasks[1:], weights=WEIGHTS)
    assert check_weights(replace(request, weights=())) == (1.0, 1.0)
    with pytest.raises(InputError, match="worst"):
        check_weights(replace(request, combine=Combine.WORST))
    with pytest.raises(InputError, match="2 times"):
        check_weights(replace(request, others=(tasks[0],), weights=()))
    with pytest.raises(InputError, match="2 weights"):
        check_weights(replace(request, weights=(1.0,)))


def test_a_floor_that_nothing_keeps_names_the_best(balance, tasks, truth, resources):
    _, throughput = truth
    best = float(throughput[0].max())
    request = ExploreRequest(tasks[0], balance.space, balance.budgets, time_limit_s=600.0)
    with pytest.raises(InfeasibleError) as caught:
        explore(replace(request, min_throughput=1.5 * best), resources=resources)
    (short,) = caught.value.shortfalls
    assert (short.limit, short.demand) == (1.5 * best, pytest.approx(best))


@pytest.mark.parametrize("objective", ["throughput_per_tdp", "tdp"])
def test_the_best_above_a_floor_is_that_of_brute_force(balance, tasks, truth, objective, resources):
    from phaze.explore.request.explore_request import Objective

    block, throughput = truth
    floor = 0.7 * float(throughput[0].max())
    latency = tasks[0].cluster.global_batch / floor
    kept = throughput[0] >= floor
    value = throughput[0] / block.tdp_w if objective == "throughput_per_tdp" else 1 / block.tdp_w
    request = ExploreRequest(
        tasks[0],
        balance.space,
        balance.budgets,
        Objective(objective),
        max_latency_s=latency * (1 + 1e-12),
        time_limit_s=600.0,
    )
    certificate = explore(request, resources=resources).document.certificate
    assert certificate.optimal
    assert certificate.objective_value == pytest.approx(value[kept].max(), rel=1e-9)
