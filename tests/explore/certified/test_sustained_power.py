"""A power that boards sustain on the workload: the best design is that of enumeration, chips are slowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_cases import FEW_ARRAYS

from phaze.errors import InfeasibleError, InputError
from phaze.explore.answers.chip_comparison import chips_beside
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.answers.sustained_clock import at_clock, at_sustained_clock
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.drawn_power import DrawnPower, drawn_w
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.explaining.budget_steps import more_budget
from phaze.explore.explaining.explained_winner import ExplainedWinner
from phaze.explore.explaining.winner_neighbours import neighbours
from phaze.explore.recheck.certify_run import certify
from phaze.explore.request.explore_request import (
    Budgets,
    ClusterBudget,
    ExploreRequest,
    Objective,
    PowerMeans,
    StrategyChoice,
    Task,
)
from phaze.explore.request.search_progress import SilentProgress
from phaze.hardware.architecture import load_architecture
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.clock_steps import SHARES, with_lower_clocks
from phaze.hardware.spaces.space_file import load_space
from phaze.scheduling.passes import SolveLimits

EFFORT = SolveLimits(lambda: 1e6, 1e7)
QUANTILES = (0.05, 0.3, 0.6, 1.0)
DEVICES = 4


def sustained(power_w):
    return Budgets(power_w=power_w, power_means=PowerMeans.SUSTAINED)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(FEW_ARRAYS)
    return with_lower_clocks(load_space(path))


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, DEVICES, network, 8)


@pytest.fixture(scope="module")
def evaluator(task, space):
    return Evaluator(task, space.table())


@pytest.fixture(scope="module")
def points(task, evaluator):
    """Samples/s and watts of a device at every point of the space under its fastest plan, (configs, A) each."""
    rows, measures = np.arange(len(evaluator.table)), Measures(evaluator)
    found = [measures.exact(config, rows, EFFORT) for config in evaluator.configs]
    seconds = np.array([one.iteration_s for one in found])
    joules = np.array([one.energy_per_sample_j for one in found]) * task.cluster.global_batch
    with np.errstate(invalid="ignore"):
        return task.cluster.global_batch / seconds, joules / seconds / DEVICES


@pytest.fixture(scope="module")
def limits(points):
    speed, watts = points
    return np.quantile(watts[speed > 0], QUANTILES).tolist()


@pytest.fixture(scope="module")
def answers(task, space, limits, resources):
    return [explore(ExploreRequest(task, space, sustained(w)), resources=resources) for w in limits]


def test_the_best_of_every_limit_is_that_of_enumeration(answers, limits, points):
    speed, watts = points
    for answer, limit in zip(answers, limits, strict=True):
        document = answer.document
        best = speed[(speed > 0) & (watts <= limit * (1 + 1e-12))].max()
        result = next(iter(document.best.workloads.values()))
        assert result.throughput_samples_per_s == pytest.approx(best, rel=1e-9)
        assert result.drawn_w <= limit * (1 + 1e-9)
        assert document.certificate.optimal


def test_more_power_is_never_worse_and_worst_cases_may_be_above_it(answers, limits):
    speeds = [answer.document.certificate.objective_value for answer in answers]
    assert speeds == sorted(speeds)
    assert speeds[0] < speeds[-1]
    assert any(a.document.best.tdp_w > limit for a, limit in zip(answers, limits, strict=True))


def test_a_frontier_under_a_limit_is_that_of_enumeration(task, space, points, limits, resources):
    limit, (speed, watts) = limits[2], points
    asked = ExploreRequest(task, space, sustained(limit), axes=("throughput", "tdp"))
    document = explore(asked, resources=resources).document
    kept = np.where((speed > 0) & (watts <= limit * (1 + 1e-12)), speed, 0.0).max(axis=0)
    steps, fastest = [], 0.0
    tdp = tdp_w(space.table())
    for at in sorted(np.flatnonzero(kept), key=lambda i: (tdp[i], -kept[i])):
        if kept[at] > fastest * (1 + 1e-9):
            fastest = kept[at]
            steps.append((tdp[at], fastest))
    told = [(one.tdp_w, one.throughput_samples_per_s) for one in document.frontier]
    assert document.certificate.frontier_complete
    np.testing.assert_allclose(sorted(told), steps, rtol=1e-9)


@pytest.mark.parametrize("objective", ["tdp", "throughput_per_tdp", "energy_per_sample"])
def test_other_objectives_under_a_limit_are_those_of_enumeration(
    objective, task, space, points, limits, resources
):
    limit, (speed, watts) = limits[1], points
    asked = ExploreRequest(task, space, sustained(limit), Objective(objective))
    proven = explore(asked, resources=resources).document.certificate
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = {
            "tdp": np.where(speed > 0, 1.0 / tdp_w(space.table()), 0.0),
            "throughput_per_tdp": speed / tdp_w(space.table()),
            "energy_per_sample": speed / (watts * DEVICES),
        }[objective]
    assert proven.optimal
    assert proven.objective_value == pytest.approx(worth[(speed > 0) & (watts <= limit)].max(), rel=1e-9)


@pytest.mark.parametrize("work", [False, True])
def test_no_plan_that_keeps_a_limit_is_faster_than_its_bound(work, evaluator, points, limits):
    speed, watts = points
    rows, met = np.arange(len(evaluator.table)), 0
    for limit in limits:
        drawn = DrawnPower(Measures(evaluator), limit)
        for k, config in enumerate(evaluator.configs):
            seconds = evaluator.task.cluster.global_batch / speed[k]
            kept = np.isfinite(seconds) & (watts[k] <= limit)
            least = drawn.least_s(config, rows, work=work)
            assert (least[kept] <= seconds[kept]).all()
            met += int((least[kept] > 0.5 * seconds[kept]).sum())
    assert met or not work  # work takes most of what is drawn somewhere: the bound says something


def test_the_re_check_holds_what_is_drawn_against_the_limit(answers, task, space, limits):
    asked, answer = ExploreRequest(task, space, sustained(limits[1])), answers[1]
    rows = [dict(zip(answer.designs, one, strict=True)) for one in zip(*answer.designs.values(), strict=True)]
    report = certify("run", asked, answer.document, rows, samples=6, seed=0)
    assert report.passed, [check for check in report.checks if not check.passed]
    assert all(name.startswith("manifest.") for name in report.unchecked)
    tighter = replace(asked, budgets=sustained(limits[1] * 0.97))
    failed = {
        check.name
        for check in certify("run", tighter, answer.document, rows, 0, 0).checks
        if not check.passed
    }
    assert "every point of the frontier is reached" in failed


def test_neighbours_that_draw_too_much_are_told_so(answers, task, space, limits):
    asked = ExploreRequest(task, space, sustained(limits[1]))
    found = neighbours(ExplainedWinner.of(asked, answers[1].document, EFFORT))
    faster = [one for one in found if "power" in one.forbidden_by]
    assert faster
    assert all(one.over_power_w > 0 for one in faster)


def test_more_power_is_looked_at_by_searches(answers, task, space, limits, monkeypatch, resources):
    monkeypatch.setattr("phaze.explore.explaining.budget_steps.SHARES", (0.5,))
    asked = ExploreRequest(task, space, sustained(limits[1]))
    steps = more_budget(asked, answers[1].document, 60.0, SilentProgress())
    assert {step.budget for step in steps} == {"power"}
    assert all(step.gain >= 0 for step in steps)
    assert steps[-1].gain > 0


def test_a_power_that_nothing_draws_is_infeasible(task, space, evaluator):
    least = drawn_w(evaluator, EFFORT)
    with pytest.raises(InfeasibleError, match="draws more than 5 W") as caught:
        explore(ExploreRequest(task, space, sustained(5.0)))
    (short,) = caught.value.shortfalls
    assert short.demand == pytest.approx(least[least > 0].min())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strategy": StrategyChoice("random")}, "leave out --strategy"),
        ({"robust": True}, "without --robust"),
        ({"cluster": ClusterBudget(power_w=1e5)}, "leave out --cluster-power"),
        ({"objective": Objective.MEMORY}, "another objective than memory"),
    ],
)
def test_what_a_sustained_power_does_not_go_with_is_refused(change, words, task, space):
    with pytest.raises(InputError, match=words):
        explore(replace(ExploreRequest(task, space, sustained(100.0)), **change))


PAIRS = """
schema_version: 1
name: pairs
base: tpuv4
axes:
  - fields: [tensor_cores, clock_hz]
    values: [[4, 1.05GHz], [8, 700MHz]]
