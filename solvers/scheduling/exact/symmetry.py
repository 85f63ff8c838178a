"""Branches of a precedence graph that can change places without anyone noticing.

The branch of an operator is what only it holds back: the operator, and everything all of whose predecessors
are in the branch. Two disjoint branches are interchangeable if a one-to-one map between them keeps modes,
edges inside, and successors outside. Once the first operators of both are free to start, whatever has been
done of one could as well have been done of the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

Lists = Sequence[Sequence[int]]


def interchangeable(modes: Sequence[Hashable], preds: Lists, succs: Lists) -> list[list[list[int]]]:
    """Classes of two or more interchangeable branches; equal places in the lists of a class correspond.

    Operators are numbered such that each follows its predecessors; `modes` are equal where operators are.
    """
    colors = _colors(modes, succs)
    branches = [_branch(i, preds, succs, colors) for i in range(len(modes))]
    classes: dict[int, list[list[list[int]]]] = {}
    for branch in branches:
        candidates = classes.setdefault(colors[branch[0]], [])
        for members in candidates:
            if all(_correspond(other, branch, succs, colors) for other in members):
                members.append(branch)
                break
        else:
            candidates.append([branch])
    return [members for candidates in classes.values() for members in candidates if len(members) > 1]


def outermost(classes: Sequence[Lists], succs: Lists) -> list[Lists]:
    """Classes without those that another one implies: behind a chain, what ends the branches of another class
    is sorted with them."""
    implied = set()
    for members in classes:
        for k in range(1, len(members[0])):
            if any(list(succs[branch[k - 1]]) != [branch[k]] for branch in members):
                break
            implied.add(frozenset(branch[k] for branch in members))
    return [members for members in classes if frozenset(branch[0] for branch in members) not in implied]


def _colors(modes: Sequence[Hashable], succs: Lists) -> list[int]:
    """Equal for operators whose modes and descendants look alike; not all such are interchangeable."""
    numbers: dict[Hashable, int] = {}
    colors = [0] * len(modes)
    for i in reversed(range(len(modes))):
        look = (modes[i], *sorted(colors[j] for j in succs[i]))
        colors[i] = numbers.setdefault(look, len(numbers))
    return colors


def _branch(first: int, preds: Lists, succs: Lists, colors: Sequence[int]) -> list[int]:
    """The branch of an operator in an order that depends on looks before numbers."""
    branch, held = [first], dict.fromkeys(range(len(preds)), 0)
    for i in branch:
        for j in sorted(succs[i], key=lambda j: (colors[j], j)):
            held[j] += 1
            if held[j] == len(preds[j]):
                branch.append(j)
    return branch


def _correspond(one: list[int], two: list[int], succs: Lists, colors: Sequence[int]) -> bool:
    """Whether equal places of two branches look alike and have corresponding or the same successors."""
    if len(one) != len(two) or not set(one).isdisjoint(two):
        return False
    image = dict(zip(one, two, strict=True))
    return all(
        colors[i] == colors[j] and {image.get(k, k) for k in succs[i]} == set(succs[j])
        for i, j in image.items()
    )
