"""Network files of version 2: every packaged one, round trips, and what is refused."""

from __future__ import annotations

import pytest

from phaze.errors import InputError
from phaze.hardware.cluster_network import list_networks, load_network, network_yaml
from phaze.hardware.network_tiers import NAMED, Topology

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