"""


def test_lower_clocks_are_one_more_axis(space):
    clocks = np.unique(space.table()["clock_hz"])
    assert len(clocks) == len(SHARES)
    assert clocks.max() == load_architecture("tpuv4").fields["clock_hz"]
    assert (np.unique(with_lower_clocks(space).table()["clock_hz"]) == clocks).all()


def test_lower_clocks_stand_beside_those_of_a_space_but_not_nearly_the_same_twice():
    """Firmware finds a clock between two of a space, too."""
    clocks = np.unique(with_lower_clocks(load_space("default")).table(range(4000))["clock_hz"])
    assert clocks.tolist() == [500e6, 630e6, 700e6, 840e6, 945e6, 1050e6]


def test_clocks_that_go_with_other_fields_stay_as_they_are(tmp_path):
    path = tmp_path / "pairs.yaml"
    path.write_text(PAIRS, encoding="utf-8")
    space = load_space(path)
    assert with_lower_clocks(space) is space


def test_known_chips_run_at_the_highest_clock_that_keeps_the_limit(task):
    builder, chip = DesignBuilder(task), load_architecture("h100")
    free = evaluate(task, chip).workloads["tiny"].drawn_w
    limit = 0.8 * free
    held, design = at_sustained_clock(chip, limit, builder)
    result = design.workloads["tiny"]
    assert 0.9 * limit < result.drawn_w <= limit
    above = at_clock(chip, held.fields["clock_hz"] * 1.05)
    assert evaluate(task, above).workloads["tiny"].drawn_w > limit
    full, _ = at_sustained_clock(chip, 2 * free, builder)
    assert full.fields["clock_hz"] >= chip.fields["clock_hz"]
    assert at_sustained_clock(chip, 10.0, builder) is None


def test_chips_beside_the_winner_keep_the_same_limit(task, space):
    request = ExploreRequest(task, space, sustained(150.0))
    (*_, told) = chips_beside(request, DesignBuilder(task), ("h100",))
    assert 140.0 < told[0].result.drawn_w <= 150.0
    assert told[0].note.endswith("the highest clock that draws 150 W")
    assert told[0].clock_hz < load_architecture("h100").fields["clock_hz"]
