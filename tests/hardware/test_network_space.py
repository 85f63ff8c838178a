"""Networks as axes of a space: which there are, what a device's share of each draws and costs, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.budgets import Limit, smallest_demand, weigh
from phaze.hardware.cluster_network import best_of, load_network
from phaze.hardware.economics.cluster_rates import cluster_rates
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.network_share import NetworkDraw, network_usd, network_w
from phaze.hardware.network_tiers import Topology
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.network_axes import torus_of
from phaze.hardware.spaces.space_file import load_space, parse_space

HEAD = "schema_version: 1\nname: s\naxes: [{fields: [tensor_cores], values: [1]}]\nnetwork: "
E = Economics()
BASE = load_network()


def networks(text, devices=1024, base=BASE):
    return parse_space(HEAD + text, "s.yaml").network_axes.networks(base, devices)


def share(function, text, devices, **fields):
    chip = to_table([load_architecture("h100").replace("chip", **fields)])
    (only,) = networks(text, devices)
    return float(function(chip, devices, only.network, E)[0])


def test_networks_are_the_product_of_the_axes_each_once():
    sizes, wired = "scale_up_devices: [8, 16, 4096]", "scale_up_topology: [switch, torus]"
    found = networks(f"{{{sizes}, {wired}, scale_out_bandwidth: [25GB/s, 50GB/s]}}")
    # Domains of 4,096 hold all 1,024 devices: adapters reach nothing there, and their values count once.
    assert len(found) == 2 * 2 * 2 + 2
    assert len({one.network.name for one in found}) == len(found)
    for one in found:
        inner, outer = one.network.tiers
        assert inner.devices == one.values["scale_up_devices"]
        assert inner.topology == one.values["scale_up_topology"]
        assert math.prod(inner.dims or (inner.devices,)) == inner.devices
        assert outer.bandwidth_bytes_per_s == one.values["scale_out_bandwidth"]
        assert inner.law == BASE.tiers[0].law
    assert [one.network.name for one in networks("{oversubscription: [1, 4]}")] == [
        "switch-8-50GBps",
        "switch-8-50GBps-thin-4",
    ]


@given(st.integers(1, 4096))
def test_a_torus_is_as_near_a_cube_as_rings_of_four_allow(members):
    dims = torus_of(members)
    assert math.prod(dims) == members
    assert len(dims) == 1 or min(dims) >= 4
    assert list(dims) == sorted(dims, reverse=True)


def test_tori_of_published_machines():
    # TPU v4: a rack of 4 x 4 x 4 (Jouppi et al., ISCA 2023); pods of v5e are flat, ours near a cube.
    assert torus_of(64) == (4, 4, 4)
    assert torus_of(16) == (4, 4)
    assert torus_of(8) == (8,)
    assert torus_of(64, Topology.SWITCH) == ()


def two_adapter_tiers(folder, pod, outer="50GB/s"):
    """Domains of 8, pods of some devices behind adapters, and 8,192 of these; a device's share in USD and W."""
    path = folder / "pods.yaml"
    path.write_text(
        "schema_version: 2\nname: pods\nalgorithms: [ring]\ntiers:\n"
        "- {topology: switch, devices: 8, medium: direct, bandwidth: null, latency: 1us, source: s}\n"
        f"- {{topology: fat-tree, devices: {pod}, medium: adapter, bandwidth: 50GB/s, latency: 5us, source: s}}\n"
        f"- {{topology: fat-tree, devices: null, medium: adapter, bandwidth: {outer}, latency: 6us, source: s}}\n",
        encoding="utf-8",
    )
    chip = to_table([load_architecture("h100")])
    return [float(f(chip, 8192, load_network(path), E)[0]) for f in (network_usd, network_w)]


def test_a_second_tier_of_adapters_adds_levels_to_one_tree(tmp_path):
    """Adapters are bought once: in two tiers of one bandwidth a tree costs what it costs in one."""
    chip = to_table([load_architecture("h100")])
    one = [float(f(chip, 8192, BASE, E)[0]) for f in (network_usd, network_w)]
    for pod in (64, 512, 4096):
        assert two_adapter_tiers(tmp_path, pod) == pytest.approx(one)
    for whole, thin in zip(one, two_adapter_tiers(tmp_path, 512, outer="25GB/s"), strict=True):
        assert 0.5 * whole < thin < whole


def test_a_board_of_eight_draws_what_was_measured():
    # Latif et al.: 8.48 kW for eight H100 of 700 W, hosts, NVSwitches and adapters in it; no switch of the tree.
    alone = Economics().changed(switch_w_per_gbyte_per_s=0)
    chip = to_table([load_architecture("h100")])
    rates = cluster_rates(chip, np.array([814.0]), np.array([700.0]), 16, BASE, alone)
    beside_w = (rates.joules.per_s["hosts"] + rates.joules.per_s["network"])[0] / 16
    assert beside_w == pytest.approx((8480 - 5600) / 8, rel=0.002)


