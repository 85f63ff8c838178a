"""Operator schedules: ours against HiGHS, CP-SAT and PyJobShop on the same instances."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from answers import Answer, Answers, Instance, solve, warm_up
from peers.process import Peer, installed
from phaze.solvers.scheduling import Method
from schedule_instances import TRAINING, instances
from tables import percent

PEERS = (Method.ILP.value, Peer.CP_SAT.value, Peer.PYJOBSHOP.value)
"""The methods ours are compared with: HiGHS solves the formulation of `--method ilp`."""

NAMES = {
    Method.EXACT.value: "exact",
    Method.CRITICAL_PATH.value: "critical-path",
    Method.ILP.value: "HiGHS",
    Peer.CP_SAT.value: "CP-SAT",
    Peer.PYJOBSHOP.value: "PyJobShop",
}


@dataclass(frozen=True)
class Limits:
    """Seconds per instance for our methods and for peers; 0 leaves the peers out."""

    own_s: float
    peer_s: float


def from_files(folder: Path | None) -> Iterator[Instance]:
    """The instances in scheduling/*.json of a folder, the small ones as a set of their own."""
    files = sorted((folder / "scheduling").glob("*.json")) if folder else []
    for file in sorted(files, key=lambda file: not _small(file)):
        group = "files small-*" if _small(file) else "other files"
        yield Instance(group, file.stem, json.loads(file.read_text(encoding="utf-8")))


def generated(size: int, per_family: int) -> Iterator[Instance]:
    """Seeded training graphs of so many operators."""
    for family in TRAINING:
        for document in instances([family], size, per_family):
            yield Instance(f"{family.value}, {size} operators", str(document["name"]), document)


def measure(
    chosen: Sequence[Instance], limits: Limits, peers: Answers, tell: Callable[[str], None]
) -> list[Answer]:
    """Every method on every instance. Ours are always run anew, peers only where their answer is not known.

    The exact method is also given the peers' limit, where its own did not suffice for a proof.
    """
    warm_up()
    found: list[Answer] = []
    for instance in chosen:
        for method in (Method.EXACT, Method.CRITICAL_PATH):
            found.append(solve(instance, method.value, limits.own_s))
        if limits.peer_s > limits.own_s and not found[-2].optimal:
            found.append(solve(instance, Method.EXACT.value, limits.peer_s))
        if limits.peer_s > 0:
            found += [peers.get(instance, peer, limits.peer_s) for peer in PEERS if _available(peer)]
        latest = [answer for answer in found if answer.digest == instance.digest]
        tell(
            f"{instance.name}: "
            + ", ".join(f"{a.method} {percent(a.gap)} {a.runtime_s:.2f} s" for a in latest)
        )
    return found


def _small(file: Path) -> bool:
    return file.name.startswith("small-")


def _available(peer: str) -> bool:
    return peer not in set(Peer) or installed(Peer(peer)) is not None
