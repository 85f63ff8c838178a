"""The robust answer: all near-optimal designs, ranked by statistics that follow from direct evaluations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phaze.errors import InputError
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.parameter_scaling import scaled_chips, scaled_network
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.robustness.constant_scenarios import (
    ConstantRange,
    Uncertainty,
    draw_scenarios,
    load_uncertainty,
)
from phaze.explore.robustness.near_optimal_designs import NearOptimalSearch, merit
from phaze.explore.robustness.robust_answer import (
    best_probability,
    judge_robustness,
    rank_correlations,
    regrets,
)
from phaze.explore.robustness.scenario_throughputs import distinct_designs, scenario_throughput
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.cluster import Recompute
from phaze.scheduling.passes import SolveLimits

BUDGETS = Budgets(power_w=250.0, area_mm2=600.0)
EFFORT = SolveLimits(Clock(3600.0).left)


@pytest.fixture(scope="module")
def request_(tiny, small_space, network):
    return ExploreRequest(
        Task(tiny, 4, network, held={"tensor": (2,), "recomputes": (Recompute.NONE,)}),
        small_space,
        BUDGETS,
    )


@pytest.fixture(scope="module")
def everything(request_):
    """All candidates, and the throughput of each."""
    block = Candidates(request_.space, request_.budgets).all()
    found = best_points(Evaluator(request_.task, block.table), np.arange(len(block)), EFFORT)
    return block, request_.task.cluster.global_batch / found.upper_s


def near(request, least, clock=None):
    candidates = Candidates(request.space, request.budgets)
    search = NearOptimalSearch(
        candidates, request.task, request.objective, least, clock or Clock(60.0), SilentProgress()
    )
    return candidates, search.run()


@pytest.mark.parametrize(
    ("objective", "slack"),
    [
        (Objective.THROUGHPUT, 0.0),
        (Objective.THROUGHPUT, 0.5),
        (Objective.THROUGHPUT_PER_TDP, 0.1),
        (Objective.TDP, 0.1),
    ],
)
def test_the_near_optimal_set_is_that_of_brute_force(request_, everything, objective, slack):
    block, throughput = everything
    value = merit(objective, throughput, block.tdp_w)
    least = value.max() * (1 - slack) * (1 - 1e-9)
    _, found = near(replace(request_, objective=objective), least)
    assert found.complete
    assert set(found.numbers.tolist()) == set(block.numbers[value >= least].tolist())
    alone = dict(zip(block.numbers.tolist(), throughput.tolist(), strict=True))
    np.testing.assert_allclose(found.throughput, [alone[n] for n in found.numbers.tolist()], rtol=1e-9)
    assert (np.diff(found.value) <= 0).all()


def test_without_time_the_set_is_not_called_complete(request_):
    _, found = near(request_, 1.0, Clock(0.0))
    assert not found.complete
    assert not len(found.numbers)


@pytest.fixture(scope="module")
def best(everything):
    return float(everything[1].max())


@pytest.fixture(scope="module")
def answer(request_, best):
    return judge_robustness(request_, best, slack=0.4, designs=6, scenarios=3)


def test_without_uncertainty_the_winner_is_certain(request_, best):
    found = judge_robustness(request_, best, slack=0.4, designs=6, scenarios=4, uncertainty=Uncertainty())
    winner = next(d for d in found.designs if d.id == found.winner)
    assert winner.best_probability == 1.0
    assert found.rank_correlation == found.least_rank_correlation == 1.0
    assert found.least_regret == found.winner
    for design in found.designs:
        assert design.worst_regret == pytest.approx(design.price, abs=1e-9)
        assert design.over_power_probability == design.over_area_probability == 0.0
        assert design.tdp_range_w == pytest.approx((design.tdp_w, design.tdp_w))


def test_the_same_seed_gives_the_same_answer(request_, best, answer):
    assert judge_robustness(request_, best, slack=0.4, designs=6, scenarios=3) == answer
    other = judge_robustness(replace(request_, seed=1), best, slack=0.4, designs=6, scenarios=3)
    assert other.designs[0].throughput_range_samples_per_s != answer.designs[0].throughput_range_samples_per_s


def test_statistics_agree_with_each_other(answer):
    assert answer.complete
    assert answer.near_optimal == sum(design.alike for design in answer.designs) or len(answer.designs) == 6
    assert sum(design.best_probability for design in answer.designs) >= 1 - 1e-9
    steadiest = min(design.worst_regret for design in answer.designs)
    for design in answer.designs:
        assert 0 <= design.mean_regret <= design.worst_regret < 1
        assert (design.worst_regret == steadiest) or design.id != answer.least_regret
        assert (design.worst_regret == 0) <= (design.best_probability == 1.0)
    safest = max(answer.designs, key=lambda d: d.least_value)
    assert safest.least_value == next(d for d in answer.designs if d.id == answer.best_worst_case).least_value


def test_scenarios_are_what_the_perturbed_hardware_does(request_, everything, best):
    """Throughput in a scenario is that of the perturbed architecture on the perturbed network, all settings tried."""
    candidates, found = near(request_, 0.6 * best)
    compared = distinct_designs(candidates, found, 4)
    scenarios = draw_scenarios(load_uncertainty(), 3, seed=7)
    known, values = scenario_throughput(request_.task, compared, scenarios, SilentProgress())
    assert known.tolist() == [0, 1, 2]
    for n in range(scenarios.count):
        count = len(compared.block)
        chip = {name: np.full(count, f[n]) for name, f in scenarios.of("chip").items()}
        network = scaled_network(
            request_.task.network, {name: float(f[n]) for name, f in scenarios.of("network").items()}
        )
        table = scaled_chips(compared.block.table, chip)
        exact = best_points(
            Evaluator(replace(request_.task, network=network), table), np.arange(count), EFFORT
        )
        expected = request_.task.cluster.global_batch / exact.upper_s
        assert (values[n] <= expected * (1 + 1e-9)).all()
        np.testing.assert_allclose(values[n], expected, rtol=0.02)


def test_scenarios_that_are_enough_are_those_of_the_first_networks(request_, best):
    """What is known when time ends is what the whole answer says of these scenarios."""
    compared = distinct_designs(*near(request_, 0.6 * best), 2)
    scenarios, asked = draw_scenarios(load_uncertainty(), 12, seed=7), []

    def enough(known):
        asked.append(known)
        return known >= 3

    known, values = scenario_throughput(request_.task, compared, scenarios, SilentProgress(), enough)
    _, all_values = scenario_throughput(request_.task, compared, scenarios, SilentProgress())
    assert asked == [2, 4]
    assert known.tolist() == [0, 1, 8, 9]
    np.testing.assert_array_equal(values, all_values[known])
    answer = judge_robustness(request_, best, slack=0.4, designs=2, scenarios=12, enough=lambda n: n >= 3)
    assert answer.scenarios == 4
    assert answer.designs[0].least_value <= values[:, 0].max()


def test_scenarios_cover_every_range_evenly():
    ranges = load_uncertainty()
    scenarios = draw_scenarios(ranges, 32, seed=3)
    for group, name, range_ in ranges.ranges():
        factor = scenarios.factors[group, name]
        slices = 8 if group == "network" else 32
        place = np.log(factor / range_.low) / np.log(range_.high / range_.low)
        assert np.unique(np.floor(place * slices)).tolist() == list(range(slices))
    assert all(len(np.unique(factor)) == 8 for factor in scenarios.of("network").values())


def test_power_is_scaled_part_by_part(everything):
    block, _ = everything
    double = ConstantRange(low=2.0, high=2.0, source="test")
    parts = ("mac", "operands", "vector", "buffer", "background", "leakage", "hbm", "hbm_background", "link")
    twice = Uncertainty(power={"all": double.model_copy(update={"parts": parts})})
    np.testing.assert_allclose(
        draw_scenarios(twice, 2, 0).power_w(block.table, 1.1), 2 * np.tile(tdp_w(block.table, 1.1), (2, 1))
    )


def test_designs_of_one_kind_count_once(everything, request_, best):
    candidates, found = near(request_, 0.6 * best)
    compared = distinct_designs(candidates, found, 1000)
    assert compared.alike.sum() == len(found.numbers)
    assert compared.block.numbers[0] == found.numbers[0]


def test_statistics_by_hand():
    values = np.array([[4.0, 2.0, 1.0], [1.0, 2.0, 2.0]])
    np.testing.assert_allclose(regrets(values), [[0, 0.5, 0.75], [0.5, 0, 0]])
    np.testing.assert_allclose(best_probability(values), [0.5, 0.5, 0.5])
    # Against 3 > 2 > 1: the first scenario agrees in all three pairs, the second in none of the two it orders.
    expected = [1.0, -2 / np.sqrt(3 * 2)]
    np.testing.assert_allclose(rank_correlations(np.array([3.0, 2.0, 1.0]), values), expected)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("chip: {mac_rat: {low: 1, high: 1, source: x}}", "chip.mac_rat"),
        ("power: {a: {low: 1, high: 1, source: x, parts: [macs]}}", "power.a.parts"),
        ("chip: {mac_rate: {low: 1, high: 0.5, source: x}}", "chip.mac_rate"),
        ("chip: {mac_rate: {low: 0, high: 0.5, source: x}}", "chip.mac_rate.low"),
    ],
)
def test_wrong_ranges_are_told_with_their_place(tmp_path, text, place):
    path = tmp_path / "ranges.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=place):
        load_uncertainty(path)


def test_every_range_rests_on_something():
    for _, _, range_ in load_uncertainty().ranges():
        assert len(range_.source) > 20
