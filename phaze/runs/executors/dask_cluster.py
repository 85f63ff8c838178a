"""A Dask cluster as an executor: the same work on any number of machines, all of the same versions."""

from __future__ import annotations

import pickle
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import version
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from phaze.errors import InputError, WorkerLostError
from phaze.explore.request.search_resources import Piece, Result, Work, never
from phaze.runs.executors.packed_work import MOST, Pack, Packs
from phaze.runs.store.model_version import code_digest
from phaze.scheduling.effort import LimitsOver

CODE = "code of phaze-dse"


@cache
def code_versions() -> Mapping[str, str]:
    """Versions of this process's Python and of what its figures come from, and a digest of the code behind them."""
    names = ("phaze-dse", "numpy", "numba")
    return {"python": platform.python_version(), CODE: code_digest()[:12]} | {
        name: version(name) for name in names
    }


def version_differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """Differences of versions, as parts of a sentence."""
    return [
        f"{name} is {theirs.get(name, 'missing')} there, {own} here"
        for name, own in ours.items()
        if theirs.get(name) != own
    ]


SCHEMES = {"dask": "tcp", "dask+tls": "tls"}
CONNECT_S = 10.0  # for the scheduler to answer
WORKERS_S = 60.0  # for the first worker to be there
LOOK_S = 0.5  # between looks at whether somebody still waits


class Dask(AbstractContextManager["Dask"]):
    """An executor of the workers of one scheduler; pieces of workers that die are done again by others."""

    def __init__(self, address: str, wait_s: float = WORKERS_S, stop: Callable[[], bool] = never) -> None:
        """Connect to `dask://HOST:PORT` and wait `wait_s` for the first worker; `stop`: nobody waits for more.

        Raises InputError where the address is none, Dask is not installed, nobody answers or no worker is there.
        """
        self._address, self._stop = address, stop
        self._client = _client(_endpoint(address), address)
        self._packs = Packs()
        try:
            self._client.wait_for_workers(1, timeout=wait_s)
        except TimeoutError as error:
            self._client.close()
            raise InputError(
                f"the Dask scheduler at {address} has no worker after {wait_s:g} s; start one: dask worker"
            ) from error

    @property
    def workers(self) -> int:
        """Worker processes at the moment, at least 1."""
        return max(1, len(self._client.nthreads()))

    def map(self, work: Work[Piece, Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        """Results in the order of the pieces.

        Raises what a piece raises, InputError where a worker has another version of phaze, WorkerLostError where
        a piece has cost several workers or the scheduler has gone, LimitsOver where nobody waits any more.
        """
        with _told(self._address):
            futures = self._submitted(self._packs.of(work), pieces)
        try:
            for future in futures:
                with _told(self._address):
                    found = self._result(future)
                yield found
        finally:
            self._client.cancel(futures)

    def _result(self, future: Any) -> Any:  # noqa: ANN401 - Dask has no types
        while not self._stop():
            if future.status == "error":  # a piece may end in a TimeoutError of its own
                return future.result()
            with suppress(TimeoutError):
                return future.result(timeout=LOOK_S)
        raise LimitsOver

    def _submitted(self, pack: Pack, pieces: Sequence[Any]) -> list[Any]:
        # A task of its own: every worker fetches the bytes once, and they are made again should they get lost.
        content = self._client.submit(bytes, pack.content, key=f"phaze-work-{pack.digest}")
        packed = [pickle.dumps(piece) for piece in pieces]  # so that Dask does not look into them
        futures = self._client.map(_done, packed, content=content, ours=dict(code_versions()), pure=False)
        return list(futures)

    def __exit__(self, *_: object) -> None:
        """Leave the cluster as it was."""
        self._client.close()


@dataclass
class _Desk:
    """A work in a worker process, which does one piece at a time however many threads it has."""

    work: Work[Any, Any]
    lock: Lock = field(default_factory=Lock)


@lru_cache(maxsize=MOST)
def _desk(content: bytes) -> _Desk:
    return _Desk(pickle.loads(content))


def _done(piece: bytes, content: bytes, ours: Mapping[str, str]) -> object:
    """Result of one piece on a worker. Raises InputError where it is not of the asking process's version."""
    if different := version_differences(code_versions(), ours):
        raise InputError(f"a Dask worker would give another answer: {'; '.join(different)}")
    desk = _desk(content)
    with desk.lock:
        return desk.work.do(pickle.loads(piece))


def _endpoint(address: str) -> str:
    """The address as Dask has it."""
    try:
        parts = urlsplit(address)
        scheme, host, port = SCHEMES[parts.scheme], parts.hostname, parts.port
    except (KeyError, ValueError):
        host = port = None
    if not host or not port:
        raise InputError(f"--executor {address!r} is not an address; write for example dask://scheduler:8786")
    return f"{scheme}://{parts.netloc}"


def _client(endpoint: str, address: str) -> Any:  # noqa: ANN401 - Dask has no types
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            f"--executor {address} needs Dask: pip install '.[dask]' in a clone of phaze"
        ) from error
    try:
        return Client(endpoint, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address}") from error


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Dask's own troubles as sentences."""
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "phaze":
            raise
        raise InputError(
            f"a Dask worker of {address} has no phaze-dse; install the version of this process"
        ) from error
    except (KilledWorker, NoValidWorkerError) as error:
        raise WorkerLostError(
            f"several Dask workers of {address} died at the same work; what is recorded so far is kept: "
            "continue with --resume, with more memory for a worker if that was short"
        ) from error
    except (FutureCancelledError, CommClosedError) as error:
        raise WorkerLostError(
            f"the Dask scheduler at {address} has gone; what is recorded so far is kept: continue with --resume"
        ) from error
