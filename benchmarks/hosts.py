"""How a sweep scales over hosts that share a database: `python benchmarks/hosts.py URL [HOSTS ...]`.

An evaluation is a wait of one second, which takes no processor, so that this machine can play several hosts; what
they do besides, asking, claiming and writing, is real.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from tables import table

from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import SilentProgress
from phaze.explore.sampling.design_assessor import Assessor
from phaze.explore.sampling.optuna_sweep import Sweep, SweepPlan
from phaze.explore.sampling.study_record import StudyPlace
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.workload.workload_loader import load_workload

EVALUATION_S = 1.0
TRIALS, BATCH = 96, 32


class Waiting(Assessor):
    """Waits, and answers by a formula."""

    def do(self, number):
        time.sleep(EVALUATION_S)
        cores = self.candidates.table(np.array([number], dtype=np.int64))["tensor_cores"][0]
        return {"throughput_samples_per_s": float(cores), "memory_missed": -0.5}


@dataclass
class WaitingSweep(Sweep):
    @cached_property
    def assessor(self):
        return Waiting(self.plan.task, self._scope.grid)


@dataclass(frozen=True)
class Share:
    """What a host did, in evaluations and seconds."""

    evaluated: int
    waited_s: float
    processor_s: float
    wall_s: float


def sweep_plan(url):
    task = Task(load_workload("gpt3"), 1024, load_network())
    candidates = Candidates(load_space("default"), Budgets())
    objectives = (metric("throughput"), metric("tdp"))
    return SweepPlan(task, candidates, objectives, TRIALS, StudyPlace(url), join=True, batch=BATCH)


def host(plan, start, answers):
    start.wait()
    began, sweep = time.monotonic(), WaitingSweep(plan, SilentProgress())
    before = resource.getrusage(resource.RUSAGE_SELF)
    sweep.run()
    now = resource.getrusage(resource.RUSAGE_SELF)
    used = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
    answers.put(Share(sweep.share.evaluated, sweep.share.waited_s, used, time.monotonic() - began))


def measure(plan, count):
    """The shares of as many hosts as `count`."""
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(count), context.Queue()
    hosts = [context.Process(target=host, args=(plan, start, answers)) for _ in range(count)]
    for process in hosts:
        process.start()
    shares = [answers.get() for _ in hosts]
    for process in hosts:
        process.join()
    return shares


def row(count, shares):
    evaluated = sorted(share.evaluated for share in shares)
    ideal = sum(evaluated) * EVALUATION_S / count
    wall = max(share.wall_s for share in shares)
    return [
        str(count),
        f"{evaluated[0]} to {evaluated[-1]}",
        f"{wall:.0f} s",
        f"{ideal / wall:.0%}",
        f"{sum(share.waited_s for share in shares) / count:.1f} s",
        f"{sum(share.processor_s for share in shares) / count:.1f} s",
    ]


if __name__ == "__main__":
    url, *counts = sys.argv[1:]
    header = ["hosts", "evaluations of a host", "wall", "of ideal", "waited", "processor time"]
    # Every number of hosts has a study, and by its seed evaluations, of its own.
    plans = [replace(sweep_plan(url), place=StudyPlace(url, f"{n} hosts"), seed=int(n)) for n in counts]
    print(table(header, [row(int(n), measure(p, int(n))) for n, p in zip(counts, plans, strict=True)]))
