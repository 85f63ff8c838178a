"""The executor that options ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from phaze.errors import InputError
from phaze.explore.request.search_resources import Executor, InThisProcess, never


@contextmanager
def open_executor(
    workers: int = 1, address: str | None = None, stop: Callable[[], bool] = never
) -> Iterator[Executor]:
    """An executor for the time of a block: the Dask cluster at `address`, or `workers` processes on this machine.

    With one worker everything happens in this process. `stop`: whether nobody waits for pieces any more that others are
    at; these then end in LimitsOver. Raises InputError where the options contradict each other
    or the cluster cannot be used.
    """
    if workers < 1:
        raise InputError(f"--workers {workers} must be at least 1")
    if address is not None and workers != 1:
        raise InputError(
            "--workers counts processes on this machine; with --executor the cluster has its own"
        )
    if address is not None:
        from phaze.runs.executors.dask_cluster import Dask

        with Dask(address, stop=stop) as cluster:
            yield cluster
    elif workers == 1:
        yield InThisProcess()
    else:
        from phaze.runs.executors.worker_processes import Processes

        with Processes(workers, stop) as team:
            yield team
