"""The analytic cost model: latency of every operator on every architecture.

Fidelity `analytic`: mechanistic, from the hardware fields alone. Latency of an operator is the slowest of
compute, global-buffer traffic and HBM traffic, which overlap under double buffering, plus the fill of
the arrays and the launch, which nothing hides; compiled software feeds arrays and memory only in part
(`phaze.cost.software_losses`; fidelity `ideal`: wholly). On SIMT chips it is that of its kernel
(`phaze.cost.kernels`), by constants of all chips or, under fidelity `calibrated`, of the chip's family.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.collectives.collective_times import link_s
from phaze.cost.fidelity import Fidelity
from phaze.cost.hardware_factors import Factors, factor_table
from phaze.cost.kernels.fitted_constants import NO_OWN, OwnConstants
from phaze.cost.latency_bound import LowerTables, lower_s, lower_tables
from phaze.cost.operator_tables import GemmTables, LinkTimes, OperatorTables, operator_tables
from phaze.cost.serial_blocks import SerialBlocks
from phaze.cost.simt_chips import SimtTimes
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.workload.work import Link, Pass, Work

_BLOCK = (
    1024  # architectures at a time: gathered blocks of a layer's operators stay in the second-level cache
)


class Bottleneck(StrEnum):
    """Bottleneck: the resource that sets an operator's latency."""

    COMPUTE = "compute"
    BUFFER = "global buffer"
    HBM = "HBM"
    LINK = "link"


@dataclass(frozen=True)
class OperatorLatencies:
    """Latencies in s of O operators on A architectures.

    `single_s` (A, O): on one core of each kind the operator uses (a collective: on the link).
    `parallel_s` (A, O): on all cores of these kinds; inf for collectives. `hbm_s`, `buffer_s` (A,):
    all bytes of the pass over the bandwidth that operators running side by side share.
    """

    single_s: Floats
    parallel_s: Floats
    hbm_s: Floats
    buffer_s: Floats

    def take(self, rows: Rows) -> OperatorLatencies:
        """Latencies on some of the architectures."""
        return OperatorLatencies(
            self.single_s[rows], self.parallel_s[rows], self.hbm_s[rows], self.buffer_s[rows]
        )


@dataclass(frozen=True)
class Attribution:
    """Seconds that each resource alone would need, (A, O), in the faster mode.

    The latency is their maximum plus `fill_s`.
    """

    compute_s: Floats
    buffer_s: Floats
    hbm_s: Floats
    link_s: Floats
    fill_s: Floats

    @property
    def binding(self) -> NDArray[np.str_]:
        """The bottleneck of every operator (A, O), by the names of `Bottleneck`."""
        times = np.stack([self.compute_s, self.buffer_s, self.hbm_s, self.link_s])
        names: NDArray[np.str_] = np.array([b.value for b in Bottleneck])[times.argmax(axis=0)]
        return names


