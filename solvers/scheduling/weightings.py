"""Weightings of cores and paths under which nothing works faster than the clock.

Give every unit a weight, and every chain of operators that need cores one too, 1 in total. A running operator
works at the weights of the units it holds, times its shares of their cores, plus the weights of the chains it
is on; one that takes the whole chip stops every chain, so it works at rate 1. No set of operators that can run
side by side works faster than 1, so the least work of all operators bounds the makespan.

The best weights are a linear program, the dual of choosing (fractions of) modes such that neither a unit nor a
path takes too long. Chains are priced in one by one, the longest path under the chosen modes; each restricted
program is solved by a primal-dual interior-point method.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from .bounds import Bounds
from .indexed import IndexedProblem

Array = NDArray[np.float64]

SUFFIXES = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Shares of the operators, those nearest to the end, that one weighting each is made for."""

CHAINS = 12
"""Most chains priced in per weighting."""

STEPS, CENTRE, DAMPING = 25, 0.15, 0.95
"""Interior-point steps, how far each shrinks the complementarity, and the share of the way to the boundary."""

CLOSE = 1e-4
"""Relative gap at which a program counts as solved."""


@dataclass(frozen=True, slots=True)
class _Program:
    """Alive modes (J,) of operators that take time: owner, position, duration, rates (J, columns)."""

    owner: NDArray[np.intp]
    mode: NDArray[np.intp]
    duration: Array
    whole: NDArray[np.bool_]


def weightings(ix: IndexedProblem, bounds: Bounds) -> Array:
    """Work per tick of every operator in every mode (rows, O, M): one row for the problem, more for its later
    parts."""
    pairs = [
        (i, m, value)
        for i, row in enumerate(bounds.latency)
        for m, value in enumerate(row)
        if 0.0 < value < inf
    ]
    owner, mode, duration = (np.array(column) for column in zip(*pairs, strict=True))
    whole = np.array([ix.whole[i][m] for i, m, _ in pairs])
    program = _Program(owner, mode, duration / bounds.lower_s, whole)
    units = np.array([ix.modes[i][m].demand for i, m, _ in pairs], dtype=np.float64) / ix.capacity
    rank = np.argsort(np.argsort(bounds.tails, kind="stable"))
    columns, rows = units, []
    for share in SUFFIXES:
        counted = rank < np.ceil(share * ix.size)
        if not counted[owner].any():
            break
        columns, weights = _best(ix, program, columns, counted)
        rows.append(_spread(ix, program, columns @ weights))
    return np.array(rows)


def _spread(ix: IndexedProblem, program: _Program, rate: Array) -> Array:
    """Rates (J,) as a matrix of operators and modes."""
    table = np.zeros((ix.size, max(map(len, ix.modes))))
    table[program.owner, program.mode] = rate
    return table


def _best(
    ix: IndexedProblem, program: _Program, columns: Array, counted: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """The best weights for the work of the counted operators, and the columns they are for."""
    here = counted[program.owner]
    for _ in range(CHAINS):
        weights, fraction = _solve(program.owner[here], columns[here] * program.duration[here, None])
        spent = np.zeros(len(here))
        spent[here] = fraction * program.duration[here]
        chain = _longest_chain(ix, program, spent)
        column = np.where(program.whole | chain[program.owner], 1.0, 0.0)
        if spent @ column <= (1.0 + CLOSE) * (spent @ columns).max():
            break
        columns = np.column_stack([columns, column])
    else:
        weights = np.append(weights, 0.0)
    return columns, weights


def _longest_chain(ix: IndexedProblem, program: _Program, spent: Array) -> NDArray[np.bool_]:
    """Operators that need cores on the path with most time in modes that leave cores to others."""
    time = np.bincount(program.owner, np.where(program.whole, 0.0, spent), ix.size) * ix.core
    tails = ix.tails(time.tolist())
    chain, ahead = np.zeros(ix.size, dtype=np.bool_), list(range(ix.size))
    while ahead:
        i = max(ahead, key=lambda i: (time[i] + tails[i], -i))
        chain[i] = ix.core[i]
        ahead = list(ix.succs[i])
    return chain


def _solve(owner: NDArray[np.intp], work: Array) -> tuple[Array, Array]:
    """Weights x of the columns of `work` (J, K) that maximise the sum over owners of the least entry of
    `work @ x`, and the fractions of the entries that say which is least."""
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    sizes = np.diff(np.r_[first, len(owner)])
    x = np.full(work.shape[1], 1.0 / work.shape[1])
    slack = work @ x
    least = 0.9 * np.minimum.reduceat(slack, first)
    slack -= np.repeat(least, sizes)
    fraction = np.repeat(1.0 / sizes, sizes)
    cost = fraction @ work
    price = cost.max() + 0.1 * cost.mean()
    spare = price - cost
    for _ in range(STEPS):
        gap = fraction @ slack + spare @ x
        if gap <= CLOSE * least.sum():
            break
        target = CENTRE * gap / (len(slack) + len(x))
        to_fraction, to_spare = target / slack - fraction, target / x - spare
        density = fraction / slack
        dense = density[:, None] * work
        total, mixed = np.add.reduceat(density, first), np.add.reduceat(dense, first, axis=0)
        excess = np.add.reduceat(to_fraction, first)
        matrix = np.ones((len(x) + 1, len(x) + 1))
        matrix[-1, -1] = 0.0
        matrix[:-1, :-1] = work.T @ dense - mixed.T @ (mixed / total[:, None]) + np.diag(spare / x)
        right = np.append(to_fraction @ work - (excess / total) @ mixed + to_spare, 0.0)
        move = np.linalg.solve(matrix, right)
        d_x, d_price = move[:-1], move[-1]
        d_least = (mixed @ d_x - excess) / total
        d_slack = work @ d_x - np.repeat(d_least, sizes)
        d_fraction = to_fraction - density * d_slack
        d_spare = to_spare - spare / x * d_x
        primal = _step(slack, d_slack, x, d_x)
        dual = _step(fraction, d_fraction, spare, d_spare)
        x, slack, least = x + primal * d_x, slack + primal * d_slack, least + primal * d_least
        fraction, spare, price = fraction + dual * d_fraction, spare + dual * d_spare, price + dual * d_price
    return x / x.sum(), fraction


def _step(one: Array, d_one: Array, two: Array, d_two: Array) -> float:
    """Most of the way to where an entry becomes 0, at most 1."""
    shrink = max(float((-d_one / one).max()), float((-d_two / two).max()))
    return min(1.0, DAMPING / shrink) if shrink > 0.0 else 1.0
