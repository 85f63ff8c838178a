"""The example files of the how-to pages are real: each loads as what its page says it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phaze.explore.sampling.sampled_study import Sampler
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space, new_space_text
from phaze.workload.workload_loader import load_workload

PAGES = Path(__file__).parents[1] / "docs" / "how-to"


@pytest.fixture
def example(tmp_path):
    def write(page, number=0):
        text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        file = tmp_path / f"{page}.yaml"
        file.write_text(blocks[number], encoding="utf-8")
        return file

    return write


def test_the_workload(example):
    workload = load_workload(str(example("workload")))
    assert workload.global_batch(64) == 512
    assert workload.parameter_count == pytest.approx(1.2e9, rel=0.05)
    experts = load_workload(str(example("workload", 1))).chain(1, 1)
    assert [layer.kind for layer in experts.layers][1:4] == ["block.attention", "block.mlp", "block.experts"]


def test_the_architecture(example):
    chip = load_architecture(example("architecture"))
    assert chip.name == "mychip"
    assert chip.value("global_buffer_bytes") == 64 * 2**20
    assert chip.value("clock_hz") == 1.2e9
    assert chip.sources["tensor_cores"] == "floor plan of 2026-11"


def test_the_space(example):
    space = load_space(example("space"))
    assert space.size == 270
    assert f"{space.size} architectures" in space.description
    assert space.base.value("node") == "N5"
    table = space.table()
    assert (table["tensor_core_rows"] == table["tensor_core_columns"]).all()
    assert example("space").read_text(encoding="utf-8") == new_space_text("myspace")


def test_a_space_from_python():
    page = (PAGES / "space.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["space"].size == load_space("default").size / 9 / 6
    assert names["number"] == 7


def test_the_network(example):
    network = load_network(example("network"))
    assert (network.scale_up_devices, network.scale_up_bandwidth_bytes_per_s) == (16, 450e9)
    assert network.scale_out_latency_s == 5e-6
    pods = load_network(example("network", 1))
    assert [tier.topology for tier in pods.tiers] == ["torus", "fat-tree"]
    assert (pods.tiers[0].law.ramp_s, pods.tiers[1].in_network) == (2e-5, True)


def test_solving():
    code, _ = re.findall(r"```python\n(.*?)```", (PAGES / "solve.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    best, quick = names["best"], names["quick"]
    # Nothing else runs beside "multiply" on all cores, so "filter" goes first, on all cores, beside "load".
    assert best.makespan_s == best.lower_bound_s == pytest.approx(2.0 + 3.0 + 1.0)
    assert quick.lower_bound_s <= best.makespan_s <= quick.makespan_s


def test_the_frontier(tmp_path, monkeypatch):
    *_, code = re.findall(
        r"```python\n(.*?)```", (PAGES / "frontier.md").read_text(encoding="utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.yaml").write_text(
        "schema_version: 1\nname: two\naxes: [{fields: [tensor_cores], values: [2, 4]}]\n", encoding="utf-8"
    )
    names = {}
    exec(code, names)
    found = names["found"]
    assert found.finished
    assert found.members
    assert set(found.members) <= set(found.evaluated)
    reached = [found.evaluated[member] for member in found.members]
    assert all(one.lead == one.value > 0 for one in reached)
    ordered = sorted(reached, key=lambda one: one.others)
    assert [one.lead for one in ordered] == sorted(one.lead for one in reached)  # more energy buys throughput


def run_python(page, folder, monkeypatch):
    """The last Python example of a page, run where the space of its page is saved as `myspace.yaml`."""
    (space,) = re.findall(r"```yaml\n(.*?)```", (PAGES / "space.md").read_text(encoding="utf-8"), re.DOTALL)
    (folder / "myspace.yaml").write_text(space, encoding="utf-8")
    monkeypatch.chdir(folder)
    *_, code = re.findall(
        r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names = {}
    exec(code, names)
    return names


def test_explaining(tmp_path, monkeypatch):
    names = run_python("explain", tmp_path, monkeypatch)
    assert names["why"].id == names["document"].best.id
    assert 0 < names["most"].elasticity < 1.1


def test_the_robust_answer(tmp_path, monkeypatch):
    answer = run_python("robust", tmp_path, monkeypatch)["answer"]
    assert answer.complete
    assert answer.scenarios == 8
    assert max(design.best_probability for design in answer.designs) > 0


def test_what_fusion_saves(tmp_path, monkeypatch):
    assert run_python("fusion", tmp_path, monkeypatch)["applied"].times > 0


def test_the_layer_graph(tmp_path, monkeypatch):
    assert run_python("workload", tmp_path, monkeypatch)["graph"].is_chain


def test_the_image_network(example):
    workload = load_workload(str(example("image-network")))
    assert workload.global_batch(64) == 512
    assert workload.chain(1, 1).names[-2:] == ("linear1", "loss")


def test_every_sampler_is_listed():
    text = (PAGES / "sweep.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [sampler.value for sampler in Sampler]
