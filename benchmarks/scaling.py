"""How well evaluations scale over worker processes, and what one more of them costs."""

from __future__ import annotations

import os
import pickle
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, process_time

from report import Report
from tables import duration, table

from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import SilentProgress
from phaze.explore.request.search_resources import Executor, InThisProcess, SearchResources
from phaze.explore.sampling.design_assessor import Assessor
from phaze.explore.sampling.optuna_sweep import Sweep, SweepPlan
from phaze.explore.sampling.sampled_study import BATCH
from phaze.explore.sampling.study_record import StudyPlace
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.runs.executors.dask_cluster import Dask
from phaze.runs.executors.worker_processes import Processes
from phaze.workload.workload_loader import load_workload

PIECES, EMPTY, TRIALS = 48, 256, 32
MANY = 1000  # workers of the estimate


@dataclass
class Timed:
    """Evaluations with who has made them, and the wall and processor time they took."""

    assessor: Assessor

    def do(self, piece: int) -> tuple[int, float, float, int]:
        """Process, wall and processor seconds, bytes of the result."""
        began, used = monotonic(), process_time()
        row = self.assessor.do(piece)
        return os.getpid(), monotonic() - began, process_time() - used, len(pickle.dumps(row))


class Nothing:
    """Work that takes no time."""

    def do(self, piece: int) -> None:
        """No result."""


def measured(say: Callable[[str], None]) -> Report:
    """Every kind of executor on the same designs, then the estimate for many workers."""
    candidates = Candidates(load_space("one-clock"), Budgets(power_w=400.0))
    task = Task(load_workload("gpt3"), 1024, load_network("default"))
    within = candidates.all().numbers
    wanted = within[:: len(within) // PIECES][:PIECES].tolist()
    rows = []
    for name, opened in (
        ("1 process", _processes(1)),
        ("2 processes", _processes(2)),
        ("2 Dask workers", _dask()),
    ):
        say(name)
        with opened as executor:
            rows.append({"executor": name, **_row(executor, Timed(Assessor(task, candidates)), wanted)})
    own_s = _own_s(task, candidates)
    lines = [
        (
            row["executor"],
            row["evaluations"],
            duration(row["processor_s"]),
            duration(row["wall_s"]),
            f"{row['busy']:.0%}",
            duration(row["dispatch_s"]),
        )
        for row in rows
    ]
    heads = (
        "executor",
        "evaluations per worker",
        "processor time each",
        "wall time of all",
        "busy",
        "dispatch",
    )
    text = [
        "# Scaling\n",
        f"{PIECES} designs of the default space for gpt3 under 400 W, as `dse sweep` evaluates them, after the workers "
        "have started. Busy: the share of all workers' wall time in which they had a design at hand, whatever else "
        "the machine was doing. Dispatch: wall time of a piece that takes no time.\n",
        table(heads, lines) + "\n",
        f"The machine had a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores: where that is more than the "
        "workers make, wall times are no measure of them.\n",
        f"A result has {rows[0]['result_bytes']} bytes; sampling and recording a trial in memory takes "
        f"{duration(own_s)} of processor time.\n",
        *_estimate(float(rows[0]["processor_s"]), own_s, rows),
    ]
    return Report("scaling", "\n".join(text), rows)


def _estimate(piece_s: float, own_s: float, rows: list[dict[str, object]]) -> Iterator[str]:
    """What these figures make of many workers, on paper."""
    yield f"## {MANY:,} workers on paper\n".replace(",", " ")
    batch_s = BATCH * own_s + piece_s
    hosts = MANY // BATCH
    yield (
        f"A sweep in batches of {BATCH} has as many designs under way: with {BATCH} workers a batch takes "
        f"{duration(batch_s)}, {piece_s / batch_s:.0%} of it evaluation. So {MANY} workers are {hosts} processes "
        f"with {BATCH} each on one database, which then has to take {hosts * BATCH / batch_s:.0f} trials per "
        "second; nothing else is shared.\n"
    )
    for row in rows[1:]:
        dispatch_s = float(str(row["dispatch_s"]))
        yield (
            f"{str(row['executor']).partition(' ')[2]}: one process hands out {1 / dispatch_s:.0f} pieces per second, "
            f"enough for {piece_s / dispatch_s:.0f} workers at {duration(piece_s)} per piece; {MANY} of them are kept "
            f"busy by pieces of {duration(MANY * dispatch_s)} or more.\n"
        )


def _row(executor: Executor, work: Timed, wanted: list[int]) -> dict[str, object]:
    list(
        executor.map(work, wanted[: 4 * executor.workers])
    )  # workers start, compile, and build what they keep
    began = monotonic()
    found = list(executor.map(work, wanted))
    wall_s = monotonic() - began
    list(executor.map(Nothing(), range(EMPTY // 8)))
    began = monotonic()
    list(executor.map(Nothing(), range(EMPTY)))
    return {
        "evaluations": " + ".join(map(str, sorted(Counter(pid for pid, *_ in found).values()))),
        "processor_s": statistics.mean(used for _, _, used, _ in found),
        "wall_s": wall_s,
        "busy": sum(taken for _, taken, _, _ in found) / (wall_s * executor.workers),
        "dispatch_s": (monotonic() - began) / EMPTY,
        "result_bytes": max(size for *_, size in found),
    }


def _own_s(task: Task, candidates: Candidates) -> float:
    """Processor seconds that a sweep takes for a trial beside the evaluation."""
    objectives = (metric("throughput"), metric("tdp"))
    executor = _Clocked()
    plan = SweepPlan(task, candidates, objectives, TRIALS, StudyPlace(None))
    began = process_time()
    Sweep(plan, SilentProgress(), resources=SearchResources(executor)).run()
    return (process_time() - began - executor.used_s) / TRIALS


class _Clocked(InThisProcess):
    """Works here and counts processor time."""

    used_s = 0.0

    def map(self, work, pieces):
        for piece in pieces:
            began = process_time()
            found = work.do(piece)
            self.used_s += process_time() - began
            yield found


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    with Processes(count) as team:
        yield team


@contextmanager
def _dask() -> Iterator[Executor]:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Dask(cluster.scheduler_address.replace("tcp", "dask")) as executor,
    ):
        yield executor
