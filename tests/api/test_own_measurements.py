"""Measurements, collectives, graphs and files for simulators are the same from Python as by their commands."""

from __future__ import annotations

import doctest
import json

import pytest

import phaze
import phaze.api.measured_verbs
import phaze.api.network_verbs
import phaze.api.workload_verbs
from phaze.errors import InputError

MORE = {
    "gemm": [f"bf16,1,{m},4096,4096,{m / 7}" for m in range(512, 8704, 512)],
    "collective": [f"all_reduce,8,8,{10**k},{20 + 10 ** (k - 5)}" for k in range(4, 10)],
    "serving": [],
}


@pytest.fixture
def table(tmp_path):
    """A table of examples as `dse measure template` has it, and more rows."""

    def write(kind):
        path = tmp_path / f"{kind}.csv"
        path.write_text("\n".join([phaze.measure_template(kind).rstrip(), *MORE[kind], ""]))
        return path

    return write


@pytest.mark.parametrize(
    "module", [phaze.api.measured_verbs, phaze.api.network_verbs, phaze.api.workload_verbs]
)
def test_the_examples_of_docstrings_run(module):
    told = doctest.testmod(module)
    assert told.attempted > 4
    assert not told.failed


def test_templates_are_those_of_the_command(dse):
    for kind in ("gemm", "collective", "serving"):
        assert phaze.measure_template(kind) == dse("measure", "template", kind)[1]
    with pytest.raises(InputError, match="'gem' is not known"):
        phaze.measure_template("gem")


def test_constants_are_fitted_as_by_the_command_and_steer_other_functions(dse, table, tmp_path):
    products = table("gemm")
    found = phaze.calibrate(products, "a100-80gb")
    told = json.loads(dse("calibrate", products, "-a", "a100-80gb", "--json")[1])
    assert found.laws.rows == told["errors"]
    assert found.constants.model_dump(mode="json") == {
        key: told[key] for key in type(found.constants).model_fields
    }
    file = found.save(tmp_path / "own.yaml")
    assert file.read_text() == found.constants.text()
    assert found.laws[0]["law"] in repr(found)
    asked = {"arch": "a100-80gb", "workload": "gpt3-small", "devices": 1, "global_batch": 8}
    evaluated = phaze.evaluate(**asked, calibration=file, data_parallel=1)
    assert (
        evaluated.result.iteration_time_s != phaze.evaluate(**asked, data_parallel=1).result.iteration_time_s
    )


def test_served_models_are_compared_as_by_the_command(dse, table):
    served = table("serving")
    found = phaze.measure_serving(served, "h100")
    told = json.loads(dse("measure", "serving", served, "-a", "h100", "--json")[1])
    assert found.rows.rows == told["rows"]
    assert (found.dispatch_s, found.before_pct, found.left_out_pct) == (
        told["dispatch_s"],
        told["before_pct"],
        told["left_out_pct"],
    )
    assert "mean error" in repr(found)


def test_a_network_is_fitted_as_by_the_command_and_is_taken_elsewhere(dse, table, tmp_path):
    collectives = table("collective")
    found = phaze.networks_fit(collectives)
    told = json.loads(dse("networks", "fit", collectives, "--json")[1])
    assert (found.fit.rows, found.fit.after_pct) == (told["rows_fitted"], told["after_pct"])
    file = found.save(tmp_path / "mine.yaml")
    at_hand, read = (phaze.networks_cost(network, arch="h100") for network in (found.network, str(file)))
    assert at_hand.columns["time_s"] == pytest.approx(read.columns["time_s"], rel=1e-6)  # files round
    told = json.loads(dse("networks", "cost", file, "--arch", "h100", "--json")[1])
    assert told["rows"] == read.rows


def test_costs_of_collectives_refuse_what_is_wrong():
    for wrong, words in (
        ({"devices": 1}, "devices is 1"),
        ({"constants": "hoper"}, r"constants 'hoper' is not known \(did you mean hopper"),
        ({"network": "default"}, "give one, arch a100"),
        ({"collective": "reduce"}, "collective 'reduce' is not known"),
    ):
        with pytest.raises(InputError, match=words):
            phaze.networks_cost(**({"network": "hgx-h100"} | wrong))


def test_a_graph_is_that_of_the_command(dse, tmp_path):
    found = phaze.graph("resnet18", layer=2)
    for form in ("json", "dot", "mermaid", "svg"):
        assert found.text(form) == dse("graph", "resnet18", "--layer", 2, "--format", form)[1]
    told = json.loads(found.text("json"))
    assert [node["id"] for node in found.nodes] == [node["id"] for node in told["nodes"]]
    assert len(found.edges) == len(told["edges"])
    assert found.save(tmp_path / "layer.mmd").read_text() == found.text("mermaid")
    assert found.nodes[0]["name"] in found.text()
    with pytest.raises(InputError, match=r"must end in one of \.svg"):
        found.save(tmp_path / "layer.png")
    with pytest.raises(InputError, match="tensor_parallel 5 does not divide"):
        phaze.graph("gpt3-small", tensor_parallel=5)


def test_files_for_a_simulator_are_those_of_the_command(dse, tmp_path):
    asked = {"target": "accelforge", "workload": "gpt3-small", "microbatch": 2, "tensor_parallel": 4}
    found = phaze.archs_export("tpuv4", **asked, out=tmp_path / "python")
    options = ("--for", "accelforge", "-w", "gpt3-small", "--microbatch", 2, "--tensor-parallel", 4)
    assert dse("archs", "export", "tpuv4", *options, "--out", tmp_path / "command")[0] == 0
    for folder in ("python", "command"):
        assert {file.name: file.read_text() for file in (tmp_path / folder).iterdir()} == found
    with pytest.raises(InputError, match="target 'scalesim' is not known"):
        phaze.archs_export("tpuv4", target="scalesim")
