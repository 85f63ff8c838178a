"""Wins, ties and losses of the exact method against other solvers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from answers import Answer, AnswerTable, Instance
from phaze.solvers.scheduling import Method
from schedules import NAMES, PEERS, Limits
from tables import percent, table

TIE = 1e-6
"""Makespans and bounds closer than this, relatively, count as equal: solvers work to tolerances."""


def contest(groups: Mapping[str, Sequence[Instance]], limits: Limits, answers: AnswerTable) -> str:
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


def losses(chosen: Sequence[Instance], limits: Limits, answers: AnswerTable) -> str:
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
    members: Sequence[Instance], peer: str, limit_s: float, peer_limit_s: float, answers: AnswerTable
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
