"""The tables of the schedules: speed and proof per set, wins and losses against peers, files left open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from answers import Answer, AnswerTable, Instance
from contest import contest, losses
from peers.process import Peer, installed
from peers.project import WORKERS
from phaze.solvers.scheduling import Method
from report import Report
from schedules import NAMES, PEERS, Limits
from tables import percent, spread, table


def report(chosen: Sequence[Instance], limits: Limits, found: Sequence[Answer]) -> Report:
    """All tables, with the answers as rows."""
    answers = AnswerTable(found)
    groups: dict[str, list[Instance]] = {}
    for instance in chosen:
        groups.setdefault(instance.group, []).append(instance)
    parts = ["# Schedules\n", _legend(limits)]
    for group, members in groups.items():
        parts += [f"\n## {group[0].upper()}{group[1:]}\n", _speed(members, limits, answers)]
    if limits.peer_s > 0:
        parts += ["\n## The exact method against each peer\n", contest(groups, limits, answers)]
        parts += ["", losses(chosen, limits, answers)]
    if any("expected" in instance.document for instance in chosen):
        parts += ["\n## Files without a proven optimum\n", _open_files(chosen, limits, answers)]
    return Report("schedules", "\n".join(parts) + "\n", [asdict(answer) for answer in found])


def _legend(limits: Limits) -> str:
    text = (
        f"Wall-clock time per schedule, at most {limits.own_s:g} s for the project's methods; "
        "gap = (makespan - bound) / makespan. Every schedule passed the checker."
    )
    if not limits.peer_s:
        return text
    versions = " and ".join(f"{NAMES[peer.value]} ({installed(peer) or 'not installed'})" for peer in Peer)
    return (
        f"{text} Peers had {limits.peer_s:g} s: HiGHS solves the model of `--method ilp` through Pyomo; {versions} "
        f"run with {WORKERS} workers in a process of their own, given the project's list schedule to start from and "
        "as horizon; their time is that of building and solving the model."
    )


def _speed(members: Sequence[Instance], limits: Limits, answers: AnswerTable) -> str:
    """How fast and how often each method proves its schedule."""
    lines = []
    for method, limit_s in _contestants(limits):
        found = [answers.get(instance, method, limit_s) for instance in members]
        known = [answer for answer in found if answer is not None]
        label = f"{NAMES[method]}, {limit_s:g} s"
        if not known:
            lines.append((label, "not installed", "", "", ""))
            continue
        proven = f"{sum(answer.optimal for answer in known)}/{len(members)}"
        worst = max(answer.gap for answer in known)
        lines.append((label, proven, *spread([answer.runtime_s for answer in known]), percent(worst)))
    return table(("method, limit", "proven", "median", "95th percentile", "worst gap"), lines)


def _contestants(limits: Limits) -> list[tuple[str, float]]:
    own = [(Method.EXACT.value, limits.own_s)]
    if limits.peer_s > limits.own_s:
        own.append((Method.EXACT.value, limits.peer_s))
    peers = [(peer, limits.peer_s) for peer in PEERS] if limits.peer_s else []
    return [*own, (Method.CRITICAL_PATH.value, limits.own_s), *peers]


def _open_files(chosen: Sequence[Instance], limits: Limits, answers: AnswerTable) -> str:
    """Makespan and bound of the exact method where the file knows no proof, relative to what it knows."""
    lines = []
    for instance in chosen:
        expected = instance.document.get("expected")
        if not expected or expected["proven_optimal"]:
            continue
        ours = answers.get(instance, Method.EXACT.value, max(limits.own_s, limits.peer_s))
        best, bound = expected["best_known_makespan_s"], expected["proven_lower_bound_s"]
        lines.append(
            (
                instance.name,
                percent(1 - bound / best),
                f"{100 * (ours.makespan_s / best - 1):+.3f} %",
                f"{100 * (ours.lower_bound_s / bound - 1):+.3f} %",
                percent(ours.gap),
            )
        )
    return table(("file", "gap in the file", "makespan", "bound", "gap"), lines)
