"""Look for architectures: `phaze.explore` with a proof, `phaze.sweep` by samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.api.explored import Explored, Swept
from phaze.api.words import options, speaks_python
from phaze.quantity import Quantity

if TYPE_CHECKING:
    from phaze.explore.progress import Progress
    from phaze.hardware.network import Network
    from phaze.hardware.space import DesignSpace
    from phaze.inputs.task import Source
    from phaze.placement.strategy.choices import Plans
    from phaze.placement.strategy.framework import Framework


@speaks_python
def explore(
    workload: Source | Sequence[Source],
    *,
    power: Quantity | None = None,
    area: Quantity | None = None,
    power_density: Quantity | None = None,
    devices: int | None = None,
    global_batch: int | None = None,
    plans: str | Path | Plans = "full",
    framework: str | Path | Framework = "ideal",
    objective: str = "throughput",
    axes: str | Sequence[str] | None = None,
    strategy: str = "certified",
    evaluations: int | None = None,
    designs: str | None = None,
    top_k: int | None = None,
    robust: bool = False,
    combine: str = "geomean",
    weight: Mapping[str, float] | Sequence[str] | None = None,
    min_throughput: float | None = None,
    max_latency: Quantity | None = None,
    cluster_power: Quantity | None = None,
    cluster_cost: float | None = None,
    cluster_overhead: float = 1.0,
    tokens: float | None = None,
    samples: float | None = None,
    electricity_price: float | None = None,
    pue: float | None = None,
    space: str | Path | DesignSpace = "default",
    network: str | Path | Network = "default",
    node: str | None = None,
    clock: Quantity | None = None,
    fix: Mapping[str, object] | Sequence[str] | None = None,
    dvfs: bool = False,
    tdp_margin: float = 1.0,
    mode: str = "training",
    context: int | None = None,
    kv_cache: str = "contiguous",
    attention: str | None = None,
    fusion: str | None = None,
    recipe: str | None = None,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    rung: str = "analytic",
    time_limit: Quantity = "60s",
    gap: float = 0.0,
    seed: int = 0,
    workers: int = 1,
    executor: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Explored:
    """Find the best architecture and placement of a design space, with a proof, as `dse run` does.

    `workload`: a built-in name, a file, a workload at hand, or several of them for one common design. Budgets
    such as `power` and `area` are texts with units or SI numbers (areas in mm2). `plans`: the space of plans that is
    searched beside the chips, as a `framework` runs them. `out`: keep a run directory there; without it nothing is
    written. `workers` processes, or the Dask cluster at `executor`
    (dask://HOST:PORT), do the work; they change no answer. `progress` is told what is done.

    Raises InputError where an argument is no good, InfeasibleError where nothing keeps the budgets or fits in
    memory, OutOfTimeError where the time limit passes before anything is known.
    """
    asked = options(locals())
    from phaze.explore.api import explore as searched
    from phaze.explore.means import Means
    from phaze.inputs.files import recorded
    from phaze.inputs.request import make_request
    from phaze.runs.directory import write_run
    from phaze.runs.executors.opened import opened_executor

    request = make_request(asked)
    with _place(out, progress, resume=resume) as (folder, log), opened_executor(workers, executor) as team:
        answer = searched(request, log, means=Means(team))
        document = recorded(answer.document, "run", asked)
        if folder is not None:
            write_run(folder, document, answer.designs)
    return Explored(document, answer, folder)


@speaks_python
def sweep(
    workload: Source,
    *,
    power: Quantity | None = None,
    area: Quantity | None = None,
    power_density: Quantity | None = None,
    trials: int = 100,
    sampler: str = "tpe",
    objectives: str | Sequence[str] = ("throughput", "tdp"),
    devices: int = 1024,
    global_batch: int | None = None,
    plans: str | Path | Plans = "full",
    framework: str | Path | Framework = "ideal",
    space: str | Path | DesignSpace = "default",
    network: str | Path | Network = "default",
    node: str | None = None,
    clock: Quantity | None = None,
    fix: Mapping[str, object] | Sequence[str] | None = None,
    dvfs: bool = False,
    tdp_margin: float = 1.0,
    mode: str = "training",
    context: int | None = None,
    kv_cache: str = "contiguous",
    attention: str | None = None,
    fusion: str | None = None,
    recipe: str | None = None,
    bind: Mapping[str, int] | Sequence[str] | None = None,
    rung: str = "analytic",
    storage: str | None = None,
    study: str = "sweep",
    batch: int = 8,
    join: bool = False,
    seed: int = 0,
    workers: int = 1,
    executor: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Sample the design space with Optuna, as `dse sweep` does.

    `plans` and `framework` as in `explore`. The study lasts where `out` names a run directory or `storage` a
    database; otherwise it is kept in memory.
    `workers` processes, or the Dask cluster at `executor`, evaluate; with `join` any number of hosts that ask the
    same share the database and the work. None of it changes an answer.

    Raises InputError where an argument is no good or the study cannot be opened, InfeasibleError where nothing
    keeps the budgets or no trial was feasible.
    """
    asked = options(locals())
    from phaze.explore.means import Means
    from phaze.explore.sweep import Sweep
    from phaze.explore.sweep_document import sweep_document
    from phaze.inputs.files import recorded
    from phaze.inputs.sweep import JOURNAL, make_plan
    from phaze.runs.executors.opened import opened_executor
    from phaze.runs.sweep import write_sweep

    started = datetime.now(UTC)
    plan = make_plan(asked, storage or (Path(out) / JOURNAL if out is not None else None))
    with (
        _place(out, progress, resume=resume or join) as (folder, log),
        opened_executor(workers, executor) as team,
    ):
        sampling = Sweep(plan, log, means=Means(team))
        result = sampling.run()
        if folder is not None:
            document = sweep_document(sampling, result, started)
            write_sweep(folder, recorded(document, "sweep", asked), result)
    return Swept(result, plan, folder)


@contextmanager
def _place(
    out: str | Path | None, progress: Progress | None, *, resume: bool
) -> Iterator[tuple[Path | None, Progress]]:
    """The run directory with its log, where one was asked for, and who is told of the course of things."""
    from phaze.explore.progress import Silent
    from phaze.runs.directory import run_directory
    from phaze.runs.log import logged

    report = progress or Silent()
    if out is None:
        yield None, report
        return
    with run_directory(Path(out), resume=resume) as folder, logged(folder, report) as log:
        yield folder, log
