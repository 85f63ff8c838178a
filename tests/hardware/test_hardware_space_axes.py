"""Ranges, ties, conditions and constraints of design spaces, against enumeration one by one."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.architecture import to_table
from phaze.hardware.hardware_fields import field_table
from phaze.hardware.spaces.space_file import load_space, parse_space

HEAD = "schema_version: 1\nname: mine\n"
MIB = 1 << 20


def space_of(text):
    return parse_space(HEAD + text, "mine.yaml")


def values(space, *names):
    """The values of some fields, architecture by architecture."""
    table = space.table()
    columns = [[field_table()[name].decode(cell) for cell in table[name]] for name in names]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("{fields: [tensor_cores], range: {from: 4, to: 16, step: 4}}", [4, 8, 12, 16]),
        ("{fields: [tensor_cores], range: {from: 4, to: 4, step: 4}}", [4]),
        ("{fields: [enabled_fraction], range: {from: 0.1, to: 0.4, step: 0.1}}", [0.1, 0.2, 0.3, 0.4]),
        ("{fields: [clock_hz], range: {from: 0.9GHz, to: 1.1GHz, step: 100MHz}}", [0.9e9, 1.0e9, 1.1e9]),
        ("{fields: [tensor_cores], geometric: {from: 1, to: 81, factor: 3}}", [1, 3, 9, 27, 81]),
        ("{fields: [clock_hz], geometric: {from: 1GHz, to: 2.25GHz, factor: 1.5}}", [1e9, 1.5e9, 2.25e9]),
        ("{fields: [global_buffer_bytes], powers_of_two: [1MiB, 4MiB]}", [MIB, 2 * MIB, 4 * MIB]),
        ("{fields: [simt], values: [true, false]}", [True, False]),
        ("{fields: [node], values: [N5, N7]}", ["N5", "N7"]),
    ],
)
def test_every_form_of_values(axis, expected):
    space = space_of(f"axes: [{axis}]")
    (name,) = space.axes[0].fields
    assert [value for (value,) in values(space, name)] == expected


CONDITIONAL = """
axes:
  - {fields: [node], values: [N7, N5, N3]}
  - {fields: [tensor_cores], powers_of_two: [1, 4]}
  - {fields: [clock_hz], values: [1.2GHz, 1.4GHz], when: {node: [N5, N3]}, otherwise: 1GHz}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM3, 4], [HBM3e, 6]]
    when: {node: [N3], tensor_cores: [2, 4]}
  - {fields: [vector_cores], values: [1, 3], when: {hbm_stacks: [6], clock_hz: [1.4GHz]}, otherwise: 1}
  - {fields: [tensor_core_rows], same_as: vector_cores, times: 64}
"""


def conditional_by_hand():
    for node, cores in itertools.product(["N7", "N5", "N3"], [1, 2, 4]):
        for clock in [1.2e9, 1.4e9] if node != "N7" else [1e9]:
            varies = node == "N3" and cores > 1
            for memory in [("HBM3", 4), ("HBM3e", 6)] if varies else [("HBM2e", 4)]:
                for vector in [1, 3] if memory[1] == 6 and clock == 1.4e9 else [1]:
                    yield (node, cores, clock, *memory, vector, 64 * vector)


def test_a_conditional_axis_counts_every_architecture_once():
    space = space_of(CONDITIONAL)
    expected = list(conditional_by_hand())
    assert values(space, *space.fields_varied) == expected
    assert len(set(expected)) == space.size < space.grid_size
    assert [space.number(space.architecture(row).fields) for row in range(space.size)] == list(
        range(space.size)
    )
    assert len({space.architecture_id(row) for row in range(space.size)}) == space.size


CONSTRAINED = """
axes:
  - {fields: [tensor_cores], powers_of_two: [1, 64]}
  - {fields: [tensor_core_rows], powers_of_two: [32, 256]}
  - {fields: [tensor_core_columns], same_as: tensor_core_rows}
  - {fields: [vector_cores], range: {from: 2, to: 10, step: 4}}
  - {fields: [global_buffer_bytes], values: [16MiB, 64MiB]}
where:
  - tensor_cores * tensor_core_rows * tensor_core_columns <= 131072
  - 1MiB * vector_cores <= global_buffer_bytes / 4 < 100MB
  - tensor_cores + -1 != vector_cores - 3