class CostModel:
    """Costs passes on every architecture of a table; distinct products are costed once over all passes."""

    def __init__(
        self,
        table: ArchitectureTable,
        network: Network,
        rung: Fidelity = Fidelity.ANALYTIC,
        own: OwnConstants = NO_OWN,
        like: CostModel | None = None,
    ) -> None:
        """Factor the table; collectives of tensor-parallel groups run over `network`.

        `own`: constants that the calibrated fidelity takes before those of a chip's family. `like`: a model of the same
        chips, whatever their links: what products take is shared with it.
        """
        self.network = network
        self.rung, self.own = rung, own
        self.factors = factor_table(table, rung)
        self._gemms: GemmTables = GemmTables(self.factors, None if like is None else like._gemms)
        self._links = LinkTimes(network, self.factors.memory)
        self._tables: dict[tuple[Work, ...], OperatorTables] = {}
        self._lower: dict[Pass, LowerTables] = {}
        self._simt = SimtTimes(self.factors.simt, network, rung, own)

    def on(self, table: ArchitectureTable) -> CostModel | None:
        """The same costs at the positions of other architectures; None where one shows a new combination."""
        factors = self.factors.on(table)
        if factors is None:
            return None
        other = copy(self)
        other.factors = factors
        return other

    def costs(self, pass_: Pass) -> PassCosts:
        """Cost all operators of a pass on all distinct hardware combinations; equal passes share their tables."""
        works = tuple(pass_.works)
        if works not in self._tables:
            self._tables[works] = operator_tables(works, self.factors, self._gemms, self._links)
        return PassCosts(pass_, self.factors, self._tables[works], self._simt)

    def lower_tables(self, pass_: Pass, blocks: SerialBlocks | None = None) -> LowerTables:
        """Bounds of a pass per distinct hardware combination, for `phaze.cost.latency_bound.lower_s`; they are kept.

        `blocks`: those of the pass, where they are known.
        """
        if pass_ not in self._lower:
            self._lower[pass_] = self.costs(pass_).lower_tables(blocks)
        return self._lower[pass_]

    def links_s(self, links: Sequence[Link]) -> Floats:
        """Seconds of collectives on every memory side, (M, L); `factors.memory_of` tells those of architectures."""
        found = [self._links[link] for link in links]
        return np.array(found).reshape(len(links), len(self.factors.memory.link_bytes_per_s)).T

    def fastest_s(self, works: Sequence[Work], rows: Rows) -> Floats:
        """Each operator of any passes in its faster mode on some architectures, (A, O); a collective on its link."""
        fastest, simt = np.empty((len(rows), len(works))), self.factors.simt_of[rows] >= 0
        if not simt.all():
            found = self.costs(Pass(tuple(works), ())).latencies(rows[~simt])
            fastest[~simt] = np.fmin(found.single_s, found.parallel_s)
        for at in np.flatnonzero(simt).tolist():
            fastest[at] = self._kernels_s(works, int(rows[at]))
        return fastest

    def _kernels_s(self, works: Sequence[Work], row: int) -> Floats:
        """Seconds of the operators on one architecture that runs kernels, (O,): collectives are costed once each."""
        number = self.factors.simt_of[row]
        links = self.factors.memory.link_bytes_per_s[self.factors.memory_of[row]]
        computing = [w for w in works if w.link is None]
        exchanges = {w.link: 0.0 for w in works if w.link is not None}
        for link in exchanges:
            exchanges[link] = float(link_s(link, self.network, links))
        kernel_s = iter(self._simt.alone_s(computing)[number].tolist())
        return np.array([next(kernel_s) if w.link is None else exchanges[w.link] for w in works])


