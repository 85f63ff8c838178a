"""`--arch` takes a name, a file, a run directory, or any design evaluated in a run."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.errors import InputError
from phaze.hardware.architecture import dump_yaml, load_architecture
from phaze.inputs.architecture_names import find_architecture
from phaze.runs.run_directory import write_tables


@pytest.fixture
def run(tmp_path):
    """A run directory with a winner and two designs."""
    winner = load_architecture("tpuv4")
    (tmp_path / "architecture.yaml").write_text(dump_yaml(winner))
    designs = {
        "id": np.array(["a", "b"]),
        "throughput_samples_per_s": np.array([1.0, 2.0]),
        "tensor_cores": np.array([2, 4]),
        "hbm_generation": np.array(["HBM2e", "HBM3"]),
    }
    write_tables(tmp_path, designs, [])
    return tmp_path


def test_a_run_directory_gives_its_winner(run):
    assert find_architecture(str(run)).fields == load_architecture("tpuv4").fields


def test_a_folder_of_other_things_named_like_a_chip_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tpuv4", "others"):
        (tmp_path / name).mkdir()
    assert find_architecture("tpuv4").name == "tpuv4"
    for named in ("others", "./tpuv4", str(tmp_path / "tpuv4")):
        with pytest.raises(InputError, match="no run at"):
            find_architecture(named)


def test_any_design_of_a_run_by_its_id(run):
    found = find_architecture(f"{run}:b")
    assert (found.name, found.value("tensor_cores"), found.value("hbm_generation")) == ("b", 4, "HBM3")
    assert found.value("tensor_core_rows") == load_architecture("tpuv4").value("tensor_core_rows")


def test_an_unknown_design_names_the_nearest(run):
    with pytest.raises(InputError, match="no evaluated design 'bb'; nearest: b"):
        find_architecture(f"{run}:bb")
