"""No process of a search outlives the one that began it, however that ends and whatever the process is at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")
PATIENCE_S = 60.0  # for a machine that is busy; what is to be seen takes a fraction of a second

COPY = """
import os
from phaze.explore.request.search_resources import run_in_fork
from spin import spin
with run_in_fork(spin) as result:
    result()
"""
WORKERS = """
from phaze.runs.executors.open_executor import open_executor
from spin import Spin
if __name__ == "__main__":
    with open_executor(2) as executor:
        list(executor.map(Spin(), [0, 1]))
"""
SPIN = """
import os
class Spin:
    def do(self, piece):
        print(os.getpid(), flush=True)
        while True:
            pass
def spin():
    print(os.getpid(), flush=True)
    while True:
        pass
    yield None
"""


def session(leader):
    """Processes of a session that run."""
    found = set()
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                state, *fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == leader and state != "Z":
                found.add(int(place.name))
    return found


@pytest.mark.parametrize(("script", "busy"), [(COPY, 1), (WORKERS, 2)], ids=["copy", "workers"])
@pytest.mark.parametrize("ends_by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_busy_processes_end_with_the_one_that_began_them(script, busy, ends_by, tmp_path):
    (tmp_path / "spin.py").write_text(SPIN)
    (tmp_path / "begin.py").write_text(script)
    begun = subprocess.Popen(
        [sys.executable, "begin.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    at_work = {int(begun.stdout.readline()) for _ in range(busy)}
    assert begun.pid not in at_work
    assert at_work <= session(begun.pid)
    os.kill(begun.pid, ends_by)
    begun.wait(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while session(begun.pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not session(begun.pid)
