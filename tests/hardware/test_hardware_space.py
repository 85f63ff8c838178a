"""Design spaces: sizes, order, ids, PHAZE's configurations, faulty files."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.architecture_table import factor
from phaze.hardware.derived_figures import nominal_clock_hz
from phaze.hardware.hardware_fields import field_table
from phaze.hardware.silicon.die_area import area_mm2, area_parts_mm2
from phaze.hardware.silicon.package_power import energy_constants, tdp_w
from phaze.hardware.spaces.design_space import architecture_id
from phaze.hardware.spaces.space_file import list_spaces, load_space

DEFAULT, PHAZE, WIDE = load_space("default"), load_space("phaze"), load_space("wide")
ONE_CLOCK = load_space("one-clock")


def test_sizes():
    assert set(list_spaces()) >= {"default", "phaze", "wide"}
    assert ONE_CLOCK.size == 1_417_500
    assert PHAZE.size == 29_360
    assert WIDE.size == 13 * 13 * 8 * 8 * 8 * 7 * 8 * 3 == 14_536_704


@pytest.mark.parametrize("name", list_spaces())
def test_a_description_tells_the_size(name):
    space = load_space(name)
    if told := re.search(r"(\d[\d ]*) (architectures|configurations)", space.description):
        assert int(told[1].replace(" ", "")) == space.size


def test_the_default_space_is_that_of_one_clock_at_several_voltages():
    space = DEFAULT
    *others, clock = space.axes
    assert clock.fields == ("clock_hz",)
    assert tuple(others) == ONE_CLOCK.axes
    assert ONE_CLOCK.base.value("clock_hz") in [hz for (hz,) in clock.options]
    assert list(clock.options) == sorted(clock.options)
    chip = space.table(range(space.size - len(clock.options), space.size))
    nominal = nominal_clock_hz(chip)
    assert (chip["clock_hz"] <= nominal).all()
    energy, leakage = energy_constants(chip).mac_j, energy_constants(chip).leakage_w
    volts = 0.65 + 0.35 * chip["clock_hz"] / nominal  # of the nominal one, whose floor is 0.75
    assert (volts > 0.75).all()
    assert energy / energy[0] == pytest.approx((volts / volts[0]) ** 2)  # what a product takes
    assert (np.diff(leakage) >= 0).all()
    assert (np.diff(tdp_w(chip)) > 0).all()


def test_lexicographic_order():
    space = ONE_CLOCK
    table = space.table(slice(0, 2000, 5))
    expected = itertools.product(
        [16, 32, 64, 128, 256, 512][:1],
        [16 << 20 << k for k in range(5)],
        ["HBM2e", "HBM2e", "HBM3", "HBM3", "HBM3", "HBM3e"],
    )
    generation = field_table()["hbm_generation"].choices
    for row, (_, buffer, kind) in enumerate(expected):
        assert table["global_buffer_bytes"][row] == buffer
        assert generation[table["hbm_generation"][row]] == kind
    assert list(table["hbm_stacks"][:6]) == [4, 6, 4, 6, 8, 6]
    assert table["vector_core_alus"][30] == 128
    assert list(space.table(slice(0, 6))["global_buffer_bytes_per_cycle"]) == [
        1024,
        2048,
        4096,
        8192,
        16384,
        1024,
    ]
    whole = space.table()
    assert len(np.unique(np.stack([whole[name] for name in space.fields_varied]), axis=1).T) == space.size


@pytest.mark.parametrize("space", [DEFAULT, PHAZE, WIDE], ids=lambda space: space.name)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_rows_equal_the_same_rows_of_a_block(space, data):
    start = data.draw(st.integers(0, space.size - 50))
    block = space.table(slice(start, start + 50))
    rows = data.draw(st.lists(st.integers(0, 49), min_size=1, max_size=5))
    some = space.table([start + row for row in rows])
    for name in field_table():
        np.testing.assert_array_equal(some[name], block[name][rows])


def test_blocks_cover_the_space_once():
    starts, tables = zip(*PHAZE.blocks(10_000), strict=True)
    assert starts == (0, 10_000, 20_000)
    assert [len(table) for table in tables] == [10_000, 10_000, 9_360]
    with pytest.raises(IndexError):
        PHAZE.table([29_360])


def test_constant_columns_take_no_memory():
    table = ONE_CLOCK.table()
    held = sum(table[name].nbytes for name in ONE_CLOCK.fields_varied)
    shared = [table[name] for name in field_table() if name not in ONE_CLOCK.fields_varied]
    assert held < 120e6
    assert all(column.strides == (0,) for column in shared)


def test_ids_are_distinct_and_stable():
    ids = {PHAZE.architecture_id(row) for row in range(0, PHAZE.size, 97)}
    assert len(ids) == len(range(0, PHAZE.size, 97))
    assert ONE_CLOCK.architecture_id(0) == "tc1x16x16-vc1x64-gb16MiB-hbm2ex4-port1KiB"
    assert (
        ONE_CLOCK.architecture_id(ONE_CLOCK.size - 1) == "tc256x256x256-vc64x2048-gb256MiB-hbm3ex6-port16KiB"
    )
    assert ONE_CLOCK.architecture(25).name == ONE_CLOCK.architecture_id(25)
    assert ONE_CLOCK.architecture(25).value("hbm_generation") == "HBM3e"


def test_phaze_counts_and_extremes():
    table = PHAZE.table()
    tensor, _ = factor(
        table, ["tensor_cores", "tensor_core_rows", "tensor_core_columns", "global_buffer_bytes"]
    )
    vector, _ = factor(table, ["vector_cores", "vector_core_alus", "global_buffer_bytes"])
    area_um2 = area_mm2(table) * 1e6
    assert (len(tensor), len(vector)) == (4_186, 697)
    assert area_um2.max() == pytest.approx(278_826_676.31, abs=0.006)
    assert area_um2.min() == pytest.approx(3_355_048, abs=0.5)
    np.testing.assert_array_equal(table["vector_core_alus"], table["tensor_core_columns"])
    assert PHAZE.hbm_capacities_bytes == (32 * 2**30, 64 * 2**30, 80 * 2**30)


# Tensor cores, vector cores, width, depth, buffer, area in um2: cores.json of msr-fiddle/phaze at fed7cde.
LISTED = [
    (4096, 4096, 16, 2, 33554432, 246416424.736),
    (4096, 4096, 4, 2, 134217728, 263026554.304),
    (4096, 2048, 8, 8, 16777216, 273121616.219136),
    (1, 1, 128, 128, 67108864, 101610288.951408),
    (1, 1, 128, 256, 4194304, 31987072.019632),
    (1, 1, 32, 256, 8388608, 18413871.377408),
    (1, 1, 16, 128, 2097152, 4976414.320176),
    (1, 1, 2, 2, 2097152, 3355047.77325),
]


@pytest.mark.parametrize("listed", LISTED)
def test_phaze_areas_as_listed(listed):
    tensor, vector, width, depth, buffer, area_um2 = listed
    machine = load_architecture("phaze-reference").replace(
        "listed",
        tensor_cores=tensor,
        vector_cores=vector,
        tensor_core_rows=depth,
        tensor_core_columns=width,
        vector_core_alus=width,
        global_buffer_bytes=buffer,
    )
    assert area_mm2(to_table([machine]))[0] * 1e6 == pytest.approx(area_um2, rel=5e-12)


def test_phaze_law_rejects_sizes_it_does_not_list():
    machine = load_architecture("phaze-reference").replace("x", global_buffer_bytes="256MiB")
    with pytest.raises(InputError, match=r"PHAZE's area law .global buffer, MiB. has no area for 256"):
        area_mm2(to_table([machine]))


def test_laws_can_be_mixed_in_one_table():
    both = to_table(
        [load_architecture("a100"), load_architecture("phaze-reference"), load_architecture("tpuv4")]
    )
    alone = [area_mm2(both.take([row]))[0] for row in range(3)]
    np.testing.assert_array_equal(area_mm2(both), alone)
    assert area_parts_mm2(both)["hbm_phy"][1] == 0.0


def test_fixed_fields():
    newer = ONE_CLOCK.fixed(node="N5", clock_hz="1.2GHz")
    assert newer.architecture(0).value("node") == "N5"
    assert newer.size == ONE_CLOCK.size
    with pytest.raises(InputError, match="it varies tensor_cores"):
        DEFAULT.fixed(tensor_cores=4)
    assert PHAZE.fixed(clock_hz=0.9e9).size == PHAZE.size


HEAD = "schema_version: 1\nname: mine\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: [{fields: [tensor_cores], powers_of_two: [1, 3]}]", "axes.0.powers_of_two: [1, 3] is not"),
        ("axes: [{fields: [tensor_cores], values: [1, 1]}]", "given twice"),
        ("axes: [{fields: [tensor_cores], values: []}]", "missing"),
        ("axes: [{fields: [tensor_cores]}]", "exactly one of values"),
        ("axes: [{fields: [tensor_cors], values: [1]}]", "near: tensor_cores"),
        ("axes: [{fields: [hbm_generation, hbm_stacks], values: [[HBM3]]}]", "one value for each"),
        ("axes: [{fields: [hbm_generation], values: [HBM5]}]", "axes.0.values.0: 'HBM5' is not one of HBM2"),
        ("axes: [{fields: [tensor_cores], same_as: vector_cores}]", "tied to vector_cores, which is not"),
        (
            "axes: [{fields: [tensor_cores], values: [1]}, {fields: [tensor_cores], values: [2]}]",
            "more than once",
        ),
        ("base: a10\naxes: [{fields: [tensor_cores], values: [1]}]", "no architecture is named 'a10'"),
        ("base: zzz\naxes: [{fields: [tensor_cores], values: [1]}]", "dse archs lists the"),
        ("axes: [{fields: [tensor_cores], values: [1]}]\naxes: []", "given twice"),
    ],
)
def test_faulty_spaces_are_one_clear_line(text, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(InputError) as caught:
        load_space(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_users_space_over_a_real_chip(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        HEAD + "base: h100\nfixed: {node: N3}\naxes:\n  - {fields: [clock_hz], values: [1.4GHz, 1.6GHz]}\n"
    )
    space = load_space(path)
    assert space.size == 2
    assert space.architecture(1).value("tensor_cores") == 528
    assert space.architecture(1).value("node") == "N3"
    assert space.architecture_id(0) == "tc528x32x16-vc132x128-gb50MiB-hbm3x5-1400MHz"
    with pytest.raises(InputError, match="no space is named 'defalt'; near: default"):
        load_space("defalt")


def test_ids_show_sizes_in_binary_units():
    table = to_table([load_architecture("a100")])
    assert architecture_id(table, 0, ["hbm_capacity_bytes"]).endswith("-gb40MiB-hbm2ex5-hbm_capacity=40GiB")
    table = table.replace(hbm_capacity_bytes=np.array([1e9]))
    assert architecture_id(table, 0, ["hbm_capacity_bytes"]).endswith("-hbm_capacity=1000000000B")
    assert architecture_id(table, 0, ["hbm_bandwidth_bytes_per_s"]).endswith("per_s=1555000000000.0")
