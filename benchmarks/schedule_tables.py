"""The tables of the schedules: speed and proof per set, wins and losses against peers, files left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf

from answers import Answer, Instance
from peers.process import Peer, installed
from peers.project import WORKERS
from phaze.solvers.scheduling import Method
from report import Report
from schedules import PEERS, Limits
from tables import percent, spread, table

TIE = 1e-6
"""Makespans and bounds closer than this, relatively, count as equal: solvers work to tolerances."""

NAMES = {
    Method.EXACT.value: "exact",
    Method.CRITICAL_PATH.value: "critical-path",
    Method.ILP.value: "HiGHS",
    Peer.CP_SAT.value: "CP-SAT",
    Peer.PYJOBSHOP.value: "PyJobShop",
}


def report(chosen: Sequence[Instance], limits: Limits, found: Sequence[Answer]) -> Report:
    """All tables, with the answers as rows."""
    answers = _Table(found)
    groups: dict[str, list[Instance]] = {}
    for instance in chosen:
        groups.setdefault(instance.group, []).append(instance)
    parts = ["# Schedules\n", _legend(limits)]
    for group, members in groups.items():
        parts += [f"\n## {group[0].upper()}{group[1:]}\n", _speed(members, limits, answers)]
    if limits.peer_s > 0:
        parts += ["\n## The exact method against each peer\n", _contest(groups, limits, answers)]
        parts += ["", _losses(chosen, limits, answers)]
    if any("expected" in instance.document for instance in chosen):
        parts += ["\n## Files without a proven optimum\n", _open_files(chosen, limits, answers)]
    return Report("schedules", "\n".join(parts) + "\n", [asdict(answer) for answer in found])


class _Table:
    """Answers by instance, method and limit."""

    def __init__(self, found: Sequence[Answer]) -> None:
        self._found = {(answer.digest, answer.method, answer.limit_s): answer for answer in found}

    def get(self, instance: Instance, method: str, limit_s: float) -> Answer | None:
        """What a method knew after so long: an answer proven within a shorter limit stays."""
        limits = [
            limit
            for (digest, name, limit), answer in self._found.items()
            if (digest, name) == (instance.digest, method)
            and (limit == limit_s or (limit < limit_s and answer.optimal))
        ]
        return self._found[instance.digest, method, max(limits)] if limits else None


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


def _speed(members: Sequence[Instance], limits: Limits, answers: _Table) -> str:
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


def _contest(groups: Mapping[str, Sequence[Instance]], limits: Limits, answers: _Table) -> str:
    """Wins / ties / losses of the exact method, on incumbents and on bounds."""
    spans = tuple(dict.fromkeys((limits.own_s, limits.peer_s)))
    lines = []
    for group, members in groups.items():
        for peer in PEERS:
            row = [f"{group}, {NAMES[peer]}"]
            for limit_s in spans:
                pairs = _pairs(members, peer, limit_s, limits.peer_s, answers)
                row += [_score(map(_incumbent, pairs)), _score(map(_bound, pairs))] if pairs else ["", ""]
            lines.append(row)
    headers = ["wins / ties / losses"]
    for limit_s in spans:
        headers += [f"incumbent, {limit_s:g} s against {limits.peer_s:g} s", f"bound, {limit_s:g} s"]
    return table(headers, lines)


def _losses(chosen: Sequence[Instance], limits: Limits, answers: _Table) -> str:
    """Where a peer, under the same limit, has the shorter schedule or the higher bound."""
    lines = []
    for instance in chosen:
        for peer in PEERS:
            for pair in _pairs([instance], peer, limits.peer_s, limits.peer_s, answers):
                behind = (_incumbent(pair), _bound(pair))
                if min(behind) < -TIE:
                    lines.append(
                        (f"{instance.name}, {NAMES[peer]}", *(percent(max(0.0, -x)) for x in behind))
                    )
    return table(("peer ahead", "incumbent by", "bound by"), lines) if lines else "No peer is ahead anywhere."


def _pairs(
    members: Sequence[Instance], peer: str, limit_s: float, peer_limit_s: float, answers: _Table
) -> list[tuple[Answer, Answer]]:
    """Answers of the exact method and of a peer where both were asked."""
    exact = Method.EXACT.value
    pairs = [(answers.get(i, exact, limit_s), answers.get(i, peer, peer_limit_s)) for i in members]
    return [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]


def _score(advantages: Iterable[float]) -> str:
    """How many are above, near and below zero."""
    values = list(advantages)
    wins, losses = sum(value > TIE for value in values), sum(value < -TIE for value in values)
    return f"{wins} / {len(values) - wins - losses} / {losses}"


def _incumbent(pair: tuple[Answer, Answer]) -> float:
    """By how much ours is shorter, relative to it."""
    ours, theirs = pair
    return inf if theirs.makespan_s is None else theirs.makespan_s / ours.makespan_s - 1


def _bound(pair: tuple[Answer, Answer]) -> float:
    """By how much ours is higher, relative to our makespan; no bound counts beyond a checked schedule."""
    ours, theirs = pair
    return (ours.lower_bound_s - min(theirs.lower_bound_s, ours.makespan_s)) / ours.makespan_s


def _open_files(chosen: Sequence[Instance], limits: Limits, answers: _Table) -> str:
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