"""


def test_constraints_keep_what_they_say():
    space = space_of(CONSTRAINED)
    expected = [
        (cores, side, side, vector, buffer)
        for cores, side, vector, buffer in itertools.product(
            [2**k for k in range(7)], [32, 64, 128, 256], [2, 6, 10], [16 * MIB, 64 * MIB]
        )
        if cores * side * side <= 131072 and MIB * vector <= buffer / 4 < 1e8 and cores - 1 != vector - 3
    ]
    order = ("tensor_cores", "tensor_core_rows", "tensor_core_columns", "vector_cores", "global_buffer_bytes")
    assert values(space, *order) == expected
    assert 0 < space.size < space.grid_size == 7 * 4 * 3 * 2
    assert pickle.loads(pickle.dumps(space)).size == space.size


SPACES = {
    "conditional": space_of(CONDITIONAL),
    "constrained": space_of(CONSTRAINED),
    **{name: load_space(name) for name in ("default", "phaze", "wide")},
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_numbers_and_architectures_lead_to_each_other(space, data):
    number = data.draw(st.integers(0, space.size - 1))
    architecture = space.architecture(number)
    assert space.number(architecture.fields) == number
    assert space.settled(architecture.fields) == {
        name: architecture.fields.get(name) for name in space.fields_varied
    }
    assert space.keeps(to_table([architecture])).all()


def test_filtered_spaces_take_a_bit_for_each_combination():
    text = "axes: [{fields: [tensor_cores], range: {from: 1, to: 4096, step: 1}}, "
    text += "{fields: [vector_cores], range: {from: 1, to: 512, step: 1}}]\n"
    space = space_of(text + "where: [tensor_cores > vector_cores]")
    assert space.size == sum(max(0, min(512, cores - 1)) for cores in range(1, 4097))
    assert space._kept.bits.nbytes == space.grid_size / 8
    table = space.table(slice(space.size - 700_000, None, 7))
    assert (table["tensor_cores"] > table["vector_cores"]).all()
    rows = np.random.default_rng(1).integers(0, space.size, 200)
    some, whole = space.table(rows), space.table()
    np.testing.assert_array_equal(some["tensor_cores"], whole["tensor_cores"][rows])
    np.testing.assert_array_equal(some["vector_cores"], whole["vector_cores"][rows])


def test_an_architecture_outside_the_space_has_no_number():
    space = SPACES["conditional"]
    fields = dict(space.architecture(0).fields)
    with pytest.raises(InputError, match=r"does not offer clock_hz = \(1200000000.0,\)"):
        space.number(fields | {"clock_hz": 1.2e9})
    with pytest.raises(InputError, match="has tensor_core_rows = 64 there, not 128"):
        space.number(fields | {"tensor_core_rows": 128})
    with pytest.raises(InputError, match="constraints of space mine rule"):
        SPACES["constrained"].number(
            SPACES["constrained"].architecture(0).fields
            | {"tensor_cores": 64, "tensor_core_rows": 256, "tensor_core_columns": 256}
        )


ONE = "{fields: [tensor_cores], values: [1, 2]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes: [{fields: [tensor_cores], range: {from: 1, to: 4}}]", "axes.0.range.step: missing"),
        (
            "axes: [{fields: [tensor_cores], range: {from: 1, to: 4, step: 2}}]",
            "axes.0.range: [1, 4] is not a",
        ),
        ("axes: [{fields: [tensor_cores], range: {from: 4, to: 1, step: 1}}]", "[4, 1] does not go upwards"),
        (
            "axes: [{fields: [tensor_cores], range: {from: 1, to: 4, step: 0}}]",
            "range.step: 0 is not above 0",
        ),
        ("axes: [{fields: [tensor_cores], range: {from: 1, to: 2, step: 0.5}}]", "1.5 is not a whole number"),
        ("axes: [{fields: [clock_hz], range: {from: 1GHz, to: 2GHz, step: 1kHz}}]", "more than 10000 values"),
        (
            "axes: [{fields: [clock_hz], range: {from: 1GHz, to: 2GHz, step: 1mm2}}]",
            "'1mm2' is not a quantity",
        ),
        (
            "axes: [{fields: [tensor_cores], geometric: {from: 1, to: 9, factor: 1}}]",
            "geometric.factor: must be",
        ),
        (
            "axes: [{fields: [tensor_cores], geometric: {from: 0, to: 9, factor: 3}}]",
            "does not start above 0",
        ),
        ("axes: [{fields: [tensor_cores], geometric: {from: 1, to: 8, factor: 3}}]", "is not a range"),
        ("axes: [{fields: [tensor_cores, hbm_stacks], powers_of_two: [1, 2]}]", "is for exactly one field"),
        ("axes: [{fields: [tensor_cores], values: [1], powers_of_two: [1, 2]}]", "exactly one of values"),
        ("axes: [{fields: [tensor_cores], values: [1], times: 2}]", "exactly one of values"),
        (
            f"axes: [{ONE}, {{fields: [vector_cores], same_as: tensor_cores, times: 1.5}}]",
            "1.5 is not a whole",
        ),
        (
            f"axes: [{ONE}, {{fields: [vector_cores], same_as: tensor_cores, times: 0}}]",
            "axes.1.times: must be",
        ),
        (f"axes: [{ONE}, {{fields: [node], same_as: tensor_cores}}]", "not both numbers"),
        (f"axes: [{ONE}, {{fields: [tensor_cores], same_as: tensor_cores}}]", "not a field of another axis"),
        (
            f"axes: [{ONE}, {{fields: [vector_cores], values: [1], when: {{node: [N5]}}}}]",
            "axes.1.when.node: node is not a field of an earlier axis",
        ),
        (
            f"axes: [{ONE}, {{fields: [vector_cores], values: [1], when: {{tensor_cores: [3]}}}}]",
            "axes.1.when.tensor_cores: [3] is not a list of values that tensor_cores takes: 1, 2",
        ),
        (
            f"axes: [{ONE}, {{fields: [vector_cores], values: [1], otherwise: 2}}]",
            "axes.1.otherwise: it belongs",
        ),
        (
            f"axes: [{ONE}, {{fields: [vector_cores], values: [1], when: {{tensor_cores: [1]}}, otherwise: x}}]",
            "axes.1.otherwise: 'x' is not a quantity",
        ),
        (f"axes: [{ONE}]\nwhere: [tensor_cores]", "where.0: 'tensor_cores' compares nothing"),
        (f"axes: [{ONE}]\nwhere: [tensor_cors < 2]", "where.0: no hardware field is named 'tensor_cors'"),
        (f"axes: [{ONE}]\nwhere: ['tensor_cores < ']", "where.0: 'tensor_cores < ' is not a comparison"),
        (f"axes: [{ONE}]\nwhere: [1 < 2]", "names no hardware field"),
        (f"axes: [{ONE}]\nwhere: ['node < 2']", "where.0: node is not a number"),
        (
            f"axes: [{ONE}]\nwhere: ['tensor_cores < 2**9']",
            "'2 ** 9' in 'tensor_cores < 2**9' is not a field",
        ),
        (f"axes: [{ONE}]\nwhere: ['__import__(1) < 2']", "is not a field, a number or one of"),
        (f"axes: [{ONE}]\nwhere: ['tensor_cores in (1, 2)']", "compares other than by"),
        (f"axes: [{ONE}]\nwhere: ['tensor_cores < True']", "'True' in"),
        (
            f"axes: [{ONE}]\nwhere: ['tensor_cores < 5kg']",
            "where.0: '5kg' is not a size, a rate or a frequency",
        ),
        (f"axes: [{ONE}]\nwhere: ['{'-' * 280}tensor_cores < {'(' * 280}']", "is not a comparison"),
        (
            f"axes: [{ONE}]\nwhere: ['hbm_capacity_bytes > 1']",
            "where.0: some architectures have no hbm_capacity",
        ),
        (f"axes: [{ONE}]\nwhere: [3]", "where.0: '3' is not a comparison"),
        (
            "axes: [{fields: [precision], values: [bf16, fp8]}]",
            "precision cannot range over formats of different width (bf16, fp8)",
        ),
        (f"axes: [{ONE}]\nstages: mixed", "stages: must be 'alike' or 'heterogeneous'"),
    ],
)
def test_faulty_axes_and_constraints_are_one_clear_line(text, message):
    with pytest.raises(InputError) as caught:
        space_of(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.yaml: ")
    assert "\n" not in str(caught.value)


def test_spaces_too_large_or_empty():
    axes = ", ".join(
        f"{{fields: [{name}], range: {{from: 1, to: 1000, step: 1}}}}"
        for name in ("tensor_cores", "vector_cores", "tensor_core_rows", "tensor_core_columns")
    )
    assert space_of(f"axes: [{axes}]").size == 10**12
    with pytest.raises(
        InputError, match=r"1e\+12 combinations are more than the 1e\+09 that can be filtered"
    ):
        space_of(f"axes: [{axes}]\nwhere: [tensor_cores < vector_cores]")
    with pytest.raises(InputError, match="space mine: its constraints and fixed fields leave no"):
        _ = space_of(f"axes: [{ONE}]\nwhere: [tensor_cores > 2]").size


def test_stages_may_have_designs_of_their_own():
    assert space_of(f"axes: [{ONE}]\nstages: heterogeneous").heterogeneous
    assert not space_of(f"axes: [{ONE}]\nstages: alike").heterogeneous
    assert not load_space().heterogeneous


def test_formats_of_one_width_are_fine_and_a_format_may_be_fixed():
    assert space_of("axes: [{fields: [precision], values: [bf16, fp16]}]").size == 2
    assert space_of(f"fixed: {{precision: fp8}}\naxes: [{ONE}]").architecture(0).value("precision") == "fp8"
