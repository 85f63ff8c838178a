"""The formulas of the reference, worked out here as they are written there, against the functions they name."""

from __future__ import annotations

from math import ceil, log2, pi, sqrt

import numpy as np
import pytest

from phaze.cost.collectives.collective_algorithms import levels, terms
from phaze.cost.collectives.collective_times import algorithms_s
from phaze.cost.core_cycles import deals, dealt_gemm_cycles, fill_cycles, gemm_cycles, split_gemm_cycles
from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.cost.tiling import traffic_bytes
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, macs, vector_alus
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import die_yield, dies_per_wafer
from phaze.hardware.network_tiers import Algorithm
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import energy_constants, power_parts_w, relative_voltage
from phaze.parallel.pipelines.pipeline_closed_forms import closed_form_period_s, closed_form_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.serving.replicas.model_replica import crowd
from phaze.workload.training.training_numerics import Optimizer, Precision, numerics
from phaze.workload.work import Collective, Gemm
from phaze.workload.workload import Mode

CHIPS = ("tpuv4", "h100", "phaze-reference", "mi210")


def product(m, k, n, groups=1):
    return Gemm(groups, m, k, n, *(2.0 * groups * size for size in (m * k, k * n, m * n)))


GEMMS = [product(512, 300, 700), product(64, 4096, 64, 3), product(1000, 17, 33, 8)]


@pytest.fixture(params=CHIPS)
def chip(request):
    return to_table([load_architecture(request.param)])


def one(values):
    return float(np.ravel(values)[0])


@pytest.mark.parametrize("gemm", GEMMS, ids=str)
def test_cycles_of_one_array(gemm):
    g, m, k, n = gemm.groups, gemm.m, gemm.k, gemm.n
    for rows, columns in ((128, 128), (16, 256)):
        ways = (ceil(k / rows) * g * ceil(b / columns) * max(a, rows) for a, b in ((m, n), (n, m)))
        assert one(gemm_cycles(gemm, rows, columns)) == min(ways)
        assert one(fill_cycles(rows, columns)) == 2 * rows + columns - 2


