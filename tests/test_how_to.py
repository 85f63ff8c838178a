"""The example files of the how-to pages are real: each loads as what its page says it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from phaze.cli.main import app
from phaze.explore.sampling.samplers import Sampler
from phaze.hardware.architecture import load_architecture
from phaze.hardware.network import load_network
from phaze.hardware.space_file import load_space, new_space_text
from phaze.inputs.request import make_request
from phaze.workload.fusion_rules import Fusion
from phaze.workload.load import load_workload

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
    assert names["space"].size == 283_500 / 9 / 6
    assert names["number"] == 7


def test_the_network(example):
    network = load_network(example("network"))
    assert (network.scale_up_devices, network.scale_up_bandwidth_bytes_per_s) == (16, 450e9)
    assert network.scale_out_latency_s == 5e-6
    pods = load_network(example("network", 1))
    assert [tier.topology for tier in pods.tiers] == ["torus", "fat-tree"]
    assert (pods.tiers[0].law.ramp_s, pods.tiers[1].in_network) == (2e-5, True)


def test_solving():
    (code,) = re.findall(r"```python\n(.*?)```", (PAGES / "solve.md").read_text(encoding="utf-8"), re.DOTALL)
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
    assert found.complete
    assert {axis.name for axis in names["axes"]} == {"throughput", "energy_per_sample"}
    for point in found.points:
        assert point.plan.iteration_s == pytest.approx(4 / point.columns["throughput_samples_per_s"])


@pytest.mark.parametrize("page", ["several-workloads", "cluster", "certify", "look", "report"])
def test_the_commands_ask_what_the_page_says(page):
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert lines
    root = typer.main.get_command(app)
    for _, verb, *words in map(shlex.split, lines):
        context = root.get_command(None, verb).make_context(verb, words)
        if verb == "run":
            request = make_request(context.params)
            assert (len(request.tasks) > 1) == (page == "several-workloads")


@pytest.mark.parametrize("page", ["strategies", "wham", "robust"])
def test_the_commands_ask_for_a_search_or_robustness(page):
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    verb = typer.main.get_command(app).commands["run"]
    for line in block.splitlines():
        request = make_request(verb.make_context("run", shlex.split(line)[2:]).params)
        assert request.robust == (page == "robust")
        assert (request.strategy is None) == (page == "robust")
        if page == "wham":
            assert request.strategy.name == "wham"


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


def test_sampling():
    text = (PAGES / "sweep.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app).commands["sweep"]
    known = {option for parameter in command.params for option in parameter.opts}
    lines = re.findall(r"^dse sweep .*$", text, re.MULTILINE)
    assert len(lines) == 4
    assert {word for line in lines for word in line.split() if word.startswith("--")} <= known
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [sampler.value for sampler in Sampler]


@pytest.mark.parametrize("page", ["inference", "fusion"])
def test_the_commands_on_inference_and_fusion(page):
    (block,) = re.findall(r"```sh\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines():
        _, verb, *words = shlex.split(line)
        asked = typer.main.get_command(app).commands[verb].make_context(verb, words).params
        if verb == "run":
            workload = make_request(asked).task.workload
            assert workload.context == (2048 if page == "inference" else 0)
            assert len(workload.fusion) == (len(Fusion) if page == "inference" else 2)
        assert asked["mode"] == ("decode" if page == "inference" else "training")


def test_what_fusion_saves(tmp_path, monkeypatch):
    assert run_python("fusion", tmp_path, monkeypatch)["applied"].times > 0


def test_the_layer_graph(tmp_path, monkeypatch):
    assert run_python("workload", tmp_path, monkeypatch)["graph"].is_chain


@pytest.mark.parametrize("page", ["measured", "runs"])
def test_the_commands_on_measurements_and_runs(page):
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    lines = [
        line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
    ]
    commands = typer.main.get_command(app).commands
    asked = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("dse ")]
    assert asked
    for verb, *words in asked:
        assert commands[verb].make_context(verb, list(words)).params


def test_the_commands_that_plan():
    text = (PAGES / "plan.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    asked = [shlex.split(line.partition(" > ")[0])[1:] for line in lines]
    assert {verb for verb, *_ in asked} == {"plan", "evaluate", "whatif"}
    for path, first, *words in asked:
        command, export = typer.main.get_command(app).commands[path], first == "export"
        chosen = command.commands["export"] if export else command
        assert chosen.make_context(path, words if export else [first, *words]).params


def test_every_page_has_its_test():
    assert {page.stem for page in PAGES.glob("*.md")} == {
        "workload",
        "image-network",
        "look",
        "inference",
        "fusion",
        "architecture",
        "space",
        "network",
        "plan",
        "python",
        "serving",
        "solve",
        "frontier",
        "several-workloads",
        "cluster",
        "certify",
        "explain",
        "robust",
        "measured",
        "report",
        "runs",
        "strategies",
        "sweep",
        "wham",
    }


def test_the_image_network(example):
    workload = load_workload(str(example("image-network")))
    assert workload.global_batch(64) == 512
    assert workload.chain(1, 1).names[-2:] == ("linear1", "loss")
