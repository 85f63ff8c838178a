"""Files, strategies, front ends and figures of another distribution, as docs/how-to/add.md shows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from small_cases import FEW_ARRAYS

import phaze
from phaze.errors import InputError
from phaze.explore.strategies.strategy_registry import STRATEGIES, strategy
from phaze.plugins import Registry, at_hand
from phaze.report.figures.figure_registry import FIGURES
from phaze.runs.atomic_files import file_hashes
from phaze.workload.workload_loader import FRONT_ENDS, load_workload

PAGE = (Path(__file__).parents[1] / "docs/how-to/add.md").read_text(encoding="utf-8")
MODULE, TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES, PROJECT = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
FILE_GROUPS = tomllib.loads(FILES)["project"]["entry-points"]
GROUPS = tomllib.loads(PROJECT)["project"]["entry-points"]
TASK = ("--space", "few.yaml", "--devices", "2", "--power", "400W", "--quiet")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Lays a distribution where Python finds it, as pip does: its metadata and one module."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def lay(name, groups, module=""):
        told = site / f"{name.replace('-', '_')}-1.5.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        lines = [
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
            for group, entries in groups.items()
        ]
        (told / "entry_points.txt").write_text("\n".join(lines))
        if module:
            monkeypatch.delitem(sys.modules, "theirs", raising=False)
            (site / "theirs.py").write_text(module)
        return site

    return lay


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A folder with a workload of theirs and one of ours."""
    (tmp_path / "few.yaml").write_text(FEW_ARRAYS)
    (tmp_path / "net.mlp").write_text("4096 16384 4096")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_strategy_a_front_end_and_a_figure_from_the_page(install, asked, dse):
    install("their-dist", GROUPS, MODULE)
    words = ("run", "-w", "net.mlp", "--strategy", "in-order", "--evaluations", "3", *TASK)
    code, out, err = dse(*words, "--out", "found", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["request"]["workloads"] == ["net"]
    assert (found["strategy"]["strategy"], found["strategy"]["evaluations"]) == ("in-order", 3)
    assert found["strategy"]["distance"]["share"] >= 0
    assert found["manifest"]["versions"]["their-dist"] == "1.5"
    assert "workload" in found["manifest"]["inputs_sha256"]
    assert dse("report", "found", "-q")[0] == 0
    page = (asked / "found/report.html").read_text(encoding="utf-8")
    assert f"It is called {found['best']['id']}." in page
    assert 'id="winner"' in page
    assert dse("certify", "found", "-q")[0] == 0
    code, out, _ = dse("replay", "found", "-q")
    assert (code, "their-dist" in out) == (0, False)  # the same version


def test_the_members_of_the_page_keep_the_contracts(install):
    site = install("their-dist", GROUPS, MODULE)
    (site / "test_theirs.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_theirs.py"]
    told = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
    assert "failed" not in told.stdout


@pytest.fixture
def install_files(install, dse, monkeypatch):
    """Lays the distribution of files that the page describes; each begins as `new` makes it."""

    def lay(models=("tinytalk",), chips=("fastchip",), name="their-dist"):
        site = install(name, FILE_GROUPS)
        for folder, noun, files in (("models", "workloads", models), ("chips", "archs", chips)):
            place = site / "their_files" / folder
            place.mkdir(parents=True)
            for file in files:
                assert dse(noun, "new", str(place / f"{file}.yaml"))[0] == 0
        return site / "their_files"

    yield lay
    for module in [m for m in sys.modules if m.split(".")[0] == "their_files"]:
        monkeypatch.delitem(sys.modules, module)


def test_a_workload_and_a_chip_of_another_package_are_known_by_name(install_files, asked, dse):
    place = install_files()
    words = ("evaluate", "--arch", "Fast-Chip", "-w", "tinytalk", "--devices", "2", "--out", "found")
    code, out, err = dse(*words, "--json", "-q")
    assert (code, err) == (0, "")
    told = json.loads(out)["manifest"]
    assert told["versions"]["their-dist"] == "1.5"
    own = {"workload": "models/tinytalk.yaml", "arch": "chips/fastchip.yaml"}
    assert {name: told["inputs_sha256"][name] for name in own} == file_hashes(
        {name: place / path for name, path in own.items()}
    )
    for noun, name in (("workloads", "tinytalk"), ("archs", "fastchip")):
        assert name in {row["name"] for row in json.loads(dse(noun, "--json")[1])}
        assert dse(noun, "show", name)[0] == 0
    assert "their-dist" not in dse("replay", "found", "-q")[1]
    mine, theirs = (phaze.evaluate(chip, "tinytalk", devices=2) for chip in ("h100", "fastchip"))
    assert mine.result == theirs.result  # a new chip begins as the h100
    code, _, err = dse("evaluate", "--arch", "fastchop", "-w", "tinytalk")
    assert (code, "near: fastchip" in " ".join(err.split())) == (2, True)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"models": ("GPT-3",)}, "brings 'GPT-3', a name that is taken"),
        ({"models": ("tiny-talk", "tinytalk")}, "brings 'tinytalk', a name that is taken"),
        ({"models": ()}, "is not a package with YAML files"),
    ],
)
def test_files_that_cannot_be_taken_are_one_sentence(files, why, install_files, asked, dse):
    install_files(**files)
    code, out, err = dse("evaluate", "--arch", "h100", "-w", "tinytalk")
    assert (code, out) == (2, "")
    told = "workloads 'theirs' of distribution their-dist (entry point 'their_files.models' in group phaze.workloads)"
    assert f"{told} {why}" in " ".join(err.split())
    assert dse("evaluate", "--arch", "h100", "-w", "gpt3-small", "--devices", "2")[0] == 0  # ours, as before


