"""The chip for a service against brute force, which plans every architecture by itself and prices every plan."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from serving_cases import served, served_mixture

from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.explore.documents.serving_document import serving_cost
from phaze.explore.request.explore_request import Budgets
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.services.exact_services import ExactServices
from phaze.explore.services.service_answer import distinct_services, find_service
from phaze.explore.services.service_costs import BOUNDS
from phaze.explore.services.service_request import ServiceObjective, ServiceRequest
from phaze.explore.services.service_search import ServiceSearch
from phaze.hardware.architecture import to_table
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space
from phaze.inputs.options.search_options import RunOptions
from phaze.inputs.run_inputs import make_service
from phaze.parallel.serving import Policy, ServingOptions, ServingSpace, Targets, Traffic
from phaze.parallel.serving.bounds.least_passes import GridSums
from phaze.parallel.serving.bounds.service_bounds import ServiceBounds
from phaze.parallel.serving.pools.disaggregated_pools import decode_offers, pairs, prefill_offers
from phaze.parallel.serving.pools.one_pool import made_offers
from phaze.parallel.serving.replicas.layer_grid import Served
from phaze.parallel.serving.replicas.replica_offers import chosen
from phaze.parallel.serving.serving_engine import ServingEngine
from phaze.parallel.serving.serving_search import serving_plan
from phaze.workload.expert_load import ExpertLoad
from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.operators.low_precision import Recipe

LOADS = {"saturated": {}, "clients": {"clients": 9}, "stream": {"rate_per_s": 150.0}, "short": {}}
SHORT = 32, 5  # two of eight sequences end in a pass, so that prompts share it
ENGINE = ServingEngine(
    name="slow",
    source="made up for tests",
    step_s=2e-5,
    sequence_s=2e-6,
    expert_layer_s=1e-5,
    request_s=1e-3,
    pass_tokens=128,
    policies=(Policy.CHUNKED,),
)
TARGETS = Targets(ttft_s=0.05, tpot_s=4e-3)
PROMPT, OUTPUT, BATCH = 256, 40, 8


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def model(source):
    """The decoder as all questions of brute force load it, once."""
    return Served(source, KvCache.PAGED)


@pytest.fixture(scope="module")
def chips():
    """Architectures of brute force by number, each costed by itself, once for all questions."""
    return {}


FEW = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 5]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [tensor_core_columns], values: [128]}
  - {fields: [vector_cores, vector_core_alus], values: [[1, 64], [3, 1024]]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """16 architectures of very different balance."""
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(FEW)
    return load_space(path)


def request(source, space, network, load="saturated", objective="throughput", *, devices=2, **more):
    options = ServingOptions(largest_batch=BATCH, **more)
    traffic = Traffic(*(SHORT if load == "short" else (PROMPT, OUTPUT)), **LOADS[load])
    plans = ServingSpace(source, space.base, devices, network, traffic, TARGETS, options)
    return ServiceRequest(plans, space, Budgets(power_w=400.0), ServiceObjective(objective))


def choices(space):
    """Every plan of one architecture that keeps the limits."""
    for replica in space.replicas:
        for chunk in space.pass_sizes:
            cycle = space.cycle(replica, chunk)
            policy = Policy.PREFILL_FIRST if chunk is None else Policy.CHUNKED
            offers = made_offers(space, cycle)
            for at in np.flatnonzero(offers.kept).tolist():
                yield chosen(policy, replica, offers, at, chunk or PROMPT, space.traffic.rate_per_s)
    if space.apart:
        yield from pairs(space, prefill_offers(space), decode_offers(space))


def price(asked, space, plan):
    if asked.objective is ServiceObjective.THROUGHPUT:
        return plan.tokens_per_s
    if asked.objective is ServiceObjective.TOKENS_PER_S_PER_W:
        return plan.tokens_per_s / (plan.devices * float(tdp_w(to_table([space.architecture]))[0]))
    return 1 / serving_cost(plan, space, asked.budgets.economics).cost_per_million_tokens_usd


def by_force(asked, model, chips):
    best = 0.0
    for number in ServiceSearch(asked, Clock(math.inf), SilentProgress()).block.numbers.tolist():
        chip = asked.space.architecture(number)
        alone = replace(asked.plans, architecture=chip, known_model=model, known_chip=chips.get(number))
        chips[number] = alone.chip
        best = max([best, *(price(asked, alone, serving_plan(one, alone)) for one in choices(alone))])
    return best


@pytest.mark.parametrize(
    ("load", "objective"),
    [
        ("saturated", "throughput"),
        ("clients", "tokens_per_s_per_w"),
        ("stream", "cost_per_million_tokens"),
    ],
)
def test_the_best_service_by_force(source, few, network, model, chips, load, objective):
    asked = request(source, few, network, load, objective)
    found = find_service(asked, SilentProgress(), Clock(math.inf))
    proof = found.document.certificate
    assert proof.optimal
    assert proof.objective_value == pytest.approx(by_force(asked, model, chips), rel=1e-9)
    assert price(asked, found.space, found.plan) == pytest.approx(proof.objective_value, rel=1e-9)
    assert proof.space_size == proof.over_budget + proof.evaluated + proof.pruned
    assert sum(proof.pruned_by.values()) == proof.pruned
    assert found.plan.tpot_s <= TARGETS.tpot_s
    assert found.plan.ttft_s <= TARGETS.ttft_s


@pytest.mark.parametrize("load", ["saturated", "clients"])
def test_the_best_service_under_an_engine(source, few, network, model, chips, load):
    """What the engine adds makes another plan the best, which the proof finds."""
    asked = request(source, few, network, load, "throughput", engine=ENGINE)
    found = find_service(asked, SilentProgress(), Clock(math.inf))
    assert found.document.certificate.optimal
    assert found.document.certificate.objective_value == pytest.approx(
        by_force(asked, model, chips), rel=1e-9
    )
    free = find_service(request(source, few, network, load), SilentProgress(), Clock(math.inf))
    assert found.plan.tokens_per_s < free.plan.tokens_per_s
    assert found.document.request["engine"] == "slow"


def one_key(folder):
    """The decoder with one key-value head, which tensor groups repeat."""
    path = folder / "one.yaml"
    path.write_text(Path(served(folder)).read_text().replace("kv_heads: 4", "kv_heads: 1"))
    return str(path)


SOFTWARE = {
    "engine": {"engine": ENGINE},
    "skew": {"expert_load": ExpertLoad(1.0, 4), "chunk": 64},
    "parts": {"context_parallel": 2},
}


@pytest.mark.parametrize(
    ("made", "load"),
    [
        (served, "engine"),
        (served_mixture, "engine"),
        (served_mixture, "skew"),
        (one_key, "parts"),
        (served, "saturated"),
        (served, "stream"),
        (served, "short"),
        (served_mixture, "clients"),
    ],
)
def test_no_way_serves_more_than_its_bound(tmp_path, few, network, load, made):
    """Both bounds, on every architecture of the space, of every replica shape and policy."""
    if load in SOFTWARE:
        load, options = "saturated", SOFTWARE[load]
        check_bounds(request(made(tmp_path), few, network, load, devices=3, **options))
        return
    options = {"chunk": 64} if made is served_mixture else {"disaggregate": False} if load == "short" else {}
    check_bounds(request(made(tmp_path), few, network, load, "cost_per_million_tokens", devices=3, **options))


def check_bounds(asked):
    """No way of any architecture is worth more than any of its bounds."""
    search = ServiceSearch(asked, Clock(math.inf), SilentProgress())
    rows = np.arange(len(search.block))
    tight = ServiceBounds(
        asked.plans, tuple(of.tight(search.costs.chips) for of in search.costs.sums), search.costs.room(rows)
    )
    hoped = [search._way_hopes(tight, rows, search._groups)]
    for bound in BOUNDS:
        least, room = search._least(bound, search._every, rows), search.costs.room(rows)
        bounds = ServiceBounds(asked.plans, least, room, coarse=bound.coarse)
        hoped.append(search._way_hopes(bounds, rows, search._groups))
    kept = 0
    for row in rows[::4].tolist():
        exact = ExactServices(search.worth, search.costs.chips, row, row, search.costs.candidates.varied)
        for number, way in enumerate(search.ways):
            service = exact.best(way)
            if service is not None:
                kept += 1
                assert all(service.worth <= one[number, row] for one in hoped), way
                service.plan  # noqa: B018 - checked when it is made
    assert kept > 8


def test_bounds_are_tight_where_nothing_is_left_out(source, few, network):
    """One device, one stage: passes of a decoder run one operator after the other, so that bounds nearly meet them."""
    asked = request(source, few, network, devices=1, disaggregate=False)
    search = ServiceSearch(asked, Clock(math.inf), SilentProgress())
    least = tuple(GridSums(grid).tight(search.costs.chips) for grid in asked.plans.grids)
    hopes = search._way_hopes(
        ServiceBounds(asked.plans, least, search.costs.room(np.arange(len(search.block)))),
        np.arange(len(search.block)),
        search._groups,
    )
    exact = ExactServices(search.worth, search.costs.chips, 0, 0, search.costs.candidates.varied)
    for number, way in enumerate(search.ways):
        service = exact.best(way)
        if service is not None:
            assert hopes[number, 0] <= 1.1 * service.worth


def test_refusals(source, few, network):
    with pytest.raises(InputError, match="a rate fixes the throughput"):
        request(source, few, network, "stream")
    asked = request(source, few, network)
    never = replace(asked, plans=replace(asked.plans, targets=Targets(ttft_s=1e-6)))
    with pytest.raises(InfeasibleError, match="nearest one") as refused:
        find_service(never, SilentProgress(), Clock(math.inf))
    assert refused.value.shortfalls[0].demand > 1e-6
    with pytest.raises(InfeasibleError, match="keeps the budgets"):
        find_service(replace(asked, budgets=Budgets(power_w=1.0)), SilentProgress(), Clock(math.inf))


GROUPED = """
schema_version: 1
name: grouped
axes:
  - {fields: [tensor_cores], values: [4, 8]}
  - {fields: [vector_cores, vector_core_alus], values: [[1, 1024], [2, 512]]}
