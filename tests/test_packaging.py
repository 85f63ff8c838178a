from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = ("workloads", "arch_templates")


def setuptools_is_new_enough() -> bool:
    try:
        return int(version("setuptools").partition(".")[0]) >= 77
    except PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory) -> set[str]:
    """Files of a wheel built from a copy of the checkout, without network."""
    if not setuptools_is_new_enough():
        pytest.skip("needs setuptools >= 77 to build without network")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    # A copy, so that build/ and egg-info neither litter the checkout nor leak old files into the wheel.
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(out)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = out.iterdir()
    assert wheel.name.startswith("phaze_dse-")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_the_wheel_installs_one_name(wheel_names):
    assert {name.split("/")[0].partition("-")[0] for name in wheel_names} == {"phaze", "phaze_dse"}


def test_the_wheel_holds_every_module_and_no_test(wheel_names):
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "phaze").rglob("*.py")}
    for room in ("solvers", *DATA):
        modules |= {f"phaze/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / room).rglob("*.py")}
    assert {name for name in wheel_names if name.endswith(".py")} == modules
    ours = {name for name in wheel_names if not name.startswith("phaze/testing/")}  # contracts, for everybody
    assert not [name for name in ours if any(p.startswith("test") for p in name.lower().split("/"))]


def test_the_wheel_holds_all_data(wheel_names):
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "phaze").rglob("*.yaml")}
    for room in DATA:
        expected |= {f"phaze/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / room).rglob("*.yaml")}
    assert {name for name in wheel_names if name.endswith(".yaml")} == expected
    assert {
        "phaze/workloads/gpt3.yaml",
        "phaze/arch_templates/spaces/default.yaml",
        "phaze/py.typed",
    } <= wheel_names


def line_with(text: str, words: str) -> str:
    (line,) = [line for line in text.splitlines() if words in line and line.startswith("python3")]
    return line


def test_ci_runs_the_readmes_test_line_last():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert script.rstrip().splitlines()[-1] == line_with(readme, "-m pytest")


def test_the_readme_runs_the_main_job_in_one_line():
    line = line_with((ROOT / "README.md").read_text(encoding="utf-8"), "dse run")
    assert line.endswith(".venv/bin/dse run --workload gpt3 --power 400W")
    assert "pip install ." in line


def test_one_version_everywhere():
    from phaze import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
