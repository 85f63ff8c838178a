"""Experts that some tokens want more than others: memory, time, the simulator, and the search for a chip."""

from __future__ import annotations

import pytest
from serving_cases import served, served_mixture, space

from phaze.errors import InputError
from phaze.parallel.serving.replicas.model_replica import replica_memory
from phaze.parallel.serving.serving_requests import Traffic
from phaze.parallel.serving.serving_search import best_of
from phaze.parallel.serving.serving_trial import trial
from phaze.workload.expert_load import ExpertLoad

ONE_EXPERT = 3 * 3 * 512 * 1024 * 2  # bytes of an expert in all three layers
TRAFFIC = Traffic(256, 64)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served_mixture(tmp_path_factory.mktemp("mixture"))


def replica(source, load, width=1, together=4, **more):
    made = space(source, devices=4, batch=64, traffic=TRAFFIC, expert_load=load, **more)
    return made.replica(width, 1, together)


def test_the_fullest_device_does_as_many_rows_as_its_experts_are_wanted(source):
    """Two of eight experts a device: the most wanted one and a middling one, of 4 devices with 64 tokens each."""
    load = ExpertLoad(1.0)
    chances = load.chances(8, 2)
    chain = replica(source, load).grid.token_chains[6]
    assert chain.microbatch == 64
    ups = [w for layer in chain.layers for w in layer.forward.works if w.name.startswith("up")]
    rows = 4 * 64 * (chances[0] + chances[4])
    assert {w.gemms[0].groups for w in ups} == {2}
    assert {w.gemms[0].m for w in ups} == {-(-rows // 2)}
    links = [w.link for layer in chain.layers for w in layer.forward.works if w.link]
    even = [
        w.link
        for layer in replica(source, None).grid.token_chains[6].layers
        for w in layer.forward.works
        if w.link
    ]
    for one, other in zip(links, even, strict=True):
        assert one.payload_bytes == pytest.approx(other.payload_bytes * rows / (64 * 2))


def test_copies_take_memory_and_save_time(source):
    by_number, copied, even = (replica(source, load) for load in (ExpertLoad(1.0), ExpertLoad(1.0, 4), None))
    weights = [float(replica_memory(r, 1, 0, 1).weight_bytes) for r in (by_number, copied, even)]
    assert weights[0] == weights[2]
    assert weights[1] - weights[0] == pytest.approx(ONE_EXPERT)  # one place more for each of four devices
    assert (by_number.grid.redundant_experts, copied.grid.redundant_experts) == (0, 4)
    times = [float(r.pass_costs(8, 256)[0, 0]) for r in (by_number, copied, even)]
    busy = [float(r.grid.tokens.at(512)[:, 0].sum()) for r in (by_number, copied, even)]
    assert busy[0] > busy[1] > 0.999 * busy[2]
    assert times[0] >= times[1] * 0.999


def test_alone_no_device_has_more_than_another(source):
    """One device has all rows however they fall; fewer experts are reached, so that fewer weights are read."""
    skewed, even = (replica(source, load, together=1).grid for load in (ExpertLoad(1.5), None))
    assert float(skewed.weight_bytes.sum()) == float(even.weight_bytes.sum())
    assert float(skewed.tokens.at(4)[:, 0].sum()) < float(even.tokens.at(4)[:, 0].sum())


def test_the_simulator_sees_the_same_load(source):
    made = space(
        source,
        devices=4,
        batch=64,
        traffic=Traffic(256, 64, clients=64),
        expert_load=ExpertLoad(1.0, 4),
        disaggregate=False,
    )
    plan = best_of(made)
    found = trial(plan, made, 600, 0)
    assert found.tpot.mean_s == pytest.approx(plan.tpot_s, rel=0.1)


def test_a_model_without_experts_has_no_load_of_them(tmp_path):
    made = space(served(tmp_path), expert_load=ExpertLoad(1.0))
    with pytest.raises(InputError, match="no experts whose load could be uneven"):
        best_of(made)