"""


def test_chips_that_group_the_same_cores_otherwise_are_told_once(source, network, tmp_path):
    path = tmp_path / "grouped.yaml"
    path.write_text(GROUPED)
    asked = request(source, load_space(path), network, disaggregate=False, chunk=256)
    search = ServiceSearch(asked, Clock(math.inf), SilentProgress())
    exact = [
        ExactServices(search.worth, search.costs.chips, row, row, search.costs.candidates.varied)
        for row in range(4)
    ]
    services = sorted((one.best(search.ways[0]) for one in exact), key=lambda one: -one.worth)
    kinds = distinct_services(services, asked)
    cores = [one.space.architecture.fields["tensor_cores"] for one in kinds]
    assert kinds[0] is services[0]
    assert sorted(cores) == [4, 8]


def test_nothing_may_be_left_after_the_first_sample(source, network, tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("schema_version: 1\nname: one\naxes:\n  - {fields: [tensor_cores], values: [4]}\n")
    asked = request(source, load_space(path), network, disaggregate=False, chunk=256)
    assert find_service(asked, SilentProgress(), Clock(math.inf)).document.certificate.evaluated == 1


def test_a_search_that_is_stopped_bounds_what_is_left(source, few, network):
    asked = request(source, few, network)
    with pytest.raises(OutOfTimeError, match="time limit"):
        find_service(asked, SilentProgress(), Clock(0.0))


class Looked(Clock):
    """Time is over after so many looks at it."""

    looks = 0

    @property
    def over(self):
        self.looks -= 1
        return self.looks < 0

    def left(self):
        return 0.0 if self.over else math.inf


@pytest.mark.parametrize("load", ["saturated", "clients"])
def test_wherever_a_search_is_stopped_its_bound_holds(source, few, network, load):
    asked, stopped = request(source, few, network, load, disaggregate=False), 0  # with something known
    optimum = ServiceSearch(asked, Clock(math.inf), SilentProgress()).run().services[0].worth
    for looks in [*range(0, 90, 3), *range(90, 900, 45)]:
        clock = Looked(math.inf)
        clock.looks = looks
        search = ServiceSearch(asked, clock, SilentProgress())
        outcome = search.run()
        worths = [service.worth for service in outcome.services]
        assert max(worths, default=0.0) <= optimum <= max([*worths, *outcome.open_worth])
        assert outcome.evaluated + sum(outcome.pruned_by.values()) == outcome.in_budget
        assert min(outcome.pruned_by.values()) >= 0
        assert outcome.pruned_by["open"] == len(outcome.open_worth)
        stopped += bool(worths) and len(outcome.open_worth) > 0
    assert stopped > 3


TWO_FORMATS = """
schema_version: 1
name: two-formats
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [precision], values: [bf16, bf16+fp8]}
  - {fields: [vector_cores, vector_core_alus], values: [[3, 1024]]}