@dataclass(frozen=True)
class PassCosts:
    """One pass of a layer on every architecture. `rows` are positions in the model's table."""

    pass_: Pass
    factors: Factors
    tables: OperatorTables
    simt: SimtTimes

    def on(self, model: CostModel) -> PassCosts:
        """The same costs at the positions of another model's architectures; it must be derived from this one's."""
        return PassCosts(self.pass_, model.factors, self.tables, self.simt)

    def latencies(self, rows: Rows) -> OperatorLatencies:
        """Latency of every operator in both modes on the given architectures."""
        where = np.asarray(rows, dtype=np.intp)
        shape = (len(where), len(self.pass_.works))
        single, parallel = np.empty(shape), np.empty(shape)
        for start in range(0, len(where), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._gather(where[block], single[block], parallel[block])
        self._gather_kernels(where, single, parallel)
        return OperatorLatencies(single, parallel, self.hbm_s(where), self.buffer_s(where))

    def hbm_s(self, rows: Rows) -> Floats:
        """Seconds to move all HBM bytes of the pass, (A,); on SIMT chips every tensor once."""
        total: Floats = self.tables.total_hbm_s[self.factors.memory_of[rows]]
        at, number = self._on_simt(rows)
        if len(at):
            total[at] = self.simt.hbm_s(self.pass_.works)[number]
        return total

    def buffer_s(self, rows: Rows) -> Floats:
        """Seconds to move all bytes of the pass through the global buffer, (A,); 0 on SIMT chips."""
        cycles: Floats = self.tables.total_buffer_cycles[self.factors.tensor_of[rows]]
        return np.where(self.factors.simt_of[rows] >= 0, 0.0, cycles * self.factors.cycle_s[rows])

    def lower_s(self, rows: Rows) -> Floats:
        """Lower bound in s, (A,), on the latency of the pass under any schedule of the two modes."""
        return lower_s(self.factors, self.lower_tables(), rows)[:, 0]

    def lower_tables(self, blocks: SerialBlocks | None = None) -> LowerTables:
        """Bounds of the pass per distinct hardware combination, for `phaze.cost.latency_bound.lower_s`; not kept.

        `blocks`: those of the pass, where they are known.
        """
        simt_s = self.simt.pass_least_s(self.pass_.works, self.tables.kinds)
        return lower_tables(blocks or SerialBlocks.of(self.pass_), self.factors, self.tables, simt_s)

    def attribution(self, rows: Rows) -> Attribution:
        """Latency attribution: seconds that each resource alone would take, to explain a few architectures."""
        where = np.asarray(rows, dtype=np.intp)
        tensor, vector, memory = (f[where] for f in self._indices)
        cycle_s, t = self.factors.cycle_s[where, None], self.tables
        single = np.maximum(t.tensor.single[tensor], t.vector_single_cycles[vector])
        parallel = np.maximum(t.tensor.parallel[tensor], t.vector_parallel_cycles[vector])
        found = Attribution(
            compute_s=np.minimum(single, parallel) * cycle_s,
            buffer_s=t.tensor.buffer[tensor] * cycle_s,
            hbm_s=t.hbm_s[memory],
            link_s=t.link_s[memory],
            fill_s=t.fill_cycles(tensor) * cycle_s + t.launch_s,
        )
        self._attribute_kernels(where, found)
        return found

    @property
    def _indices(self) -> tuple[Rows, Rows, Rows]:
        return self.factors.tensor_of, self.factors.vector_of, self.factors.memory_of

    def _gather(self, rows: Rows, single: Floats, parallel: Floats) -> None:
        """Fill two (A, O) blocks in place."""
        tensor, vector, memory = (f[rows] for f in self._indices)
        cycle_s = self.factors.cycle_s[rows, None]
        off_chip = self.tables.off_chip_s[memory]
        fill = self.tables.fill_cycles(tensor) * cycle_s + self.tables.launch_s
        lanes = (self.tables.vector_single_cycles, self.tables.vector_parallel_cycles)
        for mode, out in enumerate((single, parallel)):
            np.take(self.tables.on_chip_cycles[mode], tensor, axis=0, out=out, mode="clip")
            np.maximum(out, lanes[mode][vector], out=out)
            np.multiply(out, cycle_s, out=out)
            np.maximum(out, off_chip, out=out)
            np.add(out, fill, out=out)
        parallel[:, self.tables.link] = np.inf

    def _gather_kernels(self, rows: Rows, single: Floats, parallel: Floats) -> None:
        """Replace the operators of SIMT architectures, in place; collectives stay."""
        at, number = self._on_simt(rows)
        if not len(at):
            return
        computing, alone = self.computing, self.kernel_s[number]
        parallel[np.ix_(at, computing)] = alone
        # On one core alone: not less than the pass, so that nothing gains by it (see `phaze.cost.simt_chips`).
        cores = np.maximum(self.factors.tensor.cores[self.factors.tensor_of[rows[at]]], 1.0)
        single[np.ix_(at, computing)] = np.maximum(alone * cores[:, None], alone.sum(axis=1, keepdims=True))

    def _attribute_kernels(self, rows: Rows, found: Attribution) -> None:
        """Give a kernel's time to compute, or to HBM where its bytes take longer than its arithmetic."""
        at, number = self._on_simt(rows)
        if not len(at):
            return
        where, alone = np.ix_(at, self.computing), self.kernel_s[number]
        streaming = found.hbm_s[where] > found.compute_s[where]
        found.compute_s[where] = np.where(streaming, 0.0, alone)
        found.hbm_s[where] = np.where(streaming, alone, found.hbm_s[where])
        found.buffer_s[where] = found.fill_s[where] = 0.0

    def _on_simt(self, rows: Rows) -> tuple[Rows, Rows]:
        """Positions in `rows` of SIMT architectures, and their numbers."""
        number = self.factors.simt_of[rows]
        at = np.flatnonzero(number >= 0)
        return at, number[at]

    @cached_property
    def computing(self) -> Rows:
        """Positions of the operators that are no collectives."""
        return np.flatnonzero(~self.tables.link)

    @cached_property
    def kernel_s(self) -> Floats:
        """Seconds of each operator that is no collective on the distinct SIMT architectures, (S, computing)."""
        return self.simt.alone_s([self.pass_.works[o] for o in self.computing])
