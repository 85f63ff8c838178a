"""Network files of version 2: every packaged one, round trips, and what is refused."""

from __future__ import annotations

import pytest

from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import Network, list_networks, load_network, network_yaml
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.network_share import network_usd
from phaze.hardware.network_tiers import NAMED, Medium, Tier, Topology

TEXT = """schema_version: 2
name: mine
tiers:
  - {topology: torus, devices: 8, dims: [2, 4], bandwidth: 300GB/s, latency: 1us, source: me}
  - {topology: fat-tree, devices: null, bandwidth: 50GB/s, latency: 5us, oversubscription: 2, source: me}
"""


@pytest.mark.parametrize("name", list_networks())
def test_packaged_networks_name_their_sources_and_survive_a_round_trip(name, tmp_path):
    network = load_network(name)
    assert network.name == name
    assert all(tier.source for tier in network.tiers)
    path = tmp_path / "again.yaml"
    path.write_text(network_yaml(name, network.tiers, network.algorithms))
    assert load_network(path) == network


def test_a_network_of_version_2(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    network = load_network(path)
    assert [tier.topology for tier in network.tiers] == [Topology.TORUS, Topology.FAT_TREE]
    assert network.algorithms == NAMED
    assert (network.scale_up_devices, network.scale_out_bandwidth_bytes_per_s) == (8, 50e9)
    assert network.changed(scale_out_latency_s=1.0).tiers[1].law.step_s == 1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dims: [2, 4], ", "", "tiers.0.dims: () is not what only a torus has"),
        ("dims: [2, 4]", "dims: [2, 3]", "is not a torus of 8 members"),
        ("devices: 8", "devices: null", "tiers.0.devices"),
        ("dims: [2, 4]", "dims: [2, 4], cube: 4", "tiers.0.cube: 4 is not a divisor of every extent"),
        ("oversubscription: 2", "cube: 2", "tiers.1.cube: 2 is not a divisor"),
        (
            "oversubscription: 2",
            "oversubscription: 0.5",
            "oversubscription: must be greater than or equal to 1",
        ),
        ("oversubscription: 2", "efficiency: 1.5", "tiers.1.efficiency: must be less than or equal to 1"),
        ("oversubscription: 2", "in_network: maybe", "tiers.1.in_network"),
        ("latency: 5us", "latency: -5", "tiers.1.latency: -5 is not from 0s"),
        ("topology: torus", "topology: tours", "tiers.0.topology"),
        ("devices: null", "devices: 12", "tiers.1.devices: 12 is not a multiple of the 8"),
    ],
)
def test_faults_name_their_place(old, new, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_network(path)
    assert message in str(caught.value)


def test_what_joins_groups_and_cubes(tmp_path):
    """Files say it again; groups of a dragonfly cost links to one another, and adapters once."""
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace("dims: [2, 4]", "dims: [2, 4], cube: 2"))
    network = load_network(path)
    assert network.tiers[0].cube == 2
    path.write_text(network_yaml("mine", network.tiers, network.algorithms))
    assert load_network(path).tiers == network.tiers

    table, economics = to_table([load_architecture("h100")]), Economics()
    inside = Tier(devices=128, medium=Medium.ADAPTER, bandwidth_bytes_per_s=50e9)
    groups = Tier(
        devices=4096, topology=Topology.DRAGONFLY, medium=Medium.ADAPTER, bandwidth_bytes_per_s=25e9
    )
    usd = [
        float(network_usd(table, devices, Network(name="made up", tiers=(inside, groups)), economics)[0])
        for devices in (128, 4096)
    ]
    each = economics["switch_usd_per_gbyte_per_s"] + economics["optics_usd_per_gbyte_per_s"]
    alone = float(network_usd(table, 4096, Network(name="alone", tiers=(groups,)), economics)[0])
    assert usd[1] - usd[0] == pytest.approx(
        25 * each + float(tree_usd(table, inside, 4096, economics) - tree_usd(table, inside, 128, economics))
    )
    assert alone == pytest.approx(25 * (each + economics["adapter_usd_per_gbyte_per_s"]))


def tree_usd(table, tier, devices, economics):
    """A device's share of the tier alone, whose fat tree has the levels that so many devices need."""
    return network_usd(table, devices, Network(name="inside", tiers=(tier,)), economics)[0]
