"""Input files of other simulators say what the chip and the workload are."""

from __future__ import annotations

from configparser import ConfigParser

import pytest
import yaml
from small_cases import small_decoder

from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.report.exports.simulator_inputs import Simulator, matrix_products, simulator_files


class Tagged(yaml.SafeLoader):
    """Reads `!Memory`, `!Compute` and `!Container` as mappings with their tag."""


def _tagged(loader, tag, node):
    return {"tag": tag, **loader.construct_mapping(node, deep=True)}


Tagged.add_multi_constructor("!", _tagged)


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    return small_decoder(tmp_path_factory.mktemp("w")).chain(2, 1)


@pytest.fixture(scope="module")
def chip():
    return load_architecture("tpuv4")


def test_products_have_every_multiply_accumulate_of_the_chain(chain):
    total = sum(
        work.macs
        for layer in (chain.layers[i] for i in chain.index)
        for part in (layer.forward, layer.backward)
        for work in part.works
    )
    found = matrix_products(chain)
    assert sum(p.m * p.k * p.n * p.times for p in found) == total
    assert len({(p.m, p.k, p.n) for p in found}) == len(found) == len({p.name for p in found})


def test_scale_sim_reads_one_core_and_rows_of_m_n_k(chip, chain):
    files = simulator_files(chip, matrix_products(chain), Simulator.SCALE_SIM)
    parser = ConfigParser()
    parser.read_string(files["architecture.cfg"])
    presets = parser["architecture_presets"]
    assert (presets.getint("ArrayHeight"), presets.getint("ArrayWidth"), presets["Dataflow"]) == (
        128,
        128,
        "ws",
    )
    share = chip.value("global_buffer_bytes") / chip.value("tensor_cores") / 1024
    assert sum(presets.getint(name) for name in ("ifmapsramszkb", "filtersramszkb", "ofmapsramszkb")) <= share
    needed = {"general": {"run_name"}, "run_presets": {"interfacebandwidth", "useramulatortrace"}}
    assert all(names <= set(parser[section]) for section, names in needed.items())
    assert {"layout", "sparsity"} <= set(parser.sections())
    _, *rows = files["topology.csv"].splitlines()
    for row, product in zip(rows, matrix_products(chain), strict=True):
        name, *sizes, rest = row.split(",")
        assert [int(size) for size in sizes] == [product.m, product.n, product.k]
        assert name.endswith(f"_x{product.times}")
        assert "DP" not in name  # the tool takes it for a depth-wise convolution
        assert rest == ""


def test_accelforge_gets_the_tree_and_its_areas(chip, chain):
    files = simulator_files(chip, matrix_products(chain), Simulator.ACCELFORGE)
    nodes = {n["name"]: n for n in yaml.load(files["architecture.yaml"], Tagged)["arch"]["nodes"]}
    assert [n["tag"] for n in nodes.values()] == [*("Memory",) * 3, "Container", "Memory", "Compute"]
    fanout = {s["name"]: s["fanout"] for n in nodes.values() for s in n.get("spatial", ())}
    assert fanout == {"TensorCore": 8, "columns": 128, "rows": 128}
    parts = area_parts_mm2(to_table([chip]))
    assert nodes["MAC"]["area"] * 8 * 128 * 128 * 1e6 == pytest.approx(parts["mac"][0], rel=1e-4)
    assert nodes["GlobalBuffer"]["area"] * 1e6 == pytest.approx(parts["global"][0], rel=1e-4)
    assert nodes["GlobalBuffer"]["size"] == chip.value("global_buffer_bytes") * 8
    work = yaml.safe_load(files["workload.yaml"])["workload"]
    assert len(work["iteration_space_shape"]) == 3 * len(work["einsums"]) == 3 * len(matrix_products(chain))
    for einsum, product in zip(work["einsums"], matrix_products(chain), strict=True):
        assert einsum["n_instances"] == product.times
        assert [t.get("output", False) for t in einsum["tensor_accesses"]] == [False, False, True]


@pytest.mark.parametrize("simulator", Simulator)
def test_every_file_says_what_it_leaves_out_and_a_chip_alone_has_no_workload(chip, simulator):
    files = simulator_files(chip, (), simulator)
    assert len(files) == 1
    assert all("# Not expressed" in text for text in files.values())


def test_a_chip_without_tensor_cores_is_refused(chip):
    vector = chip.replace("vector", vector_products=True)
    with pytest.raises(InputError, match="no tensor cores"):
        simulator_files(vector, (), Simulator.SCALE_SIM)


def test_archs_export_writes_a_folder(dse, tmp_path):
    code, _, err = dse("archs", "export", "h100", "--for", "accelforge", "--out", tmp_path / "x")
    assert (code, [p.name for p in (tmp_path / "x").iterdir()]) == (0, ["architecture.yaml"]), err
    code, _, err = dse("archs", "export", "h100", "--for", "accelforge", "--out", tmp_path / "x")
    assert (code, "is not empty" in err) == (2, True)
    code, _, err = dse("archs", "export", "h100", "--for", "gem5", "--out", tmp_path / "y")
    assert (code, "scale-sim, accelforge" in err) == (2, True)
