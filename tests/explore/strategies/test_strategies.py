"""Searches without proof: they do what they say, count right, and never beat the certified optimum."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from math import floor
from pathlib import Path

import numpy as np
import pytest

from phaze.errors import InputError
from phaze.explore.answers.main_job import explore
from phaze.explore.documents.strategy_report import Stop, certified_distance
from phaze.explore.evaluation import evaluation_oracle as judge_module
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.strategies.heuristic_searches import PhazeSearch, RandomSearch, largest_first, shuffled
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.explore.strategies.strategy_registry import STRATEGIES, strategy
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.testing.small_problem import BUDGETS, SPACE, first_throughput
from phaze.workload.workload_loader import load_workload

FEW_SETTINGS = {"microbatches": (1,), "tensor": (2,)}


def few(folder):
    """24 architectures, on which everything can be evaluated."""
    file = folder / "few.yaml"
    file.write_text(SPACE)
    return load_space(file)


def new_oracle(space, *tasks, budgets=BUDGETS, limit_s=1e9):
    return Oracle(Candidates(space, budgets), tasks, first_throughput, Clock(limit_s))


class Told(Oracle):
    """An oracle that is told the throughputs of every number, (W, size), instead of working them out."""

    truth: np.ndarray

    def _evaluated(self, block):
        told = self.truth[:, block.numbers]
        value = np.where((told > 0).all(axis=0), told.mean(axis=0), 0.0)
        return [
            Evaluation(
                int(n), float(value[i]), tuple(told[:, i]), (None,), 0.0, float(block.area_mm2[i]), 0.0
            )
            for i, n in enumerate(block.numbers)
        ]


def told(space, truth):
    found = Told(Candidates(space, BUDGETS), (), first_throughput, Clock(1e9))
    found.truth = truth
    return found


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    return few(tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 4, network, held=FEW_SETTINGS)


@pytest.fixture(scope="module")
def certified(task, space):
    return explore(ExploreRequest(task, space, BUDGETS)).document.certificate


def phaze_step_by_step(candidates, truth, bin_mm2, hysteresis, most):
    """PHAZE's outer loop, one architecture at a time: numbers visited and whether it converged."""
    block = candidates.all()
    bins = {}
    for number, area in zip(block.numbers.tolist(), block.area_mm2.tolist(), strict=True):
        bins.setdefault(floor(area / bin_mm2), []).append(number)
    visited, scores = [], []
    for key in sorted(bins, reverse=True):
        best = -1.0
        for number in sorted(bins[key]):
            if len(visited) == most:
                return visited, False
            visited.append(number)
            throughputs = truth[:, number]
            if (throughputs > 0).all():
                best = max(best, float(sum(throughputs) / len(throughputs)))
        scores.append(best)
        last = scores[-hysteresis:]
        if len(last) == hysteresis and all(a >= b for a, b in pairwise(last)):
            return visited, True
    return visited, False


@pytest.mark.parametrize("seed", range(40))
def test_phaze_visits_what_its_rule_says(small_space, seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, (2, 5, 50)[seed % 3], size=(1 + seed % 2, small_space.size)).astype(float)
    search = PhazeSearch(
        bin_mm2=float(rng.choice([0.01, 3.0, 40.0])), hysteresis_bins=int(rng.integers(2, 7))
    )
    most = int(rng.choice([7, 30, 1000]))
    oracle = told(small_space, truth)
    report = search.run(oracle, SearchBudget(most), 0, SilentProgress())
    visited, converged = phaze_step_by_step(
        oracle.candidates, truth, search.bin_mm2, search.hysteresis_bins, most
    )
    assert [e.number for e in oracle.history] == visited
    assert (report.stopped is Stop.CONVERGED) == converged
    assert report.best_value == (max((e.value for e in oracle.history), default=0) or None)


def test_bins_of_phaze_space_are_those_of_the_published_code():
    bins = largest_first(Candidates(load_space("phaze"), Budgets()), 0.01, 10**6)
    sizes = [len(members) / 3 for members in bins]  # three memory sizes each
    assert (len(sizes), max(sizes), sum(sizes[:5]), sum(sizes[:100])) == (13506, 22, 8, 120)


