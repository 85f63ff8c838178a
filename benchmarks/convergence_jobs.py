"""What the convergence benchmark has to do, in pieces that can be done apart and kept."""

from __future__ import annotations

import json
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from pathlib import Path
from time import monotonic

from phaze.explore.strategies.strategy_registry import STRATEGIES

Row = dict[str, object]
PHAZE = (
    *("gpt3", "llama2-7b", "gpt2-xl", "bert-large", "opt-350m"),
    *("megatron-gpt2-72", "megatron-gpt2-54", "megatron-bert", "megatron-gpt2-xl"),
)
WHAM = (
    *("opt-1.3b", "bert-base", "gnmt4", "vgg16"),
    *("resnet18", "resnext101-32x8d", "inception-v3", "mobilenet-v3-large"),
)
"""Its workloads that PHAZE does not have."""
ALONE = frozenset(WHAM) - {"opt-1.3b"}
"""WHAM trains these on one device."""
CERTIFIED = "certified"
SMALL = Path(__file__).parent / "small-space.yaml"


@dataclass(frozen=True)
class Job:
    """The certified answer of a workload in a space, with known chips beside it, or one run of a strategy."""

    space: str
    workload: str
    devices: int
    name: str = CERTIFIED
    seed: int = 0
    evaluations: int = 0

    @property
    def answer(self) -> Job:
        """The job of the certified answer of this case."""
        return replace(self, name=CERTIFIED, seed=0, evaluations=0)

    def __str__(self) -> str:
        run = "" if self.name == CERTIFIED else f", seed {self.seed}"
        return f"{Path(self.space).stem}, {self.workload}, {self.name}{run}"


@dataclass(frozen=True)
class Plan:
    """What to measure: the workloads of PHAZE and WHAM and all strategies where none are named.

    `devices`: of a workload that WHAM does not train on one. No job begins after `limit_s`; `workers`: processes at
    a time, 0 for this one.
    """

    workloads: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ("phaze", "default")
    evaluations: int = 200
    seeds: int = 3
    devices: int = 1024
    workers: int = 2
    limit_s: float = inf
    names: tuple[str, ...] = ()

    def answers(self) -> list[Job]:
        """The certified answer of every case."""
        cases = product(self.spaces, self.workloads or PHAZE + WHAM)
        return [Job(space, name, 1 if name in ALONE else self.devices) for space, name in cases]

    def searches(self, answers: Sequence[Job]) -> list[Job]:
        """Every run of every strategy on the cases of some answers: all of one seed before those of the next."""
        return [
            Job(case.space, case.workload, case.devices, strategy.name, seed, self.evaluations)
            for seed in range(self.seeds)
            for case in answers
            for strategy in STRATEGIES.all().values()
            if (strategy.seeded or seed == 0) and (not self.names or strategy.name in self.names)
        ]


def quick() -> Plan:
    """A small case, which shows that everything runs."""
    return Plan(("opt-350m",), (str(SMALL),), evaluations=12, seeds=1, devices=16, workers=0)


class Kept:
    """The rows of every job that is done; with a file, over all runs of the benchmark."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._rows: dict[Job, list[Row]] = {}
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                done = json.loads(line)
                self._rows[Job(**done["job"])] = done["rows"]

    def __contains__(self, job: Job) -> bool:
        return job in self._rows

    def add(self, job: Job, rows: list[Row]) -> None:
        """Remember, and write to the file at once."""
        self._rows[job] = rows
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"job": asdict(job), "rows": rows}) + "\n")

    def rows(self, jobs: Sequence[Job]) -> list[Row]:
        """Those of some jobs, as far as they are done."""
        return [row for job in jobs for row in self._rows.get(job, ())]


@dataclass
class Crew:
    """Does jobs until time is over. A process lives for one job: what it has learnt helps no other."""

    work: Callable[[Job], list[Row]]
    workers: int
    until: float = inf

    @property
    def over(self) -> bool:
        """Whether no further job begins."""
        return monotonic() >= self.until

    def do(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Row]]]:
        """Jobs with their rows, as they end; they begin in the order given."""
        waiting = deque(jobs)
        if not self.workers:
            while waiting and not self.over:
                job = waiting.popleft()
                yield job, self.work(job)
            return
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.workers, mp_context=fresh, max_tasks_per_child=1) as pool:
            running: dict[Future[list[Row]], Job] = {}
            while running or (waiting and not self.over):
                while waiting and len(running) < self.workers and not self.over:
                    job = waiting.popleft()
                    running[pool.submit(self.work, job)] = job
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(ended), ended.result()
