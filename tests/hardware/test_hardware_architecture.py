"""Templates, files and tables hold the same architectures."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.errors import InputError
from phaze.hardware.architecture import (
    FROM_LIMIT,
    PUBLISHED,
    Architecture,
    dump_yaml,
    from_table,
    list_architectures,
    load_architecture,
    parse_architecture,
    to_table,
)
from phaze.hardware.catalogue import Catalogue, packaged
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    hbm_capacity_bytes,
    local_buffer_bytes_per_core,
    peak_clock_hz,
    register_bytes,
)
from phaze.hardware.hardware_fields import code, field_table
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import parse_space
from phaze.yaml_file import read_yaml

NAMES = list_architectures()


def test_all_asked_for_are_there():
    asked = {
        "tpuv2",
        "tpuv3",
        "tpuv4",
        "tpuv4i",
        "v100",
        "a100",
        "a100-80gb",
        "h100",
        "mi210",
        "phaze-reference",
        *("tpuv5e", "tpuv5p", "tpuv6e", "h200", "b200", "mi250x", "mi300x"),
        *("gaudi2", "gaudi3", "trainium1", "trainium2", "nvdla-like", "edge"),
    }
    assert asked <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_template_has_a_source(name):
    content = read_yaml(packaged(Catalogue.ARCHITECTURE)[name])
    assert content["name"] == name
    entries = {**content["fields"], **{k: content[k] for k in content if k.startswith("published_")}}
    if "power_limit_w" in content:
        entries["clock_hz"] = content["power_limit_w"]
    assert all(entry["source"] for entry in entries.values())
    inherited = load_architecture(content["base"]).sources.keys() if "base" in content else set()
    assert load_architecture(name).sources.keys() - entries.keys() == inherited - entries.keys() - {
        *PUBLISHED
    }


@pytest.mark.parametrize("name", NAMES)
def test_round_trips(name, tmp_path):
    architecture = load_architecture(name)
    path = tmp_path / "again.yaml"
    path.write_text(dump_yaml(architecture), encoding="utf-8")
    assert load_architecture(path) == architecture
    assert from_table(to_table([architecture]), 0, name).fields == architecture.fields
    assert pickle.loads(pickle.dumps(architecture)) == architecture


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("A100", "a100"),
        ("TPUv4", "tpuv4"),
        ("tpu-v4", "tpuv4"),
        ("TPU v4", "tpuv4"),
        ("H100-SXM", "h100"),
        ("phaze", "phaze-reference"),
    ],
)
def test_spellings_and_aliases(spelling, name):
    assert load_architecture(spelling).name == name


def test_aliases_are_unique():
    taken = [alias for name in NAMES for alias in (*load_architecture(name).aliases, name)]
    assert len(set(taken)) == len(taken)


def test_unknown_name_gets_the_nearest():
    with pytest.raises(InputError, match=r"near: .*h100"):
        load_architecture("h10")
    with pytest.raises(InputError, match="cannot be read"):
        load_architecture("my/absent.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema_version: 2\nname: x\n", "schema_version: must be 1, found 2"),
        ("schema_version: 1\nname: x\ncores: 4\n", "cores: no such field"),
        (
            "schema_version: 1\nname: x\nfields: {tensor_core: 4}\n",
            "fields.tensor_core: no hardware field is named",
        ),
        ("schema_version: 1\nname: x\nfields: {clock_hz: 1GB}\n", "fields.clock_hz: '1GB' is not a quantity"),
        (
            "schema_version: 1\nname: x\nfields: {clock_hz: {value: 1}}\n",
            "a mapping of exactly value and source",
        ),
        ("schema_version: 1\nname: x\npublished_tdp_w: lots\n", "published_tdp_w: 'lots' is not a quantity"),
        ("[1, 2]", "my.yaml: must be a mapping: schema_version, name, description, ..., found [1, 2]"),
        ("", "my.yaml: must be a mapping: schema_version, name, description, ..., found nothing"),
        ("schema_version: 1\nname: x\nfields: 3\n", "fields: must be a mapping of names to values, found 3"),
    ],
)
def test_faulty_files_are_one_clear_line(text, message):
    with pytest.raises(InputError) as caught:
        parse_architecture(text, "my.yaml")
    assert str(caught.value).startswith("my.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_base_gives_the_fields_that_a_file_leaves_out():
    text = "schema_version: 1\nname: mine\nbase: h100\nfields: {hbm_capacity_bytes: 96GiB, clock_hz: 1GHz}\n"
    mine, base = parse_architecture(text, "mine.yaml"), load_architecture("h100")
    assert mine.fields == {**base.fields, "hbm_capacity_bytes": 96 * 2**30, "clock_hz": 1e9}
    assert mine.sources["tensor_cores"] == base.sources["tensor_cores"]
    assert "clock_hz" not in mine.sources  # the base's source is not that of another value
    assert mine.published_area_mm2 is None


def test_only_packaged_architectures_are_bases():
    with pytest.raises(InputError, match=r"^mine.yaml: base: './mine.yaml' is not a built-in architecture"):
        parse_architecture("schema_version: 1\nname: mine\nbase: ./mine.yaml\n", "mine.yaml")


def test_fields_not_given_keep_their_defaults():
    architecture = parse_architecture(
        "schema_version: 1\nname: x\nfields: {global_buffer_bytes: 64MiB}\n", "x"
    )
    assert architecture.value("global_buffer_bytes") == 64 << 20
    assert architecture.value("tensor_cores") == field_table()["tensor_cores"].default
    assert architecture.value("peak_clock_hz") is None


def test_replace_checks_and_drops_published_figures():
    faster = load_architecture("a100").replace("a100-fast", clock_hz="1.4GHz")
    assert faster.value("clock_hz") == 1.4e9
    assert faster.published_tdp_w is None
    with pytest.raises(InputError):
        faster.replace("x", clock_hz=-1)


def test_derived_figures_and_overrides():
    a100, reference = to_table([load_architecture("a100")]), to_table([load_architecture("phaze-reference")])
    assert hbm_bandwidth_bytes_per_s(a100)[0] == 1555e9
    assert hbm_capacity_bytes(a100)[0] == 40 * 2**30
    assert local_buffer_bytes_per_core(a100)[0] == 48 * 1024
    assert hbm_bandwidth_bytes_per_s(reference)[0] == 4 * 461e9
    assert local_buffer_bytes_per_core(reference)[0] == 256 * 1024
    assert register_bytes(reference)[0] == 32 * 8 * 128 * 128 + 12 * 2 * 128


@given(st.integers(1, 64), st.integers(1, 64))
def test_local_buffer_is_at_least_one_kib(rows, columns):
    architecture = load_architecture("phaze-reference").replace(
        "x", tensor_core_rows=rows, tensor_core_columns=columns
    )
    expected = max(1024.0, rows * columns * 16.0)
    assert np.isclose(local_buffer_bytes_per_core(to_table([architecture]))[0], expected)


def test_a_figure_of_one_chip_goes_with_other_values_of_what_it_overrules():
    chip = load_architecture("h100")
    faster = to_table([chip.replace("fast", clock_hz=2.5e9)])
    assert peak_clock_hz(faster)[0] == 2.5e9
    newer = to_table([chip.replace("new", hbm_generation="HBM3e")])
    assert (
        hbm_bandwidth_bytes_per_s(newer)[0]
        == 5 * constants().tables["hbm_generation"].rows["HBM3e"]["bandwidth_bytes_per_s"]
    )
    assert chip.replace("same", clock_hz=chip.value("clock_hz")).fields == chip.fields
    both = chip.replace("both", clock_hz=1e9, peak_clock_hz=1.2e9)
    assert both.value("peak_clock_hz") == 1.2e9
    slower = to_table([chip.replace("slow", clock_hz=1e9)])
    assert peak_clock_hz(slower)[0] == chip.value("peak_clock_hz")


def test_totals_grow_with_what_they_are_made_of():
    """With 6 stacks an H100 has the bandwidth of the GH200 with 96 GB, 4.0 TB/s."""
    chip = load_architecture("h100")
    wider = chip.replace("wide", hbm_stacks=6)
    assert wider.value("hbm_bandwidth_bytes_per_s") == 3350e9 * 6 / 5
    assert "hbm_bandwidth_bytes_per_s" not in wider.sources
    assert (
        chip.replace("given", hbm_stacks=6, hbm_bandwidth_bytes_per_s=4e12).value("hbm_bandwidth_bytes_per_s")
        == 4e12
    )
    larger = chip.replace("large", tensor_cores=2 * 528, vector_cores=2 * 132)
    for total in ("local_buffer_bytes", "register_bytes", "int32_alus", "fp64_alus"):
        assert larger.value(total) == 2 * chip.value(total), total
    text = "schema_version: 1\nname: x\nbase: h100\nfields: {tensor_cores: 456, vector_cores: 114}\n"
    smaller = parse_architecture(text, "here")
    assert (smaller.value("int32_alus"), smaller.value("local_buffer_bytes")) == (114 * 64, 114 * 2**18)
    assert smaller.fields == chip.replace("x", tensor_cores=456, vector_cores=114).fields


@pytest.mark.parametrize(
    "axis", ["hbm_stacks], values: [4, 8]", "hbm_generation, hbm_stacks], values: [[HBM3, 10], [HBM2, 5]]"]
)
def test_axes_of_a_space_overrule_and_grow_the_figures_of_its_base(axis):
    space = parse_space(f"schema_version: 1\nname: s\nbase: h100\naxes: [{{fields: [{axis}}}]\n", "s")
    table = space.table()
    for row in range(2):
        found = space.architecture(row)
        same = load_architecture("h100").replace(
            found.name, **{f: found.value(f) for f in space.fields_varied}
        )
        assert (
            found.fields
            == same.fields
            == dict(space.completed({f: found.value(f) for f in space.fields_varied}))
        )
    given = load_architecture("h100").value("hbm_bandwidth_bytes_per_s")
    kept = np.isin(table["hbm_generation"], code("hbm_generation", "HBM3"))
    assert (hbm_bandwidth_bytes_per_s(table) == given * table["hbm_stacks"] / 5)[kept].all()


def test_totals_of_a_base_grow_along_the_axes_of_a_space():
    text = "schema_version: 1\nname: s\nbase: gaudi3\naxes: [{fields: [tensor_cores], values: [8, 16]}]\n"
    space = parse_space(text, "s")
    assert space.table()["local_buffer_bytes"].tolist() == [13 * 2**20, 26 * 2**20]
    assert space.number(space.architecture(1).fields) == 1
    assert space.architecture(1).fields == space.completed({"tensor_cores": 16})


def test_what_is_in_use_is_on_the_die():
    chip = load_architecture("h100")  # 50 of 60 MiB, 5 of 6 stacks, 450 of 514 GB/s
    for field, times in (("global_buffer_bytes", 2), ("link_bandwidth_bytes_per_s", 2), ("hbm_stacks", 2)):
        more = to_table([chip, chip.replace("more", **{field: times * chip.value(field)})])
        assert np.diff(area_mm2(more))[0] > 0, field


LIMITED = "schema_version: 1\nname: x\nbase: a100\npower_limit_w: {value: 250, source: a data sheet}\n"


def test_a_clock_follows_from_the_power_of_the_board():
    chip = parse_architecture(LIMITED, "here")
    table = to_table([chip])
    assert float(tdp_w(table)[0]) == pytest.approx(250, rel=1e-6)
    assert chip.sources["clock_hz"] == f"{FROM_LIMIT} 250 W (a data sheet)"
    again = parse_architecture(dump_yaml(chip), "again")
    assert (again.fields, again.sources) == (chip.fields, chip.sources)
    roomy = parse_architecture(LIMITED.replace("250", "2000"), "here")
    assert roomy.value("clock_hz") == roomy.value("peak_clock_hz")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 250", "value: 1", "here: power_limit_w: at 1 W the chip has no sensible clock"),
        ("value: 250", "value: much", "here: power_limit_w: 'much' is not a quantity"),
        (
            "power_limit_w",
            "fields: {clock_hz: 1GHz}\npower_limit_w",
            "give one of power_limit_w and clock_hz",
        ),
    ],
)
def test_faulty_power_limits(old, new, message):
    with pytest.raises(InputError) as caught:
        parse_architecture(LIMITED.replace(old, new), "here")
    assert message in str(caught.value)


def test_a_chip_on_record_from_before_a_field_existed_has_its_default():
    chip = load_architecture("h100")
    known = {name: field for name, field in field_table().items() if field.default is not None}
    for name, field in known.items():
        older = Architecture(name="older", fields={k: v for k, v in chip.fields.items() if k != name})
        assert to_table([older])[name][0] == field.encode(field.default), name
