"""Lower bounds of the passes of a replica on many architectures at once: the layer grid with schedules left out.

What a bound adds up is what `LayerGrid` and `Replica` add up, of the same chains at the same points: sums over layers
of what their operators take at least, and what the engine adds. Exchanges between stages and kernels that wait for
hosts are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.latency_bound import LowerTables, lower_s, memory_lower_s, tensor_lower_s
from phaze.parallel.serving.replicas.chip_costs import Chips, Line, only_attention, without_attention
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.parallel.serving.serving_engine import NO_OVERHEADS, Overheads
from phaze.tolerances import BOUND_ROUNDING
from phaze.workload.work import LayerChain, Pass

_Part = tuple[LayerChain, Callable[[Pass], Pass], Floats]  # the last: how often each position counts


@dataclass(frozen=True)
class PassSums:
    """Sums of passes over the layers of chains: `times` (P, S), how often each pass is in each of the sums."""

    passes: tuple[Pass, ...]
    times: Floats

    @classmethod
    def of(cls, parts: Iterable[_Part]) -> PassSums:
        """Sums over parts of chains."""
        known: dict[Pass, int] = {}
        columns: list[dict[int, float]] = []
        for chain, part, counts in parts:
            column: dict[int, float] = {}
            each = np.bincount(chain.index, weights=counts, minlength=len(chain.layers))
            for layer, often in zip(chain.layers, each.tolist(), strict=True):
                if often and (pass_ := part(layer.forward)).works:
                    at = known.setdefault(pass_, len(known))
                    column[at] = column.get(at, 0.0) + often
            columns.append(column)
        times = np.zeros((len(known), len(columns)))
        for number, column in enumerate(columns):
            times[list(column), number] = list(column.values())
        return cls(tuple(known), times)

    def tables(self, chips: Chips) -> LowerTables:
        """Bounds of the sums per combination of hardware, for `least_s`."""
        return LowerTables.join([chips.model.lower_tables(p) for p in self.passes]).weighted(self.times)

    def path_s(self, chips: Chips) -> Floats:
        """Seconds that the sums take at least on every architecture, (A, S), by what each operator takes on it."""
        each = [chips.least_s(p) for p in self.passes]
        found: Floats = np.stack(each, axis=1) @ self.times
        return found


@dataclass(frozen=True)
class GridSums:
    """All sums that the passes of a grid are made of, in the order of `lines`."""

    grid: LayerGrid

    @cached_property
    def sums(self) -> PassSums:
        """The sums."""
        return PassSums.of(self._parts())

    def _parts(self) -> Iterable[_Part]:
        grid, head = self.grid, self.grid.samples.astype(np.float64)
        for of in (1.0 - head, head):
            yield from ((chain, without_attention, of) for chain in grid.token_chains)
        every = np.ones(len(head))
        for context in grid.contexts:
            yield from ((chain, only_attention, every) for chain in grid.decode_chains(context))
        for size in grid.chunks:
            yield from ((chain, only_attention, every) for chain in grid.chunk_chains(size))
        yield from ((chain, only_attention, every) for chain in grid.prompt_chains)

    def lines(self, sums_s: Floats) -> LeastPasses:
        """The passes of architectures whose sums take so long, (A, S)."""
        grid, left = self.grid, sums_s.T * (1 - BOUND_ROUNDING)

        def line(points: list[int]) -> Line:
            nonlocal left
            values, left = left[: len(points)], left[len(points) :]
            return Line(np.array(points, dtype=np.float64), values)

        body, head = line(grid.token_points), line(grid.token_points)
        attention = [line(grid.batch_points) for _ in grid.contexts]
        chunks = {size: line(grid.befores(size)) for size in grid.chunks}
        prompts = line(grid.prompt_points)
        return LeastPasses(grid, body, head, (attention[0], attention[-1]), chunks, prompts)

    def coarsest(self, chips: Chips, tables: LowerTables, rows: Rows) -> LeastPasses:
        """The passes of some architectures, whatever their cores are."""
        return self.lines(memory_lower_s(chips.model.factors, tables, rows))

    def coarse(self, chips: Chips, tables: LowerTables, rows: Rows) -> LeastPasses:
        """The passes of some architectures, whatever their vector cores are."""
        return self.lines(tensor_lower_s(chips.model.factors, tables, rows))

    def cheap(self, chips: Chips, tables: LowerTables, rows: Rows) -> LeastPasses:
        """The passes of some architectures, from combinations of hardware alone."""
        return self.lines(lower_s(chips.model.factors, tables, rows))

    def tight(self, chips: Chips) -> LeastPasses:
        """The passes of all architectures, from what each operator takes on each of them."""
        cheap = lower_s(chips.model.factors, self.sums.tables(chips), np.arange(len(chips.table)))
        return self.lines(np.maximum(self.sums.path_s(chips), cheap))


def exact_passes(grid: LayerGrid) -> LeastPasses:
    """The passes of a grid on its own chip (A = 1), whose layers are costed: all of them on one stage."""
    head = grid.samples
    every = np.ones_like(head)

    def line(of: Line, where: NDArray[np.bool_] = every) -> Line:
        seconds = (of.values[..., 0] * where).sum(axis=-1, keepdims=True)
        return Line(of.points, seconds * (1 - BOUND_ROUNDING))

    first, last = (line(grid.decode_attention[at]) for at in (0, -1))
    chunks = {size: line(of) for size, of in grid.chunk_attention.items()}
    body, logits = line(grid.tokens, ~head), line(grid.tokens, head)
    return LeastPasses(grid, body, logits, (first, last), chunks, line(grid.prompt_attention))


@dataclass(frozen=True)
class LeastPasses:
    """Seconds of passes on all layers together at least; lines of values (points, A).

    `stages`: among which they are divided, each of which pays for what the engine adds (`overheads`).
    """

    grid: LayerGrid
    body: Line
    head: Line
    attention: tuple[Line, Line]
    chunks: Mapping[int, Line]
    prompts: Line
    overheads: Overheads = NO_OVERHEADS
    stages: int = 1

    def _added_s(self, batch: ArrayLike = 0.0) -> Floats:
        """What the engine adds to passes that decode some sequences (...,), on all stages together, (..., 1)."""
        of, count = self.overheads, np.asarray(batch, dtype=np.float64)[..., None]
        each = of.step_s + of.sequence_s * count
        found: Floats = self.stages * each + of.expert_layer_s * self.grid.expert_layers.sum()
        return found

    def decode_s(self, batch: Floats) -> Floats:
        """A pass that decodes some sequences (B,), with the mean context of a request, (B, A)."""
        return self.body.at(batch) + self.head.at(batch) + self._attention_s(batch) + self._added_s(batch)

    def mixed_s(self, batch: Floats, size: int) -> Floats:
        """A pass that decodes sequences (B,) beside a chunk, mean over the chunks of a prompt, (B, A)."""
        count = -(-self.grid.traffic.fresh_tokens // size)
        if count == 1:
            return self.joined_s(batch, np.ones(len(batch)))
        logits = (self.head.at(batch) * (count - 1) + self.head.at(batch + 1)) / count
        chunk = self._chunk_s(size, count) + self._added_s(batch)
        return self.body.at(batch + size) + logits + self._attention_s(batch) + chunk

    def joined_s(self, batch: Floats, prompts: Floats) -> Floats:
        """A pass that decodes sequences (B,) beside some whole prompts (B,), (B, A); straight where the body is."""
        tokens = batch + prompts * self.grid.traffic.fresh_tokens
        return (
            self.body.at(tokens)
            + self._logits_s(batch, prompts)
            + self._attention_s(batch)
            + self.prompts.at(prompts)
            + self._added_s(batch)
        )

    def prompt_s(self, prompts: ArrayLike = 1.0) -> Floats:
        """A pass of some whole prompts (...,), (..., A)."""
        each = np.asarray(prompts, dtype=np.float64)
        found: Floats = (
            self.body.at(each * self.grid.traffic.fresh_tokens) + self.head.at(each) + self.prompts.at(each)
        )
        with_engine: Floats = found + self._added_s(np.zeros(each.shape))
        return with_engine

    def _logits_s(self, batch: Floats, prompts: Floats) -> Floats:
        """Logits of sequences and prompts: exact for one prompt, by the least slope of the line for more."""
        if (prompts == 1).all():
            return self.head.at(batch + 1)
        slope = (np.diff(self.head.values, axis=0) / np.diff(self.head.points)[:, None]).min(axis=0)
        found: Floats = self.head.at(batch) + prompts[:, None] * slope
        return found

    def knots(self, size: int = 0, most: int = 1) -> Floats:
        """Batches between which passes beside so many prompt tokens, and without any, are straight lines, ascending.

        `most`: prompts that may be in a pass at most, beside which they are straight lines, too.
        """
        tokens = self.body.points
        points = np.concatenate(
            [tokens, self.attention[0].points, tokens - size, tokens - 1, tokens - most * size]
        )
        return np.unique(points[(points >= 1) & (points <= self.grid.largest_batch)])

    def _attention_s(self, batch: Floats) -> Floats:
        first, last = self.grid.contexts[0], self.grid.contexts[-1]
        share = (self.grid.traffic.mean_context - first) / (last - first) if last > first else 0.0
        return self.attention[0].at(batch) * (1 - share) + self.attention[1].at(batch) * share

    def _chunk_s(self, size: int, count: int) -> Floats:
        load, line = self.grid.traffic, self.chunks[size]
        befores = np.minimum(load.cached_tokens + np.arange(count) * size, load.prompt_tokens - size)
        found: Floats = line.at(befores.astype(np.float64)).mean(axis=0)
        return found
