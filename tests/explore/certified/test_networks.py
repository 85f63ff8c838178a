"""Networks as part of a design: against every architecture on every network, and bounds against plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.collectives.collective_times import fastest_s, link_s
from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.answers.network_exploration import networks_of, with_network, within_network
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, Task
from phaze.explore.request.search_progress import Clock
from phaze.explore.robustness.robust_answer import judge_robustness
from phaze.hardware.cluster_network import best_of, load_network
from phaze.hardware.economics.network_share import NetworkDraw
from phaze.hardware.spaces.space_file import parse_space
from phaze.parallel.plan_choices import load_plans
from phaze.tolerances import SAME
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Link

SPACE = """
schema_version: 1
name: systems
axes:
  - {fields: [vector_core_alus], values: [64, 1024]}
  - {fields: [link_bandwidth_bytes_per_s], values: [1GB/s, 600GB/s]}
network:
  scale_up_devices: [2, 8]
  scale_up_topology: [switch, ring]
  scale_out_bandwidth: [1GB/s, 60GB/s]
"""
BASE = load_network()


@pytest.fixture(scope="module")
def request_of(tiny):
    def asked(objective=Objective.THROUGHPUT, **given):
        budgets = Budgets(power_w=given.pop("power_w", None))
        task = Task(tiny, 8, BASE, global_batch=16, plans=load_plans("phaze"), held={"microbatches": (2,)})
        space = parse_space(given.pop("space", SPACE), "systems.yaml")
        return ExploreRequest(task, space, budgets, objective, time_limit_s=3600.0, **given)

    return asked


@pytest.fixture(scope="module")
def everything(request_of):
    """Throughput, cost, watts with the network and name of every architecture on every network."""
    request = request_of()
    found = []
    for one in networks_of(request):
        part = with_network(request, one.network)
        block = Candidates(part.space, Budgets()).all()
        draw = NetworkDraw(8, one.network, part.task.economics).of(block.table)
        for k, number in enumerate(block.numbers.tolist()):
            chip = Candidates(part.space, Budgets()).architecture(number)
            try:
                (result,) = evaluate(part.task, chip).workloads.values()
            except InfeasibleError:
                continue
            watts = float(block.tdp_w[k] + draw[k])
            usd = result.cost.cost_per_sample_usd
            found.append((result.throughput_samples_per_s, usd, watts, chip.name, one.network.name))
    return found


@pytest.mark.parametrize("power_w", [340.0, 290.0])
def test_the_best_is_that_of_every_architecture_on_every_network(request_of, everything, power_w):
    answer = explore(request_of(power_w=power_w))
    told, report = answer.document.certificate, answer.document.networks
    kept = [one for one in everything if power_w is None or one[2] <= power_w]
    assert told.optimal
    assert told.objective_value == pytest.approx(max(kept)[0], rel=SAME)
    best = {(name, network) for value, _, _, name, network in kept if value >= max(kept)[0] * (1 - SAME)}
    assert (answer.document.best.id, report.network) in best
    assert power_w is None or report.power_per_device_w <= power_w
    # Networks that were ruled out are no better than the bounds that ruled them out.
    for choice in report.choices:
        reached = [value for value, _, _, _, network in kept if network == choice.network]
        assert max(reached, default=0.0) <= choice.upper_bound * (1 + SAME)
        assert (choice.status == "infeasible") == (not reached)
    parts = [with_network(request_of(), one.network) for one in networks_of(request_of())]
    assert told.space_size == sum(4 * part.task.points_per_architecture for part in parts)
    assert told.space_size == told.over_budget + told.evaluated + told.pruned


def test_the_cheapest_sample_is_that_of_every_architecture_on_every_network(request_of, everything):
    answer = explore(request_of(Objective.COST_PER_SAMPLE, power_w=340.0))
    kept = [one for one in everything if one[2] <= 340.0]
    least = min(usd for _, usd, _, _, _ in kept)
    (result,) = answer.document.best.workloads.values()
    assert answer.document.certificate.optimal
    assert result.cost.cost_per_sample_usd == pytest.approx(least, rel=SAME)
    best = {(name, network) for _, usd, _, name, network in kept if usd <= least * (1 + SAME)}
    assert (answer.document.best.id, answer.document.networks.network) in best


def test_a_gap_that_is_asked_for_is_kept(request_of, everything):
    answer = explore(request_of(gap=0.5))
    told = answer.document.certificate
    assert told.objective_value <= max(everything)[0] * (1 + SAME) <= told.upper_bound * (1 + SAME) ** 2
    assert told.upper_bound <= told.objective_value * 1.5 * (1 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(Collective)),
    st.sampled_from([2, 3, 4, 6, 8, 16]),
    st.sampled_from([1, 2, 4]),
    st.floats(1, 1e10),
    st.sets(st.integers(0, 9), min_size=1),
)
def test_an_exchange_on_the_best_of_networks_is_that_of_the_fastest(
    collective, size, stride, payload, chosen
):
    axes = parse_space(SPACE, "systems.yaml").network_axes
    every = [one.network for one in axes.networks(BASE, 8)]
    some = [every[i % len(every)] for i in sorted(chosen)]
    links = np.array([1e9, 300e9])
    found = fastest_s(collective, payload, best_of(some), links, size, stride)
    each = [fastest_s(collective, payload, one, links, size, stride) for one in some]
    np.testing.assert_array_equal(found, np.min(each, axis=0))
    link = Link(collective, payload, Group(Parallel.TENSOR, size, stride))
    np.testing.assert_array_equal(
        link_s(link, best_of(some), links), np.min([link_s(link, one, links) for one in some], axis=0)
    )


def test_no_plan_on_a_network_is_faster_than_on_the_best_of_several(request_of):
    request = request_of()
    every = [one.network for one in networks_of(request)]
    table = Candidates(replace(request.space, network_axes=None), Budgets()).all().table
    rows, never = np.arange(len(table)), np.full(len(table), np.inf)

    def least_s(network):
        evaluator = Evaluator(replace(request.task, network=network), table)
        found = [evaluator.bounds(config, rows, never) for config in evaluator.configs]
        return np.min([one.lower_s for one in found], axis=0), np.min([one.upper_s for one in found], axis=0)

    for some in (every, every[1:3]):
        bound, _ = least_s(best_of(some))
        for one in some:
            assert (bound <= least_s(one)[1] * (1 + SAME)).all()


def test_layers_that_networks_share_cost_the_same(request_of):
    request = request_of()
    first, *others = [one.network for one in networks_of(request)][::3]
    table = Candidates(replace(request.space, network_axes=None), Budgets()).all().table
    rows = np.arange(len(table))
    known = Evaluator(replace(request.task, network=first), table)
    for config in known.configs:
        known.bounds(config, rows, np.full(len(rows), np.inf))
    for network in others:
        task = replace(request.task, network=network)
        alone, shared = Evaluator(task, table), known.of(task)
        for config in alone.configs:
            for ask in (
                lambda e, c: e.bounds(c, rows, np.full(len(rows), np.inf)).lower_s,
                lambda e, c: e.iteration_bound(c, rows),
            ):
                np.testing.assert_array_equal(ask(alone, config), ask(shared, config))


def test_robustness_is_that_of_the_best_network_with_its_share_of_power(request_of, everything):
    """As of a search on this network alone; budgets of devices are kept with what their network draws."""
    request = replace(request_of(power_w=340.0, robust=True), seed=1)
    document = explore(request).document
    alone = within_network(request, document)
    assert document.robustness == judge_robustness(alone, document.certificate.objective_value)
    assert document.robustness.winner == document.best.id
    names = {name: watts for _, _, watts, name, network in everything if network == document.networks.network}
    assert all(names[one.id] <= 340.0 for one in document.robustness.designs)
    assert any(one.over_power_probability for one in document.robustness.designs)  # 340 W are nearly used


def test_a_search_without_time_says_so(request_of):
    with pytest.raises(OutOfTimeError):
        explore(request_of(), clock=Clock(0.0))


def test_budgets_that_no_network_leaves_room_in_say_what_would_do(request_of):
    with pytest.raises(InfeasibleError) as error:
        explore(request_of(power_w=1.0))
    (short,) = error.value.shortfalls
    assert short.what == "power"
    assert short.demand > 1.0
    with pytest.raises(InfeasibleError, match="is fast enough on no architecture"):
        explore(request_of(min_throughput=1e12))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": Objective.TDP}, "which is for --objective throughput"),
        ({"axes": ("energy_per_sample",)}, "leave out --axes"),
        ({"two_designs": True}, "--designs one"),
    ],
)
def test_questions_that_know_no_networks_are_refused(request_of, changes, message):
    with pytest.raises(InputError, match=message):
        explore(request_of(**changes))