def test_shares_by_hand():
    wide = {"link_bandwidth_bytes_per_s": 900e9}
    # One level of switches within a rack, copper: 900 x 0.133 W, 900 x (0.33 + 0.5) USD.
    assert share(network_w, "{scale_up_devices: [72]}", 72, **wide) == pytest.approx(900 * 0.133)
    assert share(network_usd, "{scale_up_devices: [72]}", 72, **wide) == pytest.approx(900 * 0.83)
    # NVL576: two levels, three ports a device, and optics to the first level and between the two.
    assert share(network_w, "{scale_up_devices: [576]}", 576, **wide) == pytest.approx(
        900 * (3 * 0.133 + 2 * 0.31)
    )
    # All of an NVL72 by optics, one level: the 20 kW of the keynote.
    assert 72 * 900 * E["scale_up_optics_w_per_gbyte_per_s"] == pytest.approx(20_000, rel=0.01)
    # A torus has no switches; in racks of 64, one link in four leaves the rack: 96 of 384 ends (TPU v4).
    text = "{scale_up_devices: [4096], scale_up_topology: [torus]}"
    racks = {"rack_devices": 64}
    chip = to_table([load_architecture("tpuv4")])
    (pod,) = networks(text, 4096)
    assert float(network_w(chip, 4096, pod.network, E.changed(**racks))[0]) == pytest.approx(
        300 * 0.31 * 96 / 384
    )
    # Adapters of 50 GB/s in a tree of two levels: the adapter, three ports, two links; thinned 2:1 above the first.
    flat = {"link_bandwidth_bytes_per_s": 0.0}
    assert share(network_w, "{scale_out_bandwidth: [50GB/s]}", 1024, **flat) == pytest.approx(
        50 * (0.5 + 3 * 0.54)
    )
    assert share(network_w, "{oversubscription: [2]}", 1024, **flat) == pytest.approx(50 * (0.5 + 2 * 0.54))
    assert share(network_usd, "{oversubscription: [2]}", 1024, **flat) == pytest.approx(
        50 * (27.3 + 2 * 11.25 + 1.5 * 25.6)
    )


@given(st.sampled_from((64, 1024, 8192)), st.floats(1e9, 1e12))
def test_the_best_of_several_draws_and_costs_no_more_than_any(devices, link):
    chip = to_table([load_architecture("h100").replace("chip", link_bandwidth_bytes_per_s=link)])
    every = [one.network for one in load_space("system").network_axes.networks(BASE, devices)]
    for function in (network_w, network_usd):
        each = [float(function(chip, devices, one, E)[0]) for one in every]
        assert float(function(chip, devices, best_of(every), E)[0]) == min(each)


def test_a_budget_of_power_holds_with_the_share_of_the_network():
    chip = to_table([load_architecture("h100")])
    draw = NetworkDraw(1024, BASE, E)
    whole = float(tdp_w(chip)[0] + draw.of(chip)[0])
    for power_w, over in ((whole * 1.001, False), (whole * 0.999, True)):
        assert weigh(chip, power_w, network=draw).over[Limit.POWER].tolist() == [over]
        assert smallest_demand(chip, power_w, network=draw).alone[Limit.POWER] == pytest.approx(whole)
    # What the network draws is no power density of the chip.
    density = float(tdp_w(chip)[0]) / 1000.0
    found = smallest_demand(chip, None, power_density_w_per_mm2=density, network=draw)
    assert found.alone[Limit.POWER_DENSITY] == pytest.approx(smallest_demand(chip).alone[Limit.POWER_DENSITY])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "network: give one axis or more of scale_up_devices"),
        ("{domains: [8]}", "network.domains"),
        ("{scale_up_devices: []}", "network.scale_up_devices"),
        ("{scale_up_devices: [0]}", "network.scale_up_devices.0"),
        ("{scale_up_devices: [8, 8]}", "network.scale_up_devices: a value is given twice"),
        ("{scale_up_topology: [mesh]}", "scale_up_topology.0: mesh is not one of switch, torus"),
        ("{scale_up_topology: [cube]}", "network.scale_up_topology.0"),
        ("{scale_out_bandwidth: [fast]}", "network.scale_out_bandwidth.0"),
        ("{scale_out_bandwidth: [0]}", "scale_out_bandwidth.0: 0 is not from 1B/s"),
        ("{oversubscription: [0.5]}", "network.oversubscription.0"),
        (
            f"{{scale_up_devices: {list(range(1, 400))}, oversubscription: [1, 2]}}",
            "798 networks are more than",
        ),
    ],
)
def test_what_no_network_can_be_is_refused(text, message):
    with pytest.raises(InputError) as error:
        parse_space(HEAD + text, "s.yaml")
    assert message in str(error.value)
    assert "s.yaml" in str(error.value)


def test_a_base_without_switched_domains_is_refused():
    with pytest.raises(InputError, match="tpu-v4-pod has no domains of any size"):
        networks("{scale_up_devices: [8]}", base=load_network("tpu-v4-pod"))
