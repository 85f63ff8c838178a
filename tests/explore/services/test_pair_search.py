"""Two chips for a service, against brute force over all pairs of chips, shapes and splits that plans have."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from serving_cases import served
from test_service_search import FEW, request

from phaze.explore.documents.serving_document import serving_cost
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.services.exact_services import ExactServices
from phaze.explore.services.pair_search import PairSearch
from phaze.explore.services.service_costs import ServiceCosts
from phaze.explore.services.service_request import ServiceObjective, Worth
from phaze.hardware.architecture import to_table
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.serving.pools.disaggregated_pools import decode_offers, prefill_offers
from phaze.parallel.serving.pools.unlike_pools import _pairs
from phaze.parallel.serving.serving_search import serving_plan
from phaze.parallel.serving.serving_space import PoolChips


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(FEW)
    return load_space(path)


def by_force(asked):
    """The most that any plan of any pair is worth, priced as documents price plans."""
    costs, best = ServiceCosts(asked), 0.0
    worth = Worth(asked, costs.block)
    every = [
        ExactServices(worth, costs.chips, row, row, costs.candidates.varied).space
        for row in range(len(costs.block))
    ]
    prompts, tokens = [prefill_offers(one) for one in every], [decode_offers(one) for one in every]
    for first, sent in zip(every, prompts, strict=True):
        for second, made in zip(every, tokens, strict=True):
            both = replace(first, pool_chips=PoolChips(second.architecture))
            best = max([best, *(price(asked, both, choice) for choice in _pairs(first, second, sent, made))])
    return best


def price(asked, space, choice):
    plan = serving_plan(choice, space)
    if asked.objective is ServiceObjective.THROUGHPUT:
        return plan.tokens_per_s
    if asked.objective is ServiceObjective.COST_PER_MILLION_TOKENS:
        return 1 / serving_cost(plan, space, asked.budgets.economics).cost_per_million_tokens_usd
    chips = (to_table([space.chip_of(pool.role)]) for pool in plan.pools)
    watts = sum(pool.devices * float(tdp_w(chip)[0]) for pool, chip in zip(plan.pools, chips, strict=True))
    return plan.tokens_per_s / watts


QUESTIONS = [
    ("saturated", "throughput", 3),
    ("saturated", "tokens_per_s_per_w", 4),
    ("saturated", "cost_per_million_tokens", 3),
    ("stream", "tokens_per_s_per_w", 4),
    ("stream", "cost_per_million_tokens", 4),
]


@pytest.mark.parametrize(("load", "objective", "devices"), QUESTIONS)
def test_the_best_pair_by_force(source, few, network, load, objective, devices):
    asked = request(source, few, network, load, objective, devices=devices)
    outcome = PairSearch(ServiceCosts(asked), 0.0, Clock(math.inf), SilentProgress()).run()
    assert outcome.open_worth == 0.0
    assert outcome.pair.worth == pytest.approx(by_force(asked), rel=1e-9)
    assert price(asked, outcome.pair.space, outcome.pair.choice) == pytest.approx(
        outcome.pair.worth, rel=1e-9
    )
    assert [pool.chip for pool in outcome.pair.plan.pools] == [
        item.exact.space.architecture.name for item in outcome.pair.items
    ]
