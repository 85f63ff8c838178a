"""The example files of the how-to pages are real: each loads as what its page says it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phaze.hardware.architecture import load_architecture
from phaze.hardware.network import load_network
from phaze.hardware.space_file import load_space
from phaze.workload.spec import load_workload

PAGES = Path(__file__).parents[1] / "docs" / "how-to"


@pytest.fixture
def example(tmp_path):
    def write(page):
        (block,) = re.findall(
            r"```yaml\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL
        )
        file = tmp_path / f"{page}.yaml"
        file.write_text(block, encoding="utf-8")
        return file

    return write


def test_the_workload(example):
    workload = load_workload(str(example("workload")))
    assert workload.global_batch(64) == 512
    assert workload.parameter_count == pytest.approx(1.2e9, rel=0.05)


def test_the_architecture(example):
    chip = load_architecture(example("architecture"))
    assert chip.name == "mychip"
    assert chip.value("global_buffer_bytes") == 64 * 2**20
    assert chip.value("clock_hz") == 1.2e9
    assert chip.sources["tensor_cores"] == "floor plan of 2026-11"


def test_the_space(example):
    space = load_space(example("space"))
    assert space.size == 120
    assert f"{space.size} architectures" in space.description
    assert space.base.value("node") == "N5"
    table = space.table()
    assert (table["tensor_core_rows"] == table["tensor_core_columns"]).all()


def test_the_network(example):
    network = load_network(example("network"))
    assert (network.scale_up_devices, network.scale_up_bandwidth_bytes_per_s) == (16, 450e9)
    assert network.scale_out_latency_s == 5e-6


def test_solving():
    (code,) = re.findall(r"```python\n(.*?)```", (PAGES / "solve.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    best, quick = names["best"], names["quick"]
    # Nothing else runs beside "multiply" on all cores, so "filter" goes first, on all cores, beside "load".
    assert best.makespan_s == best.lower_bound_s == pytest.approx(2.0 + 3.0 + 1.0)
    assert quick.lower_bound_s <= best.makespan_s <= quick.makespan_s


def test_every_page_has_its_test():
    assert {page.stem for page in PAGES.glob("*.md")} == {
        "workload",
        "architecture",
        "space",
        "network",
        "solve",
    }
