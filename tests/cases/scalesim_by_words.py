"""SCALE-Sim's buffers word by word and cycle by cycle: slow, and knows no closed forms."""

from __future__ import annotations

import math

import numpy as np


def run_by_words(flow, sizes, array, buffer_words, rate):
    """(total cycles, stall cycles) of a product of (m, k, n) on an array of (rows, columns)."""
    demands, orders = _demands(flow, sizes, array)
    sources = [_Source(order, buffer_words, rate) for order in orders]
    sink = _Sink(buffer_words, rate)
    stall = 0
    for cycle, (first, second, results) in enumerate(zip(*demands, strict=True)):
        now = cycle + stall
        waits = [source.ask(words, now) for source, words in zip(sources, (first, second), strict=True)]
        stall += max(*waits, sink.take(int((results >= 0).sum()), now))
    return len(demands[0]) - 1 + stall, stall


class _Source:
    """A ring of blocks of an operand; `start` is the first block at hand."""

    def __init__(self, order, size, rate):
        block, half = math.ceil(size / 100), math.ceil(size / 2)
        self.block_of = {int(word): i // block for i, word in enumerate(order)}
        self.blocks = len(order) // block + 1
        self.working = min(self.blocks, math.ceil(half / block))
        self.step = min(self.blocks - self.working, math.ceil((size - half) / block))
        self.start, self.last_in, self.each = 0, -1, math.ceil((size - half) / rate) + 1

    def ask(self, words, now):
        served = now + 1
        for word in words[words >= 0]:
            while (self.block_of[int(word)] - self.start) % self.blocks >= self.working:
                self.start = (self.start + self.step) % self.blocks
                self.last_in += self.each
                late = self.last_in - served
                served += 2 * late if late > 0 else late
        return served - now - 1


class _Sink:
    """Results in lines; `free` words of room as the tool counts them."""

    def __init__(self, size, rate):
        self.size, self.half, self.rate, self.free = size, math.ceil(size / 2), rate, size
        self.line, self.lines, self.busy_until = 0, [], 0

    def take(self, words, now):
        arrived = now
        for _ in range(words):
            self.line += 1
            self.free -= 1
            if self.line == self.rate:
                self.flush()
            if now < self.busy_until:
                now = max(now, self.busy_until) if self.free <= 0 else now
            elif self.free < self.half:
                self.flush()
                count = math.ceil((self.size - self.half) / self.rate)
                leaving, self.lines = self.lines[:count], self.lines[count:]
                self.free += (len(leaving) - 1) * self.rate + leaving[-1]
                self.busy_until = now + len(leaving) - 1
        return now - arrived

    def flush(self):
        if self.line:
            self.lines.append(self.line)
        self.line = 0


def _demands(flow, sizes, array):
    """((first operand, second operand, results) demanded per cycle, -1: none), and both operands' order in memory."""
    m, k, n = sizes
    left, right = np.arange(m * k).reshape(m, k), np.arange(k * n).reshape(k, n)
    if flow == "is":
        (m, n), (left, right) = (n, m), (right.T, left.T)
    rows, columns = array
    kept = flow == "os"
    down = [left[i : i + rows].T for i in range(0, m, rows)] if kept else _cut(left, rows)
    parts, loads = [], _cut(right, columns)
    for across in loads:
        for fold, streamed in enumerate(down):
            if kept:
                parts.append(_keep_results(streamed, across, array, k))
            else:
                parts.append(_keep_operand(streamed, across[fold * rows : (fold + 1) * rows], array, m))
    demands = tuple(np.concatenate([part[i] for part in parts]) for i in range(3))
    orders = (
        _diagonals(down, rows),
        _diagonals(loads, columns) if kept else np.concatenate([c.ravel() for c in loads]),
    )
    return demands, orders


def _keep_results(streamed, across, array, steps):
    rows, columns = array
    high, wide = streamed.shape[1], across.shape[1]
    results = np.zeros((high, wide), dtype=int)
    length = rows + columns + steps - 2
    return (
        _skew(streamed, 0, length, rows),
        _skew(across, 0, length, columns),
        _skew(results, steps - 1 + rows - high, length, columns),
    )


def _keep_operand(streamed, kept, array, steps):
    rows, columns = array
    length = 2 * rows + columns + steps - 2
    loading = np.full((length, columns), -1)
    loading[rows - len(kept) : rows, : kept.shape[1]] = kept[::-1]
    results = np.zeros((steps, kept.shape[1]), dtype=int)
    return _skew(streamed, rows, length, rows), loading, _skew(results, 2 * rows - 1, length, columns)


def _cut(matrix, width):
    return [matrix[:, i : i + width] for i in range(0, matrix.shape[1], width)]


def _skew(matrix, lead, length, width):
    """Column c begins c cycles after `lead`."""
    out = np.full((length, width), -1)
    for c in range(matrix.shape[1]):
        out[lead + c : lead + c + len(matrix), c] = matrix[:, c]
    return out


def _diagonals(folds, width):
    """Folds below each other, read along diagonals, from the left."""
    padded = [np.pad(f, ((0, 0), (0, width - f.shape[1])), constant_values=-1) for f in folds]
    matrix = np.concatenate(padded)
    row, column = np.indices(matrix.shape)
    words = matrix.ravel()[np.lexsort((column.ravel(), (row + column).ravel()))]
    return words[words >= 0]
