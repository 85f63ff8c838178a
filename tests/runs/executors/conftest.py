"""A Dask scheduler with two worker processes on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent


class Cluster:
    """A scheduler and worker processes, each of which can be ended."""

    def __init__(self, folder):
        self._folder = folder
        self.scheduler = self._start(
            "scheduler", "--port", "0", "--scheduler-file", str(folder / "there.json")
        )
        self.workers = [self.add() for _ in range(2)]

    @property
    def address(self):
        """As --executor takes it."""
        while not (self._folder / "there.json").exists():
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        return json.loads((self._folder / "there.json").read_text())["address"].replace("tcp", "dask")

    def add(self):
        """One more worker, which imports what stands beside this file."""
        name = self.address.replace("dask", "tcp")
        return self._start("worker", name, "--nthreads", "1", "--no-nanny")

    def _start(self, kind, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.Popen(
            [*command, "--host", "127.0.0.1"],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def doomed_cluster(tmp_path):
    """One that may lose its workers."""
    yield from _cluster(tmp_path)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """One that stays whole."""
    yield from _cluster(tmp_path_factory.mktemp("cluster"))


def _cluster(folder):
    pytest.importorskip("distributed")
    cluster = Cluster(folder)
    yield cluster
    cluster.end()