@pytest.mark.parametrize("gemm", GEMMS, ids=str)
def test_cycles_of_many_arrays(gemm):
    cores, rows, columns, per_cycle = 6, 64, 32, 512.0

    def many(k, arrays):
        return min(
            ceil(k / rows) * ceil(gemm.groups * ceil(b / columns) / j) * max(ceil(a / s), rows)
            for a, b in ((gemm.m, gemm.n), (gemm.n, gemm.m))
            for s in range(1, arrays + 1)
            for j in range(1, arrays // s + 1)
        )

    merged = 8 * gemm.groups * gemm.m * gemm.n / per_cycle
    ways = deals([cores])
    whole = one(split_gemm_cycles(gemm, rows, columns, ways[0].split))
    cut = min(many(ceil(gemm.k / c), cores // c) + (c * merged if c > 1 else 0) for c in (1, 2, 4))
    given = np.array([float(rows)]), np.array([float(columns)])
    assert whole == many(gemm.k, cores)
    assert one(dealt_gemm_cycles(gemm, *given, ways, np.array([per_cycle]))) == pytest.approx(cut)


def test_bytes_of_a_tiled_product():
    gemm, size = product(96, 80, 64), 6000.0
    m, k, n, a = gemm.m, gemm.k, gemm.n, 2
    stays = (
        a * m * k * ceil(n / w) + a * k * n * ceil(m / h)
        for h in range(1, m + 1)
        for w in range(1, n + 1)
        if 2 * a * h + 2 * a * w + 4 * h * w <= size
    )
    rows = (
        a * k * (p + q * ceil(p / h))
        for p, q in ((m, n), (n, m))
        for h in range(1, p + 1)
        if h * (2 * a * k + 4) + 2 * a * k <= size
    )
    cut = (
        a * k * (p + q * ceil(p / h)) + 8 * m * n * (ceil(k / d) - 1)
        for p, q in ((m, n), (n, m))
        for h in range(1, p + 1)
        for d in range(1, k + 1)
        if 2 * d * a * (h + 1) + 8 * h <= size
    )
    best = min(*stays, *rows, *cut) + a * m * n
    assert best <= one(traffic_bytes(gemm, size)) <= 1.01 * best


def test_area(chip):
    c, parts = constants(), {name: one(part) for name, part in area_parts_mm2(chip).items()}
    if chip["area_law"][0]:
        return  # PHAZE's own law
    logic, on_die = one(c.column(chip, "node", "logic")), 1 / one(chip["enabled_fraction"])
    assert parts["lane"] == pytest.approx(one(vector_alus(chip)) * c["lane_area_um2"] * 1e-6 * logic * on_die)
    core = ("mac", "lane", "int32", "fp64", "simt", "registers", "local", "global")
    assert parts["overhead"] == pytest.approx(c["overhead"] * sum(parts[name] for name in core))
    assert parts["misc"] == pytest.approx(one(chip["n_dies"]) * c["misc_area_mm2"] * logic)


def test_power(chip):
    c, e, parts = constants(), energy_constants(chip), power_parts_w(chip)
    simt, clock = bool(chip["simt"][0]), one(chip["clock_hz"])

    def by_control(name):
        return c[f"{name}_simt" if simt else name]

    nominal = one(chip["nominal_clock_hz"])
    if np.isnan(nominal):
        nominal = one(c.column(chip, "node", "nominal_clock_hz"))
    voltage = max(
        by_control("voltage_floor"),
        by_control("voltage_at_rest") + by_control("voltage_slope") * clock / nominal,
    )
    assert one(relative_voltage(chip, chip["clock_hz"])) == pytest.approx(voltage)
    scale = one(c.column(chip, "node", "energy")) * voltage**2 / c["regulator_efficiency"] * 1e-12
    assert one(e.alu_cycle_j) == pytest.approx(by_control("lane_energy_pj") * scale)
    assert one(parts["mac"]) == pytest.approx(one(macs(chip)) * clock * one(e.mac_j))
    links = 2 * one(chip["link_bandwidth_bytes_per_s"]) * one(e.link_j_per_byte)
    assert one(parts["link"]) == pytest.approx(links * c["link_activity"])


def test_cost_of_a_die():
    p, area = Economics(), 400.0
    side, across = sqrt(area) + p["scribe_lane_mm"], p["wafer_diameter_mm"] - 2 * p["wafer_edge_mm"]
    dies = pi * (across / 2) ** 2 / side**2 - pi * across / (sqrt(2) * side)
    assert one(dies_per_wafer(np.array([area]))) == pytest.approx(dies)
    expected = (1 + area / 100 * 0.1 / p["defect_clustering"]) ** -p["defect_clustering"]
    assert one(die_yield(np.array([area]), 0.1)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("optimizer", "precision", "kept", "moved", "cycles"),
    [
        (Optimizer.ADAM, Precision.BF16, 18, 30, 36),
        (Optimizer.MOMENTUM, Precision.BF16, 14, 22, 3),
        (Optimizer.SGD, Precision.BF16, 10, 14, 2),
        (Optimizer.ADAM, Precision.FP32, 16, 28, 35),
    ],
)
def test_bytes_per_parameter(optimizer, precision, kept, moved, cycles, chip):
    found = numerics(optimizer, Mode.TRAINING, precision)
    assert (found.state_bytes, found.optimizer_traffic_bytes) == (kept, moved)
    lanes = one(vector_alus(chip)) * one(chip["clock_hz"])
    longest = max(cycles / lanes, moved / one(hbm_bandwidth_bytes_per_s(chip)))
    assert one(optimizer_s_per_parameter(chip, found)) == pytest.approx(longest)


def test_exchanges_on_one_tier():
    network, size, payload, links = load_network("default"), 8, 1e8, 450e9
    (level,) = levels(network, size)
    assert terms(Collective.ALL_REDUCE, Algorithm.TREE, level, size).steps == 2 * ceil(log2(size))
    law, found = level.tier.law, algorithms_s(Collective.ALL_REDUCE, payload, network, links, size)
    bandwidth = level.tier.bandwidth_bytes_per_s or links
    sent = payload / (law.efficiency * bandwidth)
    ring = (
        law.launch_s
        + 2 * (size - 1) * law.step_s
        + sent * (2 + law.gamma + law.delta / (size - 1)) * (size - 1) / size
    )
    assert law.ramp_s == 0
    assert one(found[Algorithm.RING]) == pytest.approx(ring)


@pytest.mark.parametrize(("f", "b", "w"), [(1.0, 1.0, 1.0), (1.0, 1.3, 0.8), (2.0, 1.0, 0.2)])
def test_pipelines(f, b, w):
    m, p, all_ = 16, 4, f + b + w
    assert one(closed_form_s(Schedule.ONE_F_ONE_B, m, p, 1, f, b, w)) == pytest.approx((m + p - 1) * all_)
    h1 = m * all_ + (p - 1) * max(b, f, f + b - w)
    h2 = m * all_ + (p - 1) * max(f, b - f, f + b - 2 * w)
    period = m * all_ + (p - 1) * max(0, b - f, f + b - 2 * w)
    assert one(closed_form_s(Schedule.ZB_H1, m, p, 1, f, b, w)) == pytest.approx(h1)
    assert one(closed_form_s(Schedule.ZB_H2, m, p, 1, f, b, w)) == pytest.approx(h2)
    assert one(closed_form_period_s(Schedule.ZB_H2, m, p, 1, f, b, w)) == pytest.approx(period)


def test_a_crowd_of_requests():
    assert one(crowd(25.0)) == 25 + 3 * 5