"""


@pytest.fixture(scope="module")
def two_formats(tmp_path_factory):
    path = tmp_path_factory.mktemp("formats") / "two-formats.yaml"
    path.write_text(TWO_FORMATS)
    return path


def test_the_best_service_in_few_bits_by_force(source, two_formats, network):
    """Arrays of 16 and of 8 bits in one space."""
    asked = request(source, load_space(two_formats), network, recipe=Recipe.FP8)
    found = find_service(asked, SilentProgress(), Clock(math.inf))
    in_few = Served(source, KvCache.PAGED, None, Recipe.FP8)
    assert found.document.certificate.optimal
    assert found.document.certificate.objective_value == pytest.approx(by_force(asked, in_few, {}), rel=1e-9)
    assert found.document.chip.architecture["precision"] == "bf16+fp8"


@pytest.mark.parametrize("fixed", [(), ("precision=bf16+fp8",)])
def test_formats_are_those_of_the_space(source, two_formats, fixed):
    """Not those of its base, whose arrays have 16 bits."""
    options = {"workload": [source], "serve": "saturated", "space": str(two_formats), "recipe": "fp8"}
    asked = make_service(RunOptions(**options, fix=list(fixed)))
    assert asked.plans.options.recipe is Recipe.FP8
    with pytest.raises(InputError, match="needs arrays that are faster on fp8"):
        make_service(RunOptions(**options, fix=["precision=bf16"]))
