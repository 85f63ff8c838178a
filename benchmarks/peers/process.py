"""Ask a peer in a process of its own, and check what it answers."""

from __future__ import annotations

import json
import subprocess
import sys
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from phaze.solvers.scheduling import ScheduleProblem, ScheduleResult, check_schedule

from peers.project import Project

TOLERANCE = 1e-6
"""How far, relatively, a peer's makespan in ticks may be from the one its schedule has with the true latencies."""

_SLACK_S = 120.0
"""Beyond its limit, for loading and building; a peer that takes longer is stopped."""


class Peer(StrEnum):
    """A solver that is not part of the project; the value is the name of its distribution."""

    CP_SAT = "ortools"
    PYJOBSHOP = "pyjobshop"


class PeerError(RuntimeError):
    """A peer failed, or answered what is not so."""


_SCRIPTS = {Peer.CP_SAT: "cp_sat.py", Peer.PYJOBSHOP: "job_shop.py"}


@cache
def installed(peer: Peer) -> str | None:
    """Its version, None where it is not installed."""
    try:
        return version(peer.value)
    except PackageNotFoundError:
        return None


def ask(peer: Peer, problem: ScheduleProblem, limit_s: float) -> ScheduleResult:
    """The peer's schedule, with the true latencies and checked, and its bound.

    It starts from the same list schedule, which also bounds its horizon. Its time is that of the model and
    the search, without starting the process.

    Raises:
        PeerError: it failed, found no schedule, or one that is not as long as it says.
    """
    project = Project(problem)
    answer = _run(_SCRIPTS[peer], project.document(limit_s), limit_s + _SLACK_S)
    if answer["schedule"] is None:
        raise PeerError(f"{peer.value} found no schedule, although it was given one")
    replay = project.in_seconds(answer["schedule"])
    claimed_s = answer["makespan"] / project.ticks_per_s
    if replay.makespan > claimed_s * (1 + TOLERANCE):
        raise PeerError(f"{peer.value} claims {claimed_s} s, its schedule takes {replay.makespan} s")
    result = replay.result(
        answer["bound"] / project.ticks_per_s, answer["runtime_s"], optimal=answer["optimal"]
    )
    check_schedule(problem, result)
    return result


def _run(script: str, document: dict[str, object], limit_s: float) -> dict:
    path = Path(__file__).parent / script
    try:
        done = subprocess.run(
            [sys.executable, str(path)],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise PeerError(f"{script}: {getattr(error, 'stderr', None) or error}") from error
    return json.loads(done.stdout)
