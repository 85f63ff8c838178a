"""The same question has the same answer to the last byte, times aside, however Python hashes its strings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asked_again import STRATEGIES, digest

SCRIPT = Path(__file__).with_name("asked_again.py")


def asked(folder, seed):
    folder.mkdir()
    paths = os.pathsep.join([str(SCRIPT.parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, SCRIPT, folder], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.soak
def test_every_strategy_and_any_number_of_workers_answer_alike(tmp_path):
    one, other = asked(tmp_path / "one", "1"), asked(tmp_path / "other", "2")
    assert {*STRATEGIES, "axes", "three workers", "sweep"} <= set(one)
    assert {"certified", "phaze", "wham", "random", "tpe", "nsga2"} <= {*STRATEGIES}
    assert all(code == 0 for code, _ in one.values())
    assert one == other
    assert one["three workers"] == one["certified"]


def test_the_digest_sees_a_change(tmp_path):
    (tmp_path / "designs.csv").write_text("id\n1\n")
    before = digest(tmp_path)
    (tmp_path / "designs.csv").write_text("id\n2\n")
    assert digest(tmp_path) != before