@pytest.mark.parametrize("missing", ["their_files.models", "their_files"])
def test_a_package_of_files_that_is_not_there_is_one_sentence(missing, install, dse):
    install("their-dist", {"phaze.workloads": {"theirs": missing}})
    code, _, err = dse("workloads")
    assert code == 2
    assert re.search(
        r"cannot be found: ModuleNotFoundError|is not a package with YAML files", " ".join(err.split())
    )


BROKEN = {
    "its module is missing": ("nowhere:thing", "", "cannot be loaded: ModuleNotFoundError"),
    "its module fails": ("theirs:thing", "1 / 0", "cannot be loaded: ZeroDivisionError"),
    "its module leaves": ("theirs:thing", "import sys; sys.exit(7)", "cannot be loaded: SystemExit: 7"),
    "it is not in its module": ("theirs:thing", "x = 1", "cannot be loaded: AttributeError"),
    "it takes arguments": (
        "theirs:Thing",
        "class Thing:\n    def __init__(self, x): ...",
        "cannot be loaded: TypeError",
    ),
    "it is no strategy": ("theirs:thing", "thing = 3", "has no name and no seeded and no run"),
    "it calls itself otherwise": (
        "theirs:Thing",
        "class Thing:\n    name, seeded = 'other', False\n    def run(self): ...",
        "calls itself 'other'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_strategy_is_one_sentence(case, install, asked, dse):
    value, module, why = BROKEN[case]
    install("their-dist", {"phaze.strategies": {"thing": value}}, module)
    code, out, err = dse("run", "-w", "gpt3-small", "--strategy", "thing", *TASK)
    assert (code, out) == (2, "")
    assert "strategy 'thing' of distribution their-dist (entry point" in err
    assert "in group phaze.strategies)" in " ".join(err.split())
    assert why in " ".join(err.split())
    assert "Traceback" not in err


CHEATS = {
    "fails": ("raise KeyError('gone')", "failed: KeyError: 'gone'"),
    "says nothing": ("return None", "ended in a NoneType, not in a StrategyReport"),
    "spends too much": (
        "oracle.evaluate([0, 1, 2, 3]); return report_search(self, oracle, seed, Stop.CONVERGED)",
        "evaluated 4 architectures of 2 that it may",
    ),
    "boasts": (
        "oracle.evaluate([0]); told = report_search(self, oracle, seed, Stop.CONVERGED); "
        "return told.model_copy(update={'best_value': told.best_value * 2})",
        "reports other evaluations than it made",
    ),
}


@pytest.mark.parametrize("case", CHEATS)
def test_a_strategy_that_breaks_the_contract_is_one_sentence(case, install, asked, dse):
    body, why = CHEATS[case]
    head = "\n".join(line for line in MODULE.splitlines() if line.startswith("from phaze.explore"))
    run = f"def run(self, oracle, budget, seed, progress):\n        {body}\n"
    module = f"{head}\nclass Thing:\n    name, seeded = 'thing', False\n    {run}"
    install("their-dist", {"phaze.strategies": {"thing": "theirs:Thing"}}, module)
    code, _, err = dse(
        "run", "-w", "bert-base", "--strategy", "thing", "--evaluations", "2", *TASK, "--out", "run"
    )
    assert code == 2
    assert f"of distribution their-dist (entry point 'theirs:Thing' in group phaze.strategies) {why}" in (
        " ".join(err.split())
    )


def test_a_broken_front_end_is_one_sentence(install, asked, dse):
    module = "from phaze.workload.workload_loader import FrontEnd\nthing = FrontEnd(lambda source, options: {}['x'])"
    install("their-dist", {"phaze.front_ends": {".mlp": "theirs:thing"}}, module)
    code, out, err = dse("run", "-w", "net.mlp", *TASK)
    assert (code, out) == (2, "")
    assert "front end '.mlp' of distribution their-dist" in err
    assert "failed: KeyError: 'x'" in " ".join(err.split())


@pytest.mark.parametrize("made", ["3", "load(source, options) and options"])
def test_a_front_end_that_makes_no_workload_of_ours_is_refused(made, install, asked, dse):
    module = f"{MODULE}\nWRONG = FrontEnd(lambda source, options: {made})"
    install("their-dist", {"phaze.front_ends": {".mlp": "theirs:WRONG"}}, module)
    code, _, err = dse("run", "-w", "net.mlp", *TASK)
    assert code == 2
    assert "not a GraphWorkload" in " ".join(err.split())


def test_an_unknown_workload_is_told_what_can_be_read(install):
    install("their-dist", {"phaze.front_ends": {".mlp": "nowhere:thing"}})
    with pytest.raises(
        InputError, match=r"nearest: gpt3.* \(or give .*: \.yaml, \.yml, \.onnx, \.pt2, hf:, \.mlp\)"
    ):
        load_workload("gtp3")


def test_a_front_end_may_be_called_after_a_prefix(install, asked, dse):
    module = f"{MODULE}\nPLAIN = FrontEnd(lambda s, o: load(s[6:], o), lambda source: Path(source[6:]))"
    install("their-dist", {"phaze.front_ends": {"plain:": "theirs:PLAIN"}}, module)
    code, out, err = dse("run", "-w", "plain:net.mlp", *TASK, "--out", "found", "--json")
    assert (code, err) == (0, "")
    assert "workload" in json.loads(out)["manifest"]["inputs_sha256"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("1 / 0", "failed: ZeroDivisionError"),
        ("return ['text']", "gave what is no Section"),
        ("yield Section('Winner!', 'x', paragraph('x'))", "has an anchor 'Winner!'"),
        ("yield Section('frontier', 'x', paragraph('x'))", "has the anchor 'frontier' of another section"),
        ("yield Section('winner', 'x', '<p>')", "gave what is no Section with a body of Html"),
    ],
)
def test_a_broken_figure_is_one_sentence(body, why, install, asked, dse, document, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/result.json").write_text(document.model_dump_json(by_alias=True))
    module = f"from phaze.report.html_markup import Section, paragraph\ndef thing(contents):\n    {body}"
    install("their-dist", {"phaze.figures": {"thing": "theirs:thing"}}, module)
    code, _, err = dse("report", "run", "-q")
    assert code == 2
    assert "figure 'thing' of distribution their-dist" in " ".join(err.split())
    assert why in " ".join(err.split())


@pytest.mark.parametrize(
    ("registry", "name"), [(STRATEGIES, "random"), (FRONT_ENDS, ".onnx"), (FIGURES, "frontier")]
)
def test_a_name_that_is_built_in_is_not_replaced(registry, name, install):
    ours = registry.find(name)
    install("their-dist", {registry.group: {name: "theirs:thing"}})
    assert registry.find(name) == ours
    with pytest.raises(InputError, match=r"of distribution their-dist .* has a name that is built in"):
        registry.all()


def test_two_distributions_of_one_name_are_told(install):
    for name in ("one-dist", "two-dist"):
        install(name, {"phaze.strategies": {"thing": "theirs:thing"}})
    with pytest.raises(
        InputError, match=r"of distribution two-dist .* the name of one of distribution one-dist"
    ):
        strategy("thing")


def test_an_unknown_strategy_is_told_theirs_without_loading_them(install):
    install("their-dist", {"phaze.strategies": {"thing": "nowhere:thing"}})
    with pytest.raises(InputError, match=r"choose from certified, phaze, .*, cmaes, thing"):
        strategy("best")


def test_entry_points_are_read_for_names_of_others_only(monkeypatch):
    def read(**_):
        raise AssertionError

    registry = Registry("phaze.none", "thing", at_hand({"ours": 3}), lambda *_: "")
    monkeypatch.setattr("importlib.metadata.entry_points", read)
    assert registry.find("ours") == 3
    assert registry.version("ours") == {}
    with pytest.raises(AssertionError):
        registry.find("theirs")


def test_a_failure_of_ours_stays_one():
    with pytest.raises(ZeroDivisionError), STRATEGIES.blaming("random"):
        1 / 0  # noqa: B018
