"""Energy of passes and the optimizer step against hand counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cost_cases import NETWORK, chips, exchange, product, tensor, transformer_layer

from phaze.cost.cost_model import CostModel
from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.cost.pass_energy import (
    Events,
    boosted,
    busy_share,
    dynamic_j,
    kernel_j,
    optimizer_events,
    pass_events,
    product_events,
    running_beyond_w,
    static_w,
)
from phaze.explore.answers.sustained_clock import at_clock
from phaze.hardware.architecture import list_architectures, load_architecture, to_table
from phaze.hardware.derived_figures import (
    boost_clock_hz,
    global_buffer_bandwidth_bytes_per_s,
    hbm_bandwidth_bytes_per_s,
    macs,
    vector_alus,
)
from phaze.hardware.silicon.package_power import energy_constants, power_parts_w, tdp_w
from phaze.hardware.spaces.space_file import parse_space
from phaze.validation.measured.single_operators import norm
from phaze.validation.measured.single_operators import product as one_product
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Format, Pass
from phaze.workload.workload import Numerics

ADAM = Numerics(18.0, 4.0, 30.0, 20.0)


def test_events_of_a_layer_by_hand():
    table, layer = chips(global_buffer_bytes=[2**26, 2**27]), transformer_layer()
    events = pass_events(CostModel(table, NETWORK).costs(layer), np.array([0, 1]))
    t, h = 512, 256
    assert events.macs == 12 * t * h * h + 2 * t * t * h
    assert events.alu_cycles == t * h * (8 + 1 + 4 * 18) + 14 * 4 * t * t
    assert events.link_bytes == pytest.approx(2 * 2 * 3 / 4 * 2 * t * h)
    tensors = 4 * t * h * 6 + 8 * t * h  # norm, add, gelu (4 x) read and write; attention's four tensors
    products = 2 * (4 * (2 * t * h + h * h) + 2 * (5 * t * h + 4 * h * h))
    np.testing.assert_allclose(events.hbm_bytes, tensors + products)
    assert (events.buffer_bytes >= products).all()


def test_every_collective_is_charged_for_what_it_sends_and_receives():
    group = Group(Parallel.EXPERT, 8, stride=4)
    works = tuple(exchange(collective, 1e6, group) for collective in Collective)
    events = pass_events(CostModel(chips(), NETWORK).costs(Pass(works, ())), np.array([0]))
    assert events.link_bytes == pytest.approx(2 * (7 / 8 * 1e6 * (2 + 1 + 1 + 1) + 1e6))


def test_full_activity_is_the_power_at_full_load():
    # one second of every unit at its peak costs what the TDP formula says, part by part
    table = chips(tensor_cores=[8, 64], tensor_core_columns=[128, 32], clock_hz=[1.05e9, 0.8e9])
    parts = power_parts_w(table)
    busy = Events(macs=macs(table) * table["clock_hz"])
    np.testing.assert_allclose(dynamic_j(busy, table), parts["mac"] + parts["operands"])
    busy = Events(alu_cycles=0.5 * vector_alus(table) * table["clock_hz"])
    np.testing.assert_allclose(dynamic_j(busy, table), parts["vector"])
    busy = Events(hbm_bytes=hbm_bandwidth_bytes_per_s(table))
    np.testing.assert_allclose(dynamic_j(busy, table), parts["hbm"])
    busy = Events(link_bytes=0.5 * 2 * table["link_bandwidth_bytes_per_s"])
    np.testing.assert_allclose(dynamic_j(busy, table), parts["link"])
    np.testing.assert_allclose(
        static_w(table), parts["background"] + parts["leakage"] + parts["hbm_background"]
    )


def test_a_gpu_at_full_load_draws_its_power_at_full_load():
    """Standing power, a running kernel and every unit at the activity of the TDP make the TDP."""
    table = to_table([load_architecture(name) for name in ("a100", "h200", "b200", "mi250x", "p4")])
    parts, second = power_parts_w(table), np.ones(len(table))
    busy = Events(
        macs=macs(table) * table["clock_hz"],
        buffer_bytes=0.25 * global_buffer_bandwidth_bytes_per_s(table),
        hbm_bytes=0.32 * hbm_bandwidth_bytes_per_s(table),
        link_bytes=0.5 * 2 * table["link_bandwidth_bytes_per_s"],
        kernel_s=second,
    )
    np.testing.assert_allclose(dynamic_j(busy, table) + static_w(table), tdp_w(table))
    assert (dynamic_j(Events(kernel_s=second), chips()) == 0).all()
    assert (parts["vector"][:4] > 0).all()


def asked_w(chip, work, seconds):
    """What a board would draw at its boost clock while a product runs, by hand."""
    at_boost = chip.replace("boosted", clock_hz=float(boost_clock_hz(to_table([chip]))[0]))
    table = to_table([at_boost])
    e, moved = energy_constants(table), sum(g.a_bytes + g.b_bytes + g.c_bytes for g in work.gemms)
    events = {"macs": work.macs} if work.gemms[0].operands is not Format.FP32 else {"alu_cycles": work.macs}
    buffered = CostModel(table, NETWORK).costs(Pass((work,), ())).tables.tensor.buffer_bytes[0, 0]
    work_j = dynamic_j(Events(**events, hbm_bytes=moved, buffer_bytes=buffered), table)[0]
    return float(static_w(table)[0] + e.kernel_w[0] + work_j / seconds)


@pytest.mark.parametrize("name", ["h100", "a100-80gb", "h200", "gb200"])
def test_a_kernel_draws_what_it_asks_for_at_the_boost_clock_and_at_most_the_limit(name):
    chip = load_architecture(name)
    table = to_table([chip])
    model, seen = CostModel(table, NETWORK), set()
    for shape in ((1, 16, 4096, 4096), (1, 8192, 8192, 8192), (1, 512, 512, 512)):
        for operands in (None, Format.FP32) if name != "gb200" else (None,):
            made = one_product(*shape)
            work = replace(made, gemms=(replace(made.gemms[0], operands=operands),))
            seconds = float(model.fastest_s([work], np.array([0]))[0, 0])
            events = pass_events(model.costs(Pass((work,), ())), np.array([0]))
            drawn_w = float(dynamic_j(events, table)[0]) / seconds + float(static_w(table)[0])
            limit_w, asked = float(tdp_w(table)[0]), asked_w(chip, work, seconds)
            seen.add(asked > limit_w)
            assert drawn_w == pytest.approx(min(limit_w, asked), rel=1e-9)
    assert seen == {True, False}


def test_few_rows_keep_few_cores_busy():
    """Of a norm of 33 rows a quarter of the 132 cores of an H100 run, of as many rows as cores all of them."""
    table = to_table([load_architecture("h100")])
    few, all_of = (norm("layer", rows, 1024) for rows in (33, 132))
    free = tensor("p", product(512, 512, 512))
    np.testing.assert_allclose(busy_share([few, all_of, free], table), [[0.25, 1.0, 1.0]])
    costs = CostModel(table, NETWORK).costs(Pass((few,), ()))
    joules = float(dynamic_j(pass_events(costs, np.array([0])), table)[0])
    seconds = float(costs.kernel_s[0, 0])
    work_j = float(kernel_j(costs, boosted(table))[0])
    assert joules == pytest.approx(work_j + 0.25 * float(running_beyond_w(table)[0]) * seconds)


def test_a_kernel_that_takes_longer_draws_power_as_long():
    table = to_table([load_architecture("h100"), load_architecture("tpuv4")])
    costs, rows = CostModel(table, NETWORK).costs(transformer_layer()), np.array([0, 1])
    plain, longer = (dynamic_j(pass_events(costs, rows, stretch), table) for stretch in (1.0, 2.0))
    running = energy_constants(table).kernel_w * float(costs.kernel_s[0].sum())
    assert longer[0] > plain[0] + running[0]
    assert longer[1] == plain[1]


def test_energy_of_kernels_is_no_less_than_that_of_their_products():
    table = to_table([load_architecture(name) for name in list_architectures()])
    table = table.take(np.flatnonzero(table["simt"]))
    model = CostModel(table, NETWORK)
    for operands in (None, Format.FP8, Format.FP32):
        made = one_product(1, 4096, 4096, 4096)
        work = replace(made, gemms=(replace(made.gemms[0], operands=operands),))
        pass_ = Pass((work,), ())
        spent = dynamic_j(pass_events(model.costs(pass_), np.arange(len(table))), table)
        assert (spent >= dynamic_j(product_events(pass_), table) * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    "name", [name for name in list_architectures() if load_architecture(name).fields["simt"]]
)
def test_a_chip_held_to_a_lower_clock_draws_less(name):
    chip, layer = load_architecture(name), transformer_layer()
    pass_ = Pass((*layer.works, one_product(1, 8192, 8192, 8192)), ())
    own_hz = float(to_table([chip])["clock_hz"][0])
    table = to_table([at_clock(chip, share * own_hz) for share in np.linspace(1.0, 0.2, 17)])
    costs, rows = CostModel(table, NETWORK).costs(pass_), np.arange(len(table))
    seconds = costs.kernel_s[costs.factors.simt_of[rows]].sum(axis=1)
    watts = dynamic_j(pass_events(costs, rows), table) / seconds + static_w(table)
    assert (np.diff(seconds) >= 0).all()
    assert (np.diff(watts) < 0).all()


@pytest.mark.parametrize("name", ["h100", "a100-80gb", "l4", "mi300x", "gb300"])
def test_a_clock_set_by_hand_slows_kernels_that_leave_power_too(name, tmp_path):
    """However a lower clock is given, the boost clock falls with it; a higher one leaves it."""
    chip = load_architecture(name)
    own_hz, boost_hz = chip.fields["clock_hz"], float(boost_clock_hz(to_table([chip]))[0])
    share = 0.7 * own_hz / chip.fields["boost_reference_clock_hz"]
    low = tmp_path / "low.yaml"
    low.write_text(f"schema_version: 1\nname: low\nbase: {name}\nfields: {{clock_hz: {0.7 * own_hz}}}\n")
    axis = f"axes: [{{fields: [clock_hz], values: [{own_hz!r}, {0.7 * own_hz!r}]}}]\n"
    space = parse_space(f"schema_version: 1\nname: clocks\nbase: {name}\n{axis}", "clocks.yaml")
    given = [chip.replace("low", clock_hz=0.7 * own_hz), load_architecture(low), space.architecture(1)]
    np.testing.assert_allclose(boost_clock_hz(to_table(given)), boost_hz * min(share, 1.0), rtol=1e-12)
    higher = to_table([chip.replace("high", clock_hz=share_hz) for share_hz in (own_hz, 0.99 * boost_hz)])
    np.testing.assert_allclose(boost_clock_hz(higher), boost_hz, rtol=1e-12)


def test_a_file_with_a_peak_of_its_own_is_another_board(tmp_path):
    own = tmp_path / "own.yaml"
    fields = "{clock_hz: 1GHz, peak_clock_hz: 1.43GHz}"
    own.write_text(f"schema_version: 1\nname: own\nbase: a100\nfields: {fields}\n")
    assert float(boost_clock_hz(to_table([load_architecture(own)]))[0]) == 1.43e9


def test_events_add_and_scale():
    table = chips()
    costs = CostModel(table, NETWORK).costs(Pass((tensor("p", product(512, 512, 512)),), ()))
    events = pass_events(costs, np.array([0]))
    twice = events + events
    np.testing.assert_allclose(dynamic_j(twice, table), 2 * dynamic_j(events, table))
    np.testing.assert_allclose(dynamic_j(events * 3, table), 3 * dynamic_j(events, table))


def test_optimizer_is_bound_by_hbm_or_by_arithmetic():
    table = chips(
        vector_cores=[1, 64], vector_core_alus=[64, 2048], clock_hz=1e9, hbm_bandwidth_bytes_per_s=1e12
    )
    step = 1e9 * optimizer_s_per_parameter(table, ADAM)
    np.testing.assert_allclose(step, [1e9 * 20 / 64 / 1e9, 1e9 * 30 / 1e12], rtol=1e-8)
    events = optimizer_events(1e9, ADAM)
    assert events.hbm_bytes == 30e9
    assert events.alu_cycles == 20e9
