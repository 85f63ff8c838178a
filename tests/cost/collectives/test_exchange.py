"""The fastest algorithm: never above any, never below what must cross each tier, and faster on better networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.collectives.collective_times import algorithms_s, collective_s, fastest_s, least_link_s
from phaze.cost.kernels.link_constants import with_laws
from phaze.hardware.cluster_network import Network, list_networks, load_network, two_tiers
from phaze.hardware.network_tiers import Algorithm, LinkLaw, Tier, Topology
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Link

NAMES = list_networks()
MANY = settings(max_examples=150, deadline=None, derandomize=True)
GROUPS = st.tuples(st.integers(2, 48), st.sampled_from([1, 1, 1, 2, 3, 8]))
FAMILIES = st.sampled_from([None, "generic", "ampere", "hopper"])


def network_of(name, family):
    return load_network(name) if family is None else with_laws(load_network(name), family)


@MANY
@given(st.sampled_from(NAMES), FAMILIES, st.sampled_from(list(Collective)), GROUPS, st.floats(1, 1e11))
def test_between_its_bound_and_every_algorithm(name, family, collective, group, payload):
    network, (size, stride) = network_of(name, family), group
    found = algorithms_s(collective, payload, network, 300e9, size, stride)
    fastest = fastest_s(collective, payload, network, 300e9, size, stride)
    assert fastest == min(found.values())
    link = Link(collective, payload, Group(Parallel.TENSOR, size, stride))
    assert 0 < least_link_s(link, network, 300e9) <= fastest * (1 + 1e-12)


@MANY
@given(
    st.sampled_from(NAMES),
    FAMILIES,
    st.sampled_from(list(Collective)),
    GROUPS,
    st.floats(1, 1e11),
    st.floats(1, 100),
)
def test_more_bandwidth_is_never_slower_and_more_bytes_never_faster(
    name, family, collective, group, payload, factor
):
    network, (size, stride) = network_of(name, family), group
    seconds = fastest_s(collective, payload, network, 300e9, size, stride)
    wider = network.model_copy(
        update={
            "tiers": tuple(
                tier.changed(tier.bandwidth_bytes_per_s and factor * tier.bandwidth_bytes_per_s)
                for tier in network.tiers
            )
        }
    )
    assert fastest_s(collective, payload, wider, factor * 300e9, size, stride) <= seconds * (1 + 1e-12)
    assert fastest_s(collective, factor * payload, network, 300e9, size, stride) >= seconds * (1 - 1e-12)


def test_a_ring_on_one_tier_is_alpha_beta():
    network = two_tiers(8, None, 1e-6, 50e9, 5e-6)
    for collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
        found = algorithms_s(collective, 1e7, network, 300e9, 6)
        assert found[Algorithm.RING] == pytest.approx(collective_s(collective, 1e7, 6, 300e9, 1e-6))
        assert Algorithm.HALVING_DOUBLING not in found  # six is no power of two
        assert Algorithm.HIERARCHICAL not in found


def test_steps_decide_on_short_messages_and_bytes_on_long_ones():
    network = Network(name="switch", tiers=(Tier(devices=None, law=LinkLaw(step_s=1e-6)),))
    short, long = np.array([1.0]), np.array([1e10])
    for payload, best in ((short, Algorithm.TREE), (long, Algorithm.RING)):
        found = algorithms_s(Collective.ALL_REDUCE, payload, network, 300e9, 7)
        assert min(found, key=lambda a: float(found[a][0])) is best


def test_switches_that_reduce_spare_almost_half_of_the_bytes():
    tier = Tier(devices=8, bandwidth_bytes_per_s=100e9, in_network=True)
    found = algorithms_s(Collective.ALL_REDUCE, 1e9, Network(name="sharp", tiers=(tier,)), 0.0, 8)
    assert found[Algorithm.IN_NETWORK] == pytest.approx(1e9 / 100e9)
    assert found[Algorithm.RING] == pytest.approx(1.75e9 / 100e9)
    part = algorithms_s(Collective.ALL_REDUCE, 1e9, Network(name="sharp", tiers=(tier,)), 0.0, 4)
    assert Algorithm.IN_NETWORK not in part  # only all of a domain


@pytest.mark.parametrize("name", ["hgx-h100", "hgx-a100", "nvl72", "pcie4"])
@pytest.mark.parametrize("payload", [1e4, 1e8])
def test_latency_grows_with_the_logarithm_of_nodes_and_bytes_saturate(name, payload):
    """Sixteen times the nodes add as many steps of a tree, whatever their number; a ring alone pays for each."""
    network = with_laws(load_network(name), "hopper")
    node = max(tier.devices or 1 for tier in network.tiers)
    devices = [node * nodes for nodes in (16, 256, 4096)]
    few, some, many = (float(fastest_s(Collective.ALL_REDUCE, payload, network, 0.0, n)) for n in devices)
    assert many - some <= 1.2 * (some - few) + 1e-9
    rings = network.model_copy(update={"algorithms": (Algorithm.RING,)})
    ring = float(fastest_s(Collective.ALL_REDUCE, payload, rings, 0.0, devices[-1]))
    assert ring > 5 * many


def test_trees_between_nodes_are_chains_inside_them():
    law = LinkLaw(step_s=1e-6)
    network = load_network("hgx-a100").model_copy(update={"algorithms": (Algorithm.NODE_TREE,)})
    tiers = tuple(tier.changed(law=law) for tier in network.tiers)
    network = network.model_copy(update={"tiers": tiers})
    found = algorithms_s(Collective.ALL_REDUCE, 8e9, network, 0.0, 8 * 16)
    steps_s = 2 * (7 + 4) * 1e-6  # up and down: seven hops inside a node, four between sixteen of them
    assert found[Algorithm.NODE_TREE] == pytest.approx(steps_s + 2 * 8e9 / 8 / 25e9)  # eight adapters a node
    assert not algorithms_s(Collective.ALL_REDUCE, 8e9, network, 0.0, 8)  # none inside one


def test_a_shared_path_carries_what_all_members_exchange():
    tiers = (
        Tier(devices=2, bandwidth_bytes_per_s=100e9),
        Tier(devices=8, topology=Topology.SHARED, bandwidth_bytes_per_s=10e9),
    )
    network = Network(name="staged", tiers=tiers, algorithms=(Algorithm.RING, Algorithm.PAIRWISE))
    four, eight = (float(fastest_s(Collective.ALL_REDUCE, 1e9, network, 0.0, n)) for n in (4, 8))
    assert four == pytest.approx(2 * 2 * 3 / 4 * 1e9 / 10e9)  # two hops of a ring leave a pair
    assert eight == pytest.approx(4 * 2 * 7 / 8 * 1e9 / 10e9)
    everyone = float(fastest_s(Collective.ALL_TO_ALL, 1e9, network, 0.0, 8))
    assert everyone == pytest.approx(8 * 6 / 8 * 1e9 / 10e9)
    assert fastest_s(Collective.SEND_RECV, 1e9, network, 0.0, 2, 2) == pytest.approx(0.1)


@pytest.mark.parametrize(("together", "adapters"), [(1, 1), (2, 2), (4, 4), (8, 4)])
def test_a_group_alone_drives_an_adapter_with_each_device_while_there_are_some(together, adapters):
    tiers = (Tier(devices=8), Tier(devices=None, bandwidth_bytes_per_s=5e9, adapters=4))
    alone = Network(name="four adapters", tiers=tiers).alone(together)
    assert together * alone.scale_out_bandwidth_bytes_per_s == pytest.approx(adapters * 10e9)


def test_terms_beyond_alpha_beta_by_hand():
    law = LinkLaw(2e-6, 1e-6, 0.5, gamma=0.1, delta=0.2, epsilon=0.3, fan_in=2.0, ramp_s=1e-5)
    network = Network(name="law", tiers=(Tier(devices=None, bandwidth_bytes_per_s=100e9, law=law),))
    found = algorithms_s(Collective.ALL_REDUCE, 1e6, network, 0.0, 4)
    wire = (6 / 4 + 0.1 * 3 / 4 + 0.2 / 4) * 1e6 / 50e9
    assert found[Algorithm.RING] == pytest.approx(2e-6 + 6e-6 + wire + (1e-5 * wire) ** 0.5)
    crowded = algorithms_s(Collective.ALL_TO_ALL, 1e6, network, 0.0, 4)
    wire = (3 / 4 * (1 + 0.3 * (3 - 2)) + 0.2 / 4) * 1e6 / 50e9
    assert crowded[Algorithm.DIRECT] == pytest.approx(2e-6 + 1e-6 + wire + (1e-5 * wire) ** 0.5)


def test_a_hierarchy_sends_a_part_of_the_vector_between_nodes():
    network = two_tiers(4, 100e9, 0.0, 10e9, 0.0)
    found = algorithms_s(Collective.ALL_REDUCE, 1e9, network, 0.0, 8)
    assert found[Algorithm.HIERARCHICAL] == pytest.approx(2 * 3 / 4 * 1e9 / 100e9 + 1e9 / 4 / 10e9)
    # a ring in as many copies as a node has adapters
    assert found[Algorithm.RING] == pytest.approx(7 / 4 * 1e9 / (4 * 10e9))


def test_a_chip_without_links_never_finishes():
    network = two_tiers(8, None, 1e-6, 50e9, 5e-6)
    assert np.isinf(fastest_s(Collective.ALL_REDUCE, 1.0, network, 0.0, 4))
    assert fastest_s(Collective.ALL_REDUCE, 0.0, network, 0.0, 4) < 1e-5
    assert fastest_s(Collective.ALL_REDUCE, 1e9, network, 0.0, 1) == 0


def test_a_fitted_law_of_the_file_is_kept():
    own = Tier(devices=None, bandwidth_bytes_per_s=1e9, law=LinkLaw(launch_s=1e-6, step_s=1e-6))
    plain = own.changed(law=LinkLaw(step_s=1e-6))
    mine = Network(name="mine", tiers=(own, plain))
    assert with_laws(mine, "ampere").tiers[0] == own
    assert with_laws(mine, "ampere").tiers[1].law != plain.law
    oversubscribed = replace(own.law, step_s=2e-6)
    assert own.changed(step_s=2e-6).law == oversubscribed
    assert own.topology is Topology.SWITCH