def test_only_as_many_of_the_largest_are_kept_as_can_be_visited(small_space):
    candidates = Candidates(small_space, BUDGETS)
    every = np.concatenate(largest_first(candidates, 1.0, 1000))
    assert len(every) == len(candidates.all())
    np.testing.assert_array_equal(np.concatenate(largest_first(candidates, 1.0, 10)), every[:10])


def test_random_search_exhausts_a_space_and_finds_the_optimum(space, task, certified):
    oracle = new_oracle(space, task)
    report = RandomSearch().run(oracle, SearchBudget(10**6), 3, SilentProgress())
    assert report.stopped is Stop.EXHAUSTED
    assert sorted(e.number for e in oracle.history) == oracle.candidates.all().numbers.tolist()
    found = certified_distance(report.best_value, certified.objective_value, certified.upper_bound)
    assert found.proven
    assert found.share == 0


def run_small(name, seed, space, task):
    """A short run of one strategy; None where what it needs is not installed."""
    try:
        return strategy(name).run(new_oracle(space, task), SearchBudget(5), seed, SilentProgress())
    except InputError:
        return None


def test_same_seed_same_history_in_another_process(tmp_path):
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import test_strategies as t;"
        "print(json.dumps(t.histories(sys.argv[2])))"
    )
    outputs = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        command = [sys.executable, "-c", code, str(__file__).rpartition("/")[0], str(folder)]
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(filter(None, sys.path))}
        outputs.append(
            json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
        )
    assert outputs[0] == outputs[1]
    assert outputs[0]["random"][0]


def histories(folder):
    """(evaluation, value) of every improvement of every strategy."""
    from small_cases import small_decoder

    task, space = Task(small_decoder(Path(folder)), 4, load_network(), held=FEW_SETTINGS), few(Path(folder))
    reports = {name: run_small(name, 5, space, task) for name in STRATEGIES.built_in}
    return {
        name: [(step.evaluation, step.value) for step in report.history] if report else None
        for name, report in reports.items()
    }


def test_what_was_asked_before_is_answered_from_memory(space, task, monkeypatch):
    evaluated, worker = [], judge_module.best_points

    def counting(evaluator, rows, effort):
        evaluated.append(len(rows))
        return worker(evaluator, rows, effort)

    monkeypatch.setattr(judge_module, "best_points", counting)
    oracle = new_oracle(space, task)
    numbers = oracle.candidates.all().numbers[:3].tolist()
    first = oracle.evaluate([*numbers, numbers[0]])
    assert first[3] is first[0]
    assert oracle.evaluate(numbers[::-1]) == first[2::-1]
    assert evaluated == [3]
    assert [e.number for e in oracle.history] == numbers


def test_what_is_over_a_budget_costs_nothing(space, task):
    oracle = new_oracle(space, task, budgets=Budgets(power_w=50.0))
    for answer in oracle.evaluate([2, 0]):
        assert answer.tdp_w > 50
        assert (answer.value, answer.throughputs) == (0, (0,))
    assert oracle.history == []


def test_a_workload_that_does_not_fit_leaves_nothing_to_win(space, task, network):
    huge = Task(load_workload("gpt3"), 1, network)
    for search in (PhazeSearch(), RandomSearch()):
        oracle = new_oracle(space, task, huge)
        report = search.run(oracle, SearchBudget(5), 0, SilentProgress())
        assert all(e.throughputs[0] > 0 and e.throughputs[1] == e.value == 0 for e in oracle.history)
        assert report.best_value is None
        assert report.history == []
        assert oracle.best is None


def test_shuffled_numbers_are_a_permutation_and_uniform():
    assert sorted(shuffled(50, 7)) == list(range(50))
    assert list(shuffled(50, 7)) == list(shuffled(50, 7)) != list(shuffled(50, 8))
    orders = [tuple(shuffled(3, seed)) for seed in range(1200)]
    assert all(150 < orders.count(order) < 250 for order in set(orders))
    assert len(set(orders)) == 6


def test_distance_from_an_open_certificate():
    found = certified_distance(6.0, 8.0, 10.0)
    assert (found.share, found.proven) == (0.25, False)
    assert certified_distance(None, 8.0, 8.0).share == 1


def test_an_unknown_strategy_is_told_the_known_ones():
    with pytest.raises(InputError, match="choose from certified, phaze, wham, random"):
        strategy("best")
