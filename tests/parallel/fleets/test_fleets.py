"""Fleets of unlike devices: ordinary plans in one pool, every pipeline across two by brute force, links and files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_fleets import TIED_BYTES, every_pipeline, fleet_of, search_of

from phaze.errors import InfeasibleError, InputError
from phaze.explore.plans.fleet_planning import FleetObjective, FleetPlanning
from phaze.explore.plans.plan_search import find_best_plan
from phaze.parallel.fleets.fleet_file import Fleet, ZoneLink, load_fleet
from phaze.parallel.fleets.unlike_checker import check_unlike
from phaze.parallel.fleets.unlike_pipeline import UnlikePipeline
from phaze.parallel.recount.plan_checker import PlanError
from phaze.parallel.training.mixed_estimate import MixedEstimator


@pytest.mark.parametrize(
    ("devices", "link", "objective"),
    [
        ((2, 2), None, FleetObjective.THROUGHPUT),
        ((1, 3), ZoneLink(1e9, 1e-4, 2e-11), FleetObjective.THROUGHPUT),
        ((2, 2), ZoneLink(5e8, 1e-4, 2e-9), FleetObjective.COST),
        ((2, 1), None, FleetObjective.ENERGY),
    ],
)
def test_the_best_pipeline_is_that_of_all(task, devices, link, objective):
    """The search ends without a gap, and no pipeline that brute force works out is better."""
    planning, search = search_of(fleet_of(devices, link), task, objective, most_looks=10_000)
    found = search.best()
    values = [search.value(one) for one in every_pipeline(search)]
    assert found.value == pytest.approx(min(values), rel=1e-12)
    assert found.bound == found.value
    assert search.tally.looked_at <= len(values)
    check_unlike(found.pipeline, {m.pool.name: m.capacity_bytes for m in planning.members})


def test_joules_are_not_dollars(task):
    """A path for which a gigabyte costs a thousand dollars does not keep a plan from being the most frugal."""
    dear = fleet_of((2, 1), ZoneLink(5e8, 1e-4, 1e-6))
    _, search = search_of(dear, task, FleetObjective.ENERGY, most_looks=10_000)
    watts = {member.pool.name: member.rate for member in search.members}
    pipelines = list(every_pipeline(search))
    joules = [p.iteration.iteration_s * sum(watts[k] * n for k, n in p.used.items()) for p in pipelines]
    least = min(range(len(joules)), key=joules.__getitem__)
    assert pipelines[least].egress_usd > 0.1 * joules[least]
    found = search.best()
    assert found.value == found.bound == pytest.approx(joules[least], rel=1e-12)


def test_a_bound_that_holds_where_looks_run_out(task):
    _, search = search_of(fleet_of(), task, most_looks=1)
    early = search.best()
    _, search = search_of(fleet_of(), task, most_looks=10_000)
    best = search.best()
    assert early.bound <= best.value <= early.value


def test_a_fleet_of_one_pool_is_dse_plan(task):
    fleet = fleet_of()
    one = Fleet("one", fleet.pools[:1], {})
    found = FleetPlanning(one, task, FleetObjective.THROUGHPUT).answer()
    plan = find_best_plan(replace(task, devices=2), one.pools[0].chip)
    assert found.best.plan == plan.best
    assert found.best.iteration_time_s == plan.best.iteration_time_s
    assert found.best.mfu == pytest.approx(plan.best.mfu, rel=1e-12)
    assert (found.certificate.optimal, found.certificate.gap) == (True, 0)


def test_the_whole_answer(task):
    found = FleetPlanning(fleet_of(), task, FleetObjective.COST).answer()
    costs = [one.cost_per_sample_usd for one in (found.best, *found.others)]
    assert costs == sorted(costs)
    certificate = found.certificate
    assert certificate.lower_bound <= certificate.value == pytest.approx(costs[0] * 8)
    prices = {"a100": 3.6, "v100": 1.8}
    for one in (found.best, *found.others):
        hourly = sum(prices[name] * n for name, n in one.pools.items())
        assert one.cost_per_iteration_usd == pytest.approx(
            hourly / 3600 * one.iteration_time_s + one.egress_usd
        )


def test_pools_alike_are_a_mixed_pipeline(task):
    """On one network and of one width it is the pipeline of mixed architectures that WHAM's search works out."""
    _, search = search_of(fleet_of(), task)
    pipeline = next(
        one
        for one in every_pipeline(search)
        if {p.plan.width for p in one.places} == {1} and len(one.places) == 2
    )
    from phaze.explore.evaluation.planned_iteration import estimator_of
    from phaze.hardware.architecture import to_table

    chips = to_table([place.pool.chip for place in pipeline.places])
    mixed = MixedEstimator.of(estimator_of(task, chips), (0, 1)).iteration(pipeline.plan)
    assert pipeline.iteration.iteration_s == pytest.approx(mixed.iteration_s, rel=1e-12)
    assert [m.total_bytes for m in pipeline.memory] == [m.total_bytes for m in mixed.memory]


