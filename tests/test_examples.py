"""The studies in examples/ run, say something with figures, and warn of nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
LONG = {"custom_400w.py", "portfolio.py", "phaze_question.py"}
SCRIPTS = [
    pytest.param(name, marks=[pytest.mark.soak] if name in LONG else [])
    for name in sorted(path.name for path in FOLDER.glob("*.py"))
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_study_ends_in_a_conclusion(script, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-W", "always", str(FOLDER / script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    conclusion = ended.stdout.rstrip().rpartition("\n\n")[2]
    assert len(re.findall(r"\d+\.?\d*", conclusion)) >= 5
    assert conclusion.splitlines()[0].endswith(".")
    assert list(tmp_path.iterdir()) == []


def test_the_readme_tells_of_every_study():
    assert len(SCRIPTS) == 5
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for script in (one.values[0] for one in SCRIPTS):
        assert f"[{script}]({script})" in readme
