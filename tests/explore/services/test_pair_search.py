"""Two chips for a service, against brute force over all pairs of chips, shapes and splits that plans have."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from serving_cases import served
from test_service_search import Looked, request

from phaze.errors import InputError
from phaze.explore.documents.serving_document import serving_cost
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.services.exact_services import ExactServices
from phaze.explore.services.pair_search import SIDES, PairSearch
from phaze.explore.services.pool_items import Pairing, exact_item
from phaze.explore.services.pool_side import PoolSide
from phaze.explore.services.second_design import Fleet, second_design
from phaze.explore.services.service_answer import find_service
from phaze.explore.services.service_costs import BOUNDS, ServiceCosts
from phaze.explore.services.service_request import ServiceObjective, Worth
from phaze.hardware.architecture import to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.economics.cluster_rates import cluster_rates
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.serving import Targets
from phaze.parallel.serving.bounds.service_bounds import ServiceBounds
from phaze.parallel.serving.pools.disaggregated_pools import decode_offers, paired, prefill_offers
from phaze.parallel.serving.pools.unlike_pools import handing_over
from phaze.parallel.serving.serving_search import serving_plan
from phaze.parallel.serving.serving_space import PoolChips
from phaze.scheduling.effort import ENDLESS

FEW = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 5]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [tensor_core_columns], values: [128]}
  - {fields: [vector_cores, vector_core_alus], values: [[3, 1024]]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""
LINKS = """
schema_version: 1
name: links
axes:
  - {fields: [tensor_cores], values: [2, 5]}
  - {fields: [link_bandwidth_bytes_per_s], values: [1.0e+9, 1.0e+11]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served(tmp_path_factory.mktemp("served"))


def space_of(folder, text):
    path = folder / "space.yaml"
    path.write_text(text)
    return load_space(path)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Eight architectures of very different balance."""
    return space_of(tmp_path_factory.mktemp("few"), FEW)


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    """Chips whose links are so slow that handing a cache over takes long, and others."""
    return space_of(tmp_path_factory.mktemp("links"), LINKS)


def every_pair(asked):
    """Every plan of every pair of chips, with the space of its chips."""
    costs = ServiceCosts(asked)
    worth = Worth(asked, costs.block)
    each = [
        ExactServices(worth, costs.chips, row, row, costs.candidates.varied).space
        for row in range(len(costs.block))
    ]
    prompts, tokens = [prefill_offers(one) for one in each], [decode_offers(one) for one in each]
    for first, sent in zip(each, prompts, strict=True):
        for second, made in zip(each, tokens, strict=True):
            both = replace(first, pool_chips=PoolChips(second.architecture))
            slower = handing_over(first, second)
            for sender in sent:
                yield from (
                    (both, choice)
                    for receiver in made
                    for choice in [paired(slower, sender, receiver)]
                    if choice is not None
                )


def price(asked, space, choice):
    """As documents tell it: by the plan's own figures."""
    plan = serving_plan(choice, space)
    if asked.objective is ServiceObjective.THROUGHPUT:
        return plan.tokens_per_s
    if asked.objective is ServiceObjective.COST_PER_MILLION_TOKENS:
        return 1 / serving_cost(plan, space, asked.budgets.economics).cost_per_million_tokens_usd
    chips = (to_table([space.chip_of(pool.role)]) for pool in plan.pools)
    watts = sum(pool.devices * float(tdp_w(chip)[0]) for pool, chip in zip(plan.pools, chips, strict=True))
    return plan.tokens_per_s / watts


def searched(asked, known=0.0, clock=None):
    return PairSearch(ServiceCosts(asked), known, clock or Clock(math.inf), SilentProgress()).run()


QUESTIONS = [
    ("few", "saturated", "throughput", 3),
    ("few", "saturated", "tokens_per_s_per_w", 3),
    ("few", "stream", "cost_per_million_tokens", 3),
    ("links", "saturated", "throughput", 3),
    ("links", "saturated", "cost_per_million_tokens", 3),
    ("links", "stream", "tokens_per_s_per_w", 3),
]


@pytest.mark.parametrize(("space", "load", "objective", "devices"), QUESTIONS)
def test_the_best_pair_by_force(source, few, links, network, space, load, objective, devices):
    """Of all pairs of chips, replica shapes and batches; with slow links the chips do not separate without bounds."""
    asked = request(source, {"few": few, "links": links}[space], network, load, objective, devices=devices)
    if space == "links":
        asked = replace(asked, plans=replace(asked.plans, targets=Targets(ttft_s=0.05, tpot_s=1e-3)))
    outcome = searched(asked)
    best = max(price(asked, *one) for one in every_pair(asked))
    pair = outcome.pair
    assert outcome.open_worth == 0.0
    assert pair.worth == pytest.approx(best, rel=1e-9)
    assert price(asked, pair.space, pair.choice) == pytest.approx(pair.worth, rel=1e-9)
    assert [pool.chip for pool in pair.plan.pools] == [i.exact.space.architecture.name for i in pair.items]
    assert searched(asked, pair.worth).pair is None


@pytest.mark.parametrize("load", ["saturated", "stream"])
@pytest.mark.parametrize("objective", ["tokens_per_s_per_w", "cost_per_million_tokens"])
def test_no_pool_and_no_pair_beats_its_bounds(source, links, network, load, objective):
    """Every bound of either side on every chip and shape, what it leaves for a pair, and that of exact pools."""
    asked = request(source, links, network, load, objective, devices=3)
    search = PairSearch(ServiceCosts(asked), 0.0, Clock(math.inf), SilentProgress())
    costs, worth, rows = search.costs, search.worth, np.arange(len(search.costs.block))
    room, every, held = costs.room(rows), range(len(costs.sums)), []
    for bound in BOUNDS:
        least = costs.least(bound, every, rows, ENDLESS.ends)
        held.append(search._of_bounds(ServiceBounds(asked.plans, least, room, coarse=bound.coarse)))
    held.append(search._of_bounds(ServiceBounds(asked.plans, costs.tight(rows, every, ENDLESS.ends), room)))
    items = {role: [] for role in SIDES}
    for role in SIDES:
        shapes = search.shapes[role]
        sides = [PoolSide.of(worth, role, shapes, rows, rates[role], 0) for rates in held]
        for row in rows.tolist():
            exact = ExactServices(search._single, costs.chips, row, row, costs.candidates.varied)
            for at, shape in enumerate(shapes):
                item = exact_item(worth, role, exact, shape)
                if item is not None:
                    items[role].append((item, at, row))
                    for side in sides:
                        assert side.device_s[at, row] <= item.device_s * (1 + 1e-9)
                        assert side.prices()[at, row] <= item.price * (1 + 1e-9)
    sides = {role: PoolSide.of(worth, role, search.shapes[role], rows, held[-1][role], 0) for role in SIDES}
    hopes = {
        role: sides[role].hopes(sides[other].reach()) for role, other in zip(SIDES, SIDES[::-1], strict=True)
    }
    pairing, count = Pairing(worth), 0
    for first, i, row in items[SIDES[0]]:
        for second, j, column in items[SIDES[1]]:
            worked = pairing.worked_out(first, second)
            if worked is None:
                continue
            count += 1
            ((most, *_),) = pairing.hopes([first], [second], 0.0)
            assert worked[0] <= most * (1 + 1e-9)
            assert worked[0] <= hopes[SIDES[0]][i, row] * (1 + 1e-9)
            assert worked[0] <= hopes[SIDES[1]][j, column] * (1 + 1e-9)
    assert count > 50


def test_wherever_a_search_is_stopped_its_bound_holds(source, few, network):
    asked, stopped = request(source, few, network), 0
    optimum = searched(asked).pair.worth
    for looks in (*range(0, 12, 2), *range(12, 40, 4), 60, 100):
        clock = Looked(math.inf)
        clock.looks = looks
        outcome = searched(asked, 1.0, clock)
        found = 0.0 if outcome.pair is None else outcome.pair.worth
        assert found <= optimum * (1 + 1e-9)
        assert optimum <= max(found, outcome.open_worth) * (1 + 1e-9)
        stopped += outcome.open_worth > 0
    assert stopped > 3


@pytest.fixture(scope="module")
def answered(source, few, network):
    """A question to which two chips are the better answer, and that answer."""
    asked = request(
        source, few, network, "saturated", "cost_per_million_tokens", devices=3, disaggregate=True
    )
    asked = replace(asked, two_chips=True)
    return asked, find_service(asked, SilentProgress(), Clock(math.inf))


def test_a_second_chip_is_told_beside_the_first(answered):
    _, found = answered
    told, one = found.document.two_chips, found.document.certificate.objective_value
    assert told.optimal
    assert told.gain == pytest.approx(told.objective_value / one - 1)
    assert told.gain > 0
    assert (
        [chip.role for chip in told.chips] == [pool.role for pool in told.best.pools] == ["prefill", "decode"]
    )
    assert told.cost.cost_per_million_tokens_usd == pytest.approx(1 / told.objective_value)
    assert len({chip.id for chip in told.chips}) == 2


def test_a_second_chip_that_buys_nothing_is_proven(source, few, network):
    """Where prompts beside decode on one chip are better than any pools apart."""
    asked = replace(request(source, few, network), two_chips=True)
    told = find_service(asked, SilentProgress(), Clock(math.inf)).document.two_chips
    assert told.optimal
    assert (told.gain, told.chips, told.best, told.second_design) == (0.0, [], None, None)
    assert max(price(asked, *one) for one in every_pair(asked)) <= told.objective_value


@pytest.mark.parametrize("volume", [1e3, 1e5])
def test_what_a_second_design_must_save_by_hand(answered, network, volume):
    """Both fleets make as many tokens; every chip is shared by as many as its fleet has of it."""
    _, found = answered
    pair, economics = found.pair, Economics().changed(volume_chips=volume)
    one, two = Fleet.of(found.plan, found.space), Fleet.of(pair.plan, pair.space)
    told = second_design(one, two, economics)
    of_a_chip = found.plan.tokens_per_s / found.plan.devices

    def cost(fleet, chips):
        """USD of a million tokens in the place of so many of the one chip."""
        made, usd = fleet.plan.tokens_per_s, 0.0
        for at, (chip, devices) in enumerate(fleet.chips):
            own = fleet.plan.pools if len(fleet.chips) == 1 else fleet.plan.pools[at : at + 1]
            watts = sum(pool.energy_per_token_j for pool in own) * made
            shared = Economics().changed(volume_chips=chips * of_a_chip * devices / made)
            table = to_table([chip])
            every = fleet.plan.devices
            rates = cluster_rates(table, area_mm2(table), tdp_w(table), every, network, shared)
            usd += float(rates.usd.total(devices / every, watts)[0])
        return usd / made * 1e6

    gain = told.saved_per_million_tokens_usd - told.must_save_per_million_tokens_usd
    assert gain == pytest.approx(cost(one, volume) - cost(two, volume), rel=1e-6)
    assert told.pays == (gain >= 0)
    assert told.pays_from_chips is not None
    assert cost(one, 1.01 * told.pays_from_chips) > cost(two, 1.01 * told.pays_from_chips)
    assert cost(one, 0.99 * told.pays_from_chips) < cost(two, 0.99 * told.pays_from_chips)


def test_nobody_designs_what_is_rented(answered):
    _, found = answered
    fleets = Fleet.of(found.plan, found.space), Fleet.of(found.pair.plan, found.pair.space)
    assert second_design(*fleets, Economics().changed(rent_usd_per_device_hour=2.0)) is None


@pytest.mark.parametrize("name", ["default", "hgx-h100", "nvl72"])
def test_a_device_of_a_larger_cluster_costs_no_less(few, name):
    """On which the price of a pool rests whose size is not known yet."""
    table, network = few.table(np.arange(8)), load_network(name)
    priced = area_mm2(table), tdp_w(table)
    each = [
        cluster_rates(table, *priced, devices, network, Economics()).usd.total(1.0, 0.0) / devices
        for devices in (1, 2, 3, 8, 9, 16, 17, 64, 72, 73, 300, 2000)
    ]
    assert (np.diff(each, axis=0) >= -1e-15 * each[0]).all()


def test_what_does_not_separate_is_refused(source, few, network):
    for load, more, said in (
        ("clients", {}, "separate pools"),
        ("saturated", {"disaggregate": False}, "separate pools"),
        ("saturated", {"devices": 1}, "two devices at least"),
    ):
        with pytest.raises(InputError, match=said):
            replace(request(source, few, network, load, **more), two_chips=True)
