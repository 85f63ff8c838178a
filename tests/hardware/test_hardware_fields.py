"""Field table, quantities, strict YAML and the generated reference page."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.hardware_fields import FieldKind, code, default_values, field_named, field_table
from phaze.hardware.physical_constants import constants
from phaze.hardware.reference_page import reference_page
from phaze.quantity import si_value
from phaze.yaml_file import parse_yaml, read_yaml

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "hardware-fields.md"


def test_every_field_is_documented_and_its_default_is_legal():
    for name, field in field_table().items():
        assert field.description, name
        assert field.source, name
        if field.default is not None:
            assert field.parse(field.default, name) == field.default


def test_choices_have_codes_and_constants():
    for name in constants().tables:
        field = field_table()[name]
        assert field.kind is FieldKind.CHOICE
        assert set(constants().tables[name].rows) == set(field.choices)
        assert [code(name, choice) for choice in field.choices] == list(range(len(field.choices)))


def test_a_missing_constant_is_an_error():
    with pytest.raises(InputError, match="'lane_volume' is missing"):
        constants()["lane_volume"]


@pytest.mark.parametrize("name", list(field_table()))
def test_encode_and_decode_are_inverse(name):
    field = field_table()[name]
    values = [default_values().get(name), *field.choices]
    for value in values:
        cell = np.array([field.encode(value)], dtype=field.dtype)[0]
        assert field.decode(cell) == value


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("128MiB", "byte", 128 * 2**20),
        ("80 GiB", "byte", 80 * 2**30),
        ("900GB/s", "byte/s", 900e9),
        ("1.05GHz", "Hz", 1.05e9),
        ("1us", "s", 1e-6),
        ("1e9", "Hz", 1e9),
        (5, "1", 5.0),
    ],
)
def test_quantities(text, unit, value):
    assert si_value(text, unit, "here") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("128Mib", "byte"),
        ("4GHz", "byte"),
        ("fast", "Hz"),
        (True, "1"),
        (float("nan"), "Hz"),
        ("1e999", "Hz"),
        (10**400, "byte"),
        ("", "s"),
    ],
)
def test_bad_quantities_name_the_place_and_what_would_do(text, unit):
    with pytest.raises(InputError, match=r"^here: .* is not a quantity; give a plain number"):
        si_value(text, unit, "here")


@given(st.floats(1e-3, 1e15))
def test_plain_numbers_survive_as_text(value):
    assert si_value(repr(value), "byte", "here") == value


def test_bounds_and_types():
    with pytest.raises(InputError, match="tensor_cores takes from 1"):
        field_table()["tensor_cores"].parse(0, "here")
    with pytest.raises(InputError, match="not a whole number"):
        field_table()["tensor_cores"].parse(1.5, "here")
    with pytest.raises(InputError, match="not one of N28"):
        field_table()["node"].parse("7nm", "here")
    with pytest.raises(InputError, match="not true or false"):
        field_table()["simt"].parse("yes", "here")
    with pytest.raises(InputError, match="out of range; tensor_cores takes from 1 to 1048576"):
        field_table()["tensor_cores"].parse(1 << 21, "here")


def test_unknown_field_gets_the_nearest_names():
    with pytest.raises(InputError, match="near: tensor_core_columns"):
        field_named("tensor_core_colums", "here")


def test_duplicate_keys_are_an_error_with_the_line():
    with pytest.raises(InputError, match=r"file, line 3: the key 'a' is given twice"):
        parse_yaml("a: 1\nb: 2\na: 3\n", "file")
    with pytest.raises(InputError, match=r"line 2: the key 'x' is given twice"):
        parse_yaml("outer:\n  {x: 1, x: 1}\n", "file")


def test_unreadable_files_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(tmp_path / "absent.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1\n")
    with pytest.raises(InputError, match=r"broken\.yaml, line"):
        read_yaml(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_yaml(broken)


def test_reference_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "write reference_page() to the file again"
