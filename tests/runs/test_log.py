from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest

from phaze.explore.request.search_progress import SilentProgress
from phaze.runs.run_log import LOG, LoggedProgress, logged_progress

KILLED = """
import os, signal, sys
from pathlib import Path
from phaze.explore.request.search_progress import SilentProgress
from phaze.runs.run_log import logged_progress
with logged_progress(Path(sys.argv[1]), SilentProgress(), ["run"]) as log:
    log.update("search", 1, 9, "so far")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def told(updates):
    """The lines of a log told (second, stage, done)."""
    file, now = StringIO(), [datetime(2026, 1, 1, tzinfo=UTC)]
    log = LoggedProgress(SilentProgress(), file, lambda: now[0])
    for second, stage, done in updates:
        now[0] = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        log.update(stage, done, 100, "")
    log.flush()
    return [line.split("  ", 1)[1] for line in file.getvalue().splitlines()]


def test_stages_begin_and_end_with_a_line_and_have_one_a_second_between():
    lines = told(
        [(0, "a", 0), (0.2, "a", 10), (0.4, "a", 20), (1.5, "a", 60), (1.6, "a", 100), (1.7, "b", 1)]
    )
    assert lines == ["a: 0 of 100", "a: 60 of 100", "a: 100 of 100", "b: 1 of 100"]


def test_a_killed_run_leaves_its_log(tmp_path):
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL
    started, line = (tmp_path / LOG).read_text().splitlines()
    assert started.endswith(": dse run")
    assert line.endswith("search: 1 of 9; so far")


def fail(folder):
    with logged_progress(folder, SilentProgress()):
        raise KeyError("broken")


def test_a_failed_run_leaves_its_log_beside_what_else_it_left(tmp_path):
    with pytest.raises(KeyError):
        fail(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "study.journal").write_text("")
    with pytest.raises(KeyError):
        fail(tmp_path)
    assert "ended without an answer: KeyError" in (tmp_path / LOG).read_text()


def test_runs_in_one_folder_share_a_log(tmp_path):
    for _ in range(2):
        with logged_progress(tmp_path, SilentProgress(), ["run", "a\nb"]):
            pass
    lines = (tmp_path / LOG).read_text().splitlines()
    assert len(lines) == 4
    assert lines[0].endswith("dse run a b")
    assert lines[-1].endswith("  ended")
