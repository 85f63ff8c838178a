"""The analytic model: hand examples, physics, and agreement of the factored with the direct way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cost_cases import NETWORK, chips, exchange, grid, product, reduction, tensor, transformer_layer, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.collectives.collective_times import link_s
from phaze.cost.core_cycles import deals, dealt_gemm_cycles, fill_cycles, gemm_cycles
from phaze.cost.cost_model import Bottleneck, CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.roofline_model import roofline_s
from phaze.cost.software_losses import software_losses
from phaze.cost.tiling import traffic_bytes
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, macs, vector_alus
from phaze.hardware.silicon.die_area import area_mm2
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Pass, Unit

MIXED = {
    "tensor_cores": (1, 6, 64),
    "tensor_cores_per_local_buffer": (1, 4),
    "tensor_core_rows": (16, 128),
    "tensor_core_columns": (32, 128),
    "vector_cores": (1, 8),
    "vector_core_alus": (64, 2048),
    "global_buffer_bytes": (2**20, 2**24),
    "hbm_stacks": (2, 6),
    "clock_hz": (0.7e9, 1.05e9),
}


def latencies(pass_, table, fidelity=Fidelity.ANALYTIC):
    return CostModel(table, NETWORK, fidelity).costs(pass_).latencies(np.arange(len(table)))


def test_a_large_product_is_compute_bound_to_the_cycle():
    chip = chips(tensor_cores=8, clock_hz=1e9, hbm_stacks=6, global_buffer_bytes_per_cycle=1e6)
    cube = Pass((tensor("cube", product(4096, 4096, 4096)),), ())
    times = latencies(cube, chip, Fidelity.IDEAL)
    assert times.single_s[0, 0] * 1e9 == pytest.approx(32 * 32 * 4096 + 2 * 128 + 128 - 2)
    assert times.parallel_s[0, 0] * 1e9 == pytest.approx(32 * 32 * 4096 / 8 + 2 * 128 + 128 - 2)
    real, lost = latencies(cube, chip), software_losses(Fidelity.ANALYTIC)
    expected = 32 * 32 * 4096 / lost.array_efficiency + 2 * 128 + 128 - 2 + lost.operator_s * 1e9
    assert real.single_s[0, 0] * 1e9 == pytest.approx(expected)


def test_a_vector_operator_without_reuse_is_bound_by_hbm():
    chip = chips(hbm_bandwidth_bytes_per_s=1e12, vector_cores=2, vector_core_alus=2048, clock_hz=1e9)
    add = Pass((vector("add", 10**9, 1),), ())
    times = latencies(add, chip, Fidelity.IDEAL)
    assert times.single_s[0, 0] == pytest.approx(4e9 / 1e12)
    assert times.parallel_s[0, 0] == times.hbm_s[0] == times.single_s[0, 0]
    real, lost = latencies(add, chip), software_losses(Fidelity.ANALYTIC)
    assert real.single_s[0, 0] == pytest.approx(4e9 / 1e12 / lost.memory_efficiency + lost.operator_s)
    attribution = CostModel(chip, NETWORK).costs(add).attribution(np.array([0]))
    assert attribution.binding.tolist() == [[Bottleneck.HBM.value]]
    assert attribution.compute_s[0, 0] * 1e9 == pytest.approx(math.ceil(1e9 / 4096))


def test_small_arrays_share_one_global_buffer():
    # equal MAC counts: 512 arrays of 16 x 16 re-read operands eight times as often as 8 of 128 x 128
    same_macs = chips(tensor_cores=[8, 512], tensor_core_rows=[128, 16], tensor_core_columns=[128, 16])
    times = latencies(Pass((tensor("cube", product(4096, 4096, 4096)),), ()), same_macs)
    assert times.buffer_s[1] > 4 * times.buffer_s[0]
    assert times.parallel_s[1, 0] >= times.buffer_s[1] > times.parallel_s[0, 0]


def test_cores_that_share_a_local_buffer_hold_larger_tiles():
    """Four arrays on one buffer re-read like four that have as much each; chips of less than a group share less."""
    cube = Pass((tensor("cube", product(4096, 4096, 4096)),), ())
    shared = chips(tensor_cores=[512, 512, 2], tensor_core_rows=16, tensor_core_columns=16)
    shared = shared.replace(tensor_cores_per_local_buffer=np.array([1, 4, 4]))
    private = shared.replace(
        tensor_cores_per_local_buffer=np.ones(3, dtype=np.int64),
        local_buffer_bytes=np.array([512, 4 * 512, 2 * 2]) * 4096.0,
    )
    buffer_s = latencies(cube, shared).buffer_s
    np.testing.assert_array_equal(buffer_s, latencies(cube, private).buffer_s)
    assert buffer_s[0] > 1.5 * buffer_s[1]
    np.testing.assert_array_equal(area_mm2(shared)[0], area_mm2(shared)[1])


def test_a_collective_runs_on_the_link_and_has_no_parallel_mode():
    chip = chips(link_bandwidth_bytes_per_s=[300e9, 600e9])
    times = latencies(Pass((reduction(1e8, 4),), ()), chip)
    # halving and doubling: two steps each way
    np.testing.assert_allclose(times.single_s[:, 0], [1.5e8 / 300e9 + 4e-6, 1.5e8 / 600e9 + 4e-6])
    assert np.isinf(times.parallel_s).all()
    wide = latencies(Pass((reduction(1e8, 16),), ()), chip)
    # rings, each through another of the eight adapters of a domain; 14 hops inside and one between, twice
    pace = np.array([300e9, 8 * 50e9])
    np.testing.assert_allclose(wide.single_s[:, 0], 2 * (15 / 16 * 1e8 / pace + 14e-6 + 5e-6))


@pytest.mark.parametrize("collective", Collective)
@pytest.mark.parametrize(("stride", "domains"), [(1, 1), (2, 1), (3, 2), (8, 4)])
def test_a_group_pays_for_the_tiers_that_it_spans(collective, stride, domains):
    """Four devices next to each other share a domain of eight; two in between, and only two of them do."""
    chip = chips(link_bandwidth_bytes_per_s=300e9)
    pass_ = Pass((exchange(collective, 1e8, Group(Parallel.CONTEXT, 4, stride)),), ())
    together, sweeps = 4 // domains, 2 if collective is Collective.ALL_REDUCE else 1
    if collective is Collective.ALL_TO_ALL:
        between, inside = (4 - together) / 4, 3 / 4
    elif collective is Collective.SEND_RECV:
        between, inside = float(domains > 1), float(domains == 1)
    else:
        between = sweeps * (domains - 1) / domains / together
        inside = sweeps * (together - 1) / together
    expected = max(between * 1e8 / 50e9, inside * 1e8 / 300e9)
    bound = roofline_s(pass_, chip, NETWORK)[0, 0]
    assert bound == pytest.approx(expected) or (domains == 4 and bound == pytest.approx(between * 1e8 / 50e9))
    assert bound < latencies(pass_, chip).single_s[0, 0] < 2 * bound + 1e-4


def test_an_empty_pass_costs_nothing():
    costs = CostModel(chips(), NETWORK).costs(Pass((), ()))
    assert costs.latencies(np.array([0])).single_s.shape == (1, 0)
    assert costs.lower_s(np.array([0])) == [0.0]


def direct_latency(work, table, row, parallel):
    """One operator on one architecture, written out once more without any factoring."""
    c = {name: table[name][row] for name in table.columns}
    cycles = traffic = buffer = 0.0
    sharing = min(c["tensor_cores_per_local_buffer"], c["tensor_cores"])
    local = max(c["tensor_core_rows"] * c["tensor_core_columns"] / 64, 1) * 1024 * sharing
    for gemm in work.gemms:
        shape = [np.array([float(c[side])]) for side in ("tensor_core_rows", "tensor_core_columns")]
        rate = np.array([float(c["global_buffer_bytes_per_cycle"])])
        dealt = dealt_gemm_cycles(gemm, *shape, deals(c["tensor_cores"]), rate)[0]
        cycles += dealt if parallel else gemm_cycles(gemm, *shape)[0]
        buffer += traffic_bytes(gemm, local, depth=c["tensor_core_rows"])
        traffic += traffic_bytes(gemm, c["global_buffer_bytes"]) if gemm.traffic == "tiled" else 0
    alus = c["vector_core_alus"] * (c["vector_cores"] if parallel else 1)
    blocks = math.ceil(work.reread_rows_bytes / (c["global_buffer_bytes"] / 2))
    traffic += work.stream_bytes + max(blocks - 1, 0) * work.reread_bytes
    if not any(g.traffic == "fused" for g in work.gemms):
        buffer += work.stream_bytes
    fill = len(work.gemms) * fill_cycles(c["tensor_core_rows"], c["tensor_core_columns"])
    lost = software_losses(Fidelity.ANALYTIC)
    cycles /= lost.array_efficiency
    on_chip = max(cycles, math.ceil(work.vector_cycles / alus), buffer / c["global_buffer_bytes_per_cycle"])
    hbm = traffic / hbm_bandwidth_bytes_per_s(table)[row] / lost.memory_efficiency
    return max(on_chip / c["clock_hz"], hbm) + fill / c["clock_hz"] + lost.operator_s


def test_factored_equals_direct():
    table, layer = grid(**MIXED), transformer_layer()
    times = latencies(layer, table)
    for row in range(0, len(table), 17):
        for o, work in enumerate(layer.works):
            if work.unit is not Unit.LINK:
                assert times.single_s[row, o] == pytest.approx(direct_latency(work, table, row, False))
                assert times.parallel_s[row, o] == pytest.approx(direct_latency(work, table, row, True))


def test_many_architectures_equal_one_at_a_time():
    table, layer = grid(**MIXED), transformer_layer()
    together = latencies(layer, table)
    for row in (0, 100, len(table) - 1):
        alone = latencies(layer, table.take([row]))
        np.testing.assert_array_equal(together.single_s[row], alone.single_s[0])
        np.testing.assert_array_equal(together.parallel_s[row], alone.parallel_s[0])
        assert together.hbm_s[row] == alone.hbm_s[0]
        assert together.buffer_s[row] == alone.buffer_s[0]


@pytest.mark.parametrize("chip", ["h100", "tpuv4"])
def test_fastest_modes_of_many_passes_at_once(chip):
    model = CostModel(to_table([load_architecture(chip)]), NETWORK)
    passes = [transformer_layer(), Pass((reduction(1e6, 8), tensor("a", product(64, 64, 64))), ())]
    each = [model.costs(p).latencies(np.array([0])) for p in passes]
    expected = np.concatenate([np.fmin(one.single_s[0], one.parallel_s[0]) for one in each])
    together = [work for p in passes for work in p.works]
    (found,) = model.fastest_s(together, np.array([0]))
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_parallel_is_between_ideal_and_single():
    table, layer = grid(**MIXED), transformer_layer()
    times = latencies(layer, table)
    usable = [w.unit is not Unit.LINK for w in layer.works]
    cores = np.maximum(table["tensor_cores"], table["vector_cores"])[:, None]
    assert (times.parallel_s <= times.single_s)[:, usable].all()
    assert (times.parallel_s * cores >= times.single_s * (1 - 1e-12)).all()


def test_never_faster_than_the_roofline_nor_than_hbm():
    table, layer = grid(**MIXED), transformer_layer()
    times = latencies(layer, table)
    fastest = np.minimum(times.single_s, times.parallel_s)
    assert (fastest >= roofline_s(layer, table, NETWORK) * (1 - 1e-12)).all()
    busy_macs = np.array([w.macs for w in layer.works]) / (macs(table) * table["clock_hz"])[:, None]
    busy_alus = (
        np.array([w.vector_cycles for w in layer.works]) / (vector_alus(table) * table["clock_hz"])[:, None]
    )
    assert (np.maximum(busy_macs, busy_alus) <= fastest * (1 + 1e-12)).all()


architectures = st.fixed_dictionaries(
    {
        "tensor_cores": st.integers(1, 300),
        "tensor_core_rows": st.integers(2, 256),
        "tensor_core_columns": st.integers(2, 256),
        "vector_cores": st.integers(1, 64),
        "vector_core_alus": st.integers(1, 4096),
        "global_buffer_bytes": st.integers(0, 2**28),
        "global_buffer_bytes_per_cycle": st.floats(16, 16384),
        "local_buffer_bytes": st.floats(2**10, 2**26),
        "hbm_bandwidth_bytes_per_s": st.floats(1e10, 5e12),
        "link_bandwidth_bytes_per_s": st.floats(1e9, 1e12),
        "clock_hz": st.floats(1e8, 2e9),
    }
)
improvable = st.sampled_from(
    (
        "clock_hz",
        "hbm_bandwidth_bytes_per_s",
        "global_buffer_bytes",
        "global_buffer_bytes_per_cycle",
        "local_buffer_bytes",
        "link_bandwidth_bytes_per_s",
        "vector_cores",
        "vector_core_alus",
    )
)


@settings(max_examples=150, deadline=None)
@given(architectures, improvable, st.floats(1, 4))
def test_more_memory_bandwidth_or_clock_is_never_slower(fields, better, factor):
    more = type(fields[better])(fields[better] * factor)
    table = chips(**{name: [value, value] for name, value in fields.items()})
    table = table.replace(**{better: np.array([fields[better], more], dtype=table[better].dtype)})
    times = latencies(transformer_layer(), table)
    for figure in (times.single_s, times.parallel_s, times.hbm_s, times.buffer_s):
        assert (figure[1] <= figure[0] * (1 + 1e-12)).all()


@settings(max_examples=50, deadline=None)
@given(architectures)
def test_every_resource_takes_its_time(fields):
    table, layer = chips(**fields), transformer_layer()
    costs, first = CostModel(table, NETWORK).costs(layer), np.array([0])
    times, shares = costs.latencies(first), costs.attribution(first)
    fastest = np.minimum(times.single_s, times.parallel_s)
    slowest = np.max([shares.compute_s, shares.buffer_s, shares.hbm_s, shares.link_s], axis=0)
    np.testing.assert_allclose(fastest, slowest + shares.fill_s)
    assert times.hbm_s[0] == pytest.approx(shares.hbm_s.sum())
    assert times.buffer_s[0] == pytest.approx(shares.buffer_s.sum())
    assert (fastest >= costs.tables.hbm_bytes[0] / fields["hbm_bandwidth_bytes_per_s"] * (1 - 1e-12)).all()
    assert (fastest >= roofline_s(layer, table, NETWORK) * (1 - 1e-12)).all()
    assert costs.lower_s(first)[0] <= max(fastest.sum(), times.hbm_s[0], times.buffer_s[0]) * (1 + 1e-12)


sides = st.integers(1, 3000)


@settings(max_examples=40, deadline=None)
@given(sides, sides, sides, st.integers(1, 4))
def test_roofline_and_bound_hold_for_any_product(m, k, n, groups):
    table = grid(tensor_cores=(1, 7), tensor_core_rows=(16, 128), global_buffer_bytes=(2**16, 2**24))
    pass_ = Pass((tensor("any", product(m, k, n, groups)),), ())
    costs = CostModel(table, NETWORK).costs(pass_)
    times = costs.latencies(np.arange(len(table)))
    assert (times.parallel_s >= roofline_s(pass_, table, NETWORK)).all()
    np.testing.assert_allclose(costs.lower_s(np.arange(len(table))), times.parallel_s[:, 0])


def test_collectives_of_many_architectures_take_what_each_of_them_takes_alone():
    table = grid(
        link_bandwidth_bytes_per_s=(0.0, 25e9, 100e9), hbm_stacks=(2, 6), global_buffer_bytes=(2**20, 2**24)
    )
    model = CostModel(table, NETWORK)
    links = [reduction(1e6, 4).link, reduction(3e8, 16).link]
    found = model.links_s(links)[model.factors.memory_of]
    for row, rate in enumerate(table["link_bandwidth_bytes_per_s"].tolist()):
        assert found[row].tolist() == [float(link_s(link, NETWORK, rate)) for link in links]
    assert model.links_s([]).shape == (len(model.factors.memory.link_bytes_per_s), 0)
