"""The reference of the Python functions is what they are, and the guide's code runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import phaze
from phaze.cli.manual.python_reference import reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m phaze.cli.manual.python_reference > docs/reference/python.md"


@pytest.mark.parametrize("name", [name for name in phaze.__all__ if name != "__version__"])
def test_every_public_name_and_argument_is_on_it(name):
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    public = getattr(phaze, name)
    title = name if inspect.isclass(public) else f"phaze.{name}"
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert section
    linked = re.findall(r"\[(arguments of [a-z ]+)\]\(#", section)
    told = section + "".join(
        page.partition(f"\n### {heading.capitalize()}\n")[2].partition("\n##")[0] for heading in linked
    )
    if not inspect.isclass(public):
        for argument in inspect.signature(public).parameters:
            assert f"| `{argument}` |" in told


def test_an_argument_that_a_function_does_not_take_is_not_linked():
    """What stands among shared arguments is an argument of every function that says so."""
    page = reference()
    for name in phaze.__all__:
        section = page.partition(f"\n## phaze.{name}\n")[2].partition("\n## ")[0]
        for heading in re.findall(r"\[(arguments of [a-z ]+)\]\(#", section):
            shared = page.partition(f"\n### {heading.capitalize()}\n")[2].partition("\n##")[0]
            rows = re.findall(r"^\| `(\w+)` \|", shared, re.MULTILINE)
            assert rows
            assert set(rows) <= inspect.signature(getattr(phaze, name)).parameters.keys()


@pytest.mark.soak
def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "how-to" / "python.md").read_text(encoding="utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, names)
    assert names["cheapest"].tdp_w <= names["found"].best.tdp_w <= 200
    assert names["fastest"] in ("a100", "v100")
    assert names["by_cores"].max() == names["frame"]["throughput_samples_per_s"].max()
    assert 1 < names["gain"] <= 1.6 / 1.41
    assert names["needed_bytes"] > 16 * 2**30
    assert "model FLOPs utilisation" in capsys.readouterr().out
    assert names["own"].result.iteration_time_s != names["a100"].result.iteration_time_s
    assert names["server"].certificate.optimal
    written = {"front.svg", "report.html", "layer.svg", "products.csv", "a100.calibration.yaml"}
    assert {path.name for path in tmp_path.iterdir()} == written