def test_links_take_time_and_money(task):
    times, cost = [], []
    for rate in (1e12, 1e8, 1e6):
        _, search = search_of(fleet_of(link=ZoneLink(rate, 0.0, 1e-9)), task)
        one = next(p for p in every_pipeline(search) if len(p.places) == 2)
        times.append(one.iteration.iteration_s)
        cost.append(one.egress_usd)
    assert times == sorted(times)
    sent = 2 * one.microbatches * one.crossing_bytes.sum()
    assert cost == pytest.approx([(sent + 2 * TIED_BYTES) * 1e-9] * 3)
    assert times[-1] >= sent / 2 / 1e6  # no faster than the link sends one way


def test_wrong_figures_do_not_pass(task, monkeypatch):
    planning, search = search_of(fleet_of(link=ZoneLink(1e9, 1e-4, 2e-11)), task)
    one = next(p for p in every_pipeline(search) if len(p.places) == 2)
    rooms = {m.pool.name: m.capacity_bytes for m in planning.members}
    check_unlike(one, rooms)
    with pytest.raises(PlanError, match="needs"):
        check_unlike(one, dict.fromkeys(rooms, 1e6))
    with monkeypatch.context() as patch, pytest.raises(PlanError, match="egress: 1e-05 USD, counted again"):
        patch.setattr(UnlikePipeline, "egress_usd", 1e-5)
        check_unlike(one, rooms)
    wrong = replace(one.iteration, iteration_s=one.iteration.iteration_s * 1.01)
    one.__dict__["iteration"] = wrong
    with pytest.raises(PlanError, match="iteration"):
        check_unlike(one, rooms)


FILE = """
schema_version: 1
name: mix
pools:
  - {name: a, chip: a100, devices: 2, price: 3.6, zone: one}
  - {name: b, chip: v100, devices: 2, network: dgx1-v100, price: 2.8, zone: two}
  - {name: c, chip: h100, devices: 8, available: false}
links:
  - {between: [one, two], bandwidth: 10GB/s, latency: 1ms, egress_price: 0.01, source: made up}
"""


def test_a_file(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE)
    fleet = load_fleet(path)
    assert [pool.name for pool in fleet.pools] == ["a", "b"]
    assert fleet.devices == 4
    assert fleet.link(*fleet.pools).transfer_s(1e9) == pytest.approx(0.101)
    assert fleet.link(*fleet.pools).egress_usd == pytest.approx(1e-11)
    assert fleet.link(fleet.pools[0], fleet.pools[0]) is None


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("chip: a100", "chip: a1000", "no architecture is named 'a1000'"),
        ("price: 3.6", "price: 0", "price"),
        ("name: b", "name: a", "two pools are called a"),
        ("devices: 2", "devices: 0", "devices in a pool"),
        ("[one, two]", "[one, three]", "no pool is in a zone three"),
        ("[one, two]", "[one, one]", "two zones"),
        ("zone: two", "zone: three", "no pool is in a zone two"),
    ],
)
def test_files_that_make_no_sense(tmp_path, wrong, right, told):
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE.replace(wrong, right, 1))
    with pytest.raises(InputError, match=told):
        load_fleet(path)


def test_zones_without_a_link(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE[: FILE.index("links:")])
    with pytest.raises(InputError, match="none joins the zones one and two"):
        load_fleet(path)
    path.write_text(FILE.replace("devices: 2,", "devices: 2, available: false,"))
    with pytest.raises(InputError, match="none of the pools is available"):
        load_fleet(path)


def test_degrees_that_a_pool_alone_does_not_have(task):
    """Three stages need both pools; on half of a pool there is no plan of two replicas."""
    deep = replace(task, held={**task.held, "pipeline": (3,), "data": (1,), "tensor": (1,)})
    found = FleetPlanning(fleet_of(), deep, FleetObjective.THROUGHPUT).answer()
    assert len(found.best.pipeline.stages) == 3
    assert sorted(found.unfit) == ["a100", "v100"]
    wide = replace(task, held={**task.held, "data": (2,), "tensor": (1,), "pipeline": (1,)})
    assert FleetPlanning(fleet_of(), wide, FleetObjective.COST).answer().best.plan.devices_used == 2


def test_what_cannot_be_answered(task):
    with pytest.raises(InputError, match="needs a price of every pool; v100 has none"):
        FleetPlanning(fleet_of(prices=(3.6, None)), task, FleetObjective.COST).answer()
    small = replace(task, framework=task.framework.model_copy(update={"reserved_bytes": 1e12}))
    with pytest.raises(InfeasibleError, match="cannot hold"):
        FleetPlanning(fleet_of(), small, FleetObjective.THROUGHPUT).answer()
