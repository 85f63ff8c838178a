"""Fields of a space held at one value: the space keeps exactly the architectures that have it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.spaces.space_file import load_space, parse_space
from phaze.hardware.spaces.space_fix import fix

DEFAULT, PHAZE, WIDE = load_space("default"), load_space("phaze"), load_space("wide")
ONE_CLOCK = load_space("one-clock")
MIXED = parse_space(
    """
schema_version: 1
name: mixed
axes:
  - {fields: [node], values: [N7, N5, N3]}
  - {fields: [tensor_cores], powers_of_two: [1, 8]}
  - {fields: [clock_hz], values: [1.2GHz, 1.4GHz], when: {node: [N5, N3]}, otherwise: 1GHz}
  - {fields: [hbm_generation, hbm_stacks], values: [[HBM3, 4], [HBM3e, 6]], when: {node: [N3], tensor_cores: [2, 4]}}
  - {fields: [vector_cores], same_as: tensor_cores, times: 3}
  - {fields: [simt], values: [true, false]}
where: [tensor_cores * clock_hz <= 5e9]
""",
    "mixed.yaml",
)
FIELDS = ("node", "tensor_cores", "clock_hz", "hbm_generation", "hbm_stacks", "vector_cores", "simt")


def rows(space):
    architectures = [space.architecture(row) for row in range(space.size)]
    return [tuple(a.value(name) for name in FIELDS) for a in architectures]


ALL = rows(MIXED)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ALL), st.sets(st.sampled_from(FIELDS), min_size=1, max_size=3))
def test_what_is_left_is_what_has_the_values(architecture, names):
    held = {name: architecture[FIELDS.index(name)] for name in names}
    expected = [row for row in ALL if all(row[FIELDS.index(n)] == value for n, value in held.items())]
    assert rows(fix(MIXED, [f"{name}={value}" for name, value in held.items()])) == expected


def test_one_value_of_an_axis():
    eight = fix(DEFAULT, ["tensor_cores=8", "global_buffer_bytes=64MiB"])
    assert eight.size == DEFAULT.size / 9 / 5
    assert eight.architecture_id(0) == "tc8x16x16-vc1x64-gb64MiB-hbm2ex4-port1KiB-500MHz"
    assert fix(WIDE, ["hbm_stacks=6"]).size == WIDE.size / 8


def test_memory_in_short():
    for text in ("hbm=hbm3x6", "hbm=HBM3x6"):
        assert fix(DEFAULT, [text]).size == DEFAULT.size / 6
    assert fix(DEFAULT, ["hbm=hbm3"]).size == DEFAULT.size / 2
    assert fix(DEFAULT, ["hbm_generation=HBM2e", "hbm_stacks=4"]).size == DEFAULT.size / 6
    assert fix(WIDE, ["hbm=hbm3ex8"]).size == WIDE.size / 24
    # Nothing varies the memory in PHAZE's space: it is set for all.
    assert fix(PHAZE, ["hbm=hbm3x5"]).architecture(7).value("hbm_stacks") == 5


def test_a_tied_field_holds_its_source():
    narrow = fix(PHAZE, ["vector_core_alus=128"])
    table = narrow.table()
    assert set(table["tensor_core_columns"]) == set(table["vector_core_alus"]) == {128}
    assert narrow.size == (PHAZE.table()["tensor_core_columns"] == 128).sum()


def test_fields_that_do_not_vary_are_set():
    newer = fix(ONE_CLOCK, ["node=N5", "clock_hz=1.2GHz", "simt=TRUE", "precision=fp8"])
    assert newer.size == ONE_CLOCK.size
    values = [newer.architecture(3).value(name) for name in ("node", "clock_hz", "simt", "precision")]
    assert values == ["N5", 1.2e9, True, "fp8"]
    assert fix(DEFAULT, []) == DEFAULT


def test_memory_sizes_beside_the_architecture():
    one = fix(PHAZE, ["hbm_capacity_bytes=64GiB"])
    assert one.hbm_capacities_bytes == (64 * 2**30,)
    assert one.base == PHAZE.base
    assert fix(DEFAULT, ["hbm_capacity_bytes=64GiB"]).base.value("hbm_capacity_bytes") == 64 * 2**30


@pytest.mark.parametrize(
    ("space", "texts", "message"),
    [
        (DEFAULT, ["tensor_cores=7"], "--fix: space default has no tensor_cores = 7; it offers 1, 2, 4, 8"),
        (DEFAULT, ["hbm=hbm4x6"], "no hbm_generation, hbm_stacks = HBM4 x 6; it offers HBM2e x 4, HBM2e x 6"),
        (DEFAULT, ["global_buffer_bytes=8MiB"], "= 8MiB; it offers 16MiB, 32MiB, 64MiB, 128MiB, 256MiB"),
        (MIXED, ["clock_hz=2GHz"], "clock_hz = 2000MHz; it offers 1200MHz, 1400MHz, 1000MHz"),
        (MIXED, ["vector_cores=4"], "vector_cores = 4; it offers 3, 6, 12, 24"),
        (PHAZE, ["hbm_capacity_bytes=1GiB"], "hbm_capacity_bytes = 1GiB; it offers 32GiB, 64GiB, 80GiB"),
        (DEFAULT, ["tensor_cores"], "--fix 'tensor_cores' is not FIELD=VALUE"),
        (DEFAULT, ["tensor_cors=1"], "--fix tensor_cors=1: no hardware field is named 'tensor_cors'"),
        (DEFAULT, ["tensor_cores=x"], "--fix tensor_cores=x: 'x' is not a quantity"),
        (DEFAULT, ["simt=maybe"], "'maybe' is not true or false"),
        (
            DEFAULT,
            ["hbm=ddr5x2"],
            "'hbm=ddr5x2' is not GENERATIONxSTACKS such as hbm3x6; generations: hbm2, hbm2e",
        ),
        (DEFAULT, ["hbm=hbm3x0"], "--fix hbm=hbm3x0: '0' is out of range"),
        (DEFAULT, ["hbm=hbm3x6", "hbm_stacks=6"], "'hbm_stacks=6' fixes hbm_stacks a second time"),
    ],
)
def test_what_cannot_be_held_is_one_clear_line(space, texts, message):
    with pytest.raises(InputError) as caught:
        fix(space, texts)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_the_constraints_exclude_together():
    with pytest.raises(InputError, match="space mixed: its constraints and fixed fields leave no"):
        _ = fix(MIXED, ["tensor_cores=8"]).size
