"""Stalled cycles of SCALE-Sim v3: an array that waits for its operand and result buffers.

Refills of a buffer follow each other without a pause, as if room for them were always there. A word that is
asked for before its refill is in stalls the array by twice the time it is missing, and one that is there
early gains nothing; so does the tool. The three interfaces stall the array side by side: the
longest wait of a cycle counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze.cost.scalesim import Dataflow, layout
from phaze.cost.scalesim_reads import Operand, operands
from phaze.cost.scalesim_writes import NEVER, ResultBuffer, result_words
from phaze.workload.work import Gemm


@dataclass(frozen=True, slots=True)
class Interfaces:
    """Three interfaces to memory, one per operand and one for results, all alike.

    `buffer_words`: size of the buffer behind each, half of it at work at a time; `words_per_cycle`: bandwidth.
    """

    buffer_words: int
    words_per_cycle: int


@dataclass(frozen=True, slots=True)
class StalledRun:
    """What the tool reports of a product.

    `cycles`: total, one less than the demand matrix has rows, plus `stall_cycles`; `whole_cycles`: from the first
    prefetch to the last write; `read_words`: of both operands, in the order of `operands`, padding included.
    """

    cycles: int
    stall_cycles: int
    whole_cycles: int
    read_words: tuple[int, int]
    written_words: int


@dataclass(slots=True)
class _Refills:
    """One operand's buffer while the array runs: refills ahead, and the cycle at which the last one was in."""

    queue: list[tuple[int, int]]
    cycles_each: int
    done: int = 0
    last_in: int = -1  # the working half is filled before the first cycle

    @property
    def next_cycle(self) -> int:
        return self.queue[self.done][0] if self.done < len(self.queue) else NEVER

    def serve(self, cycle: int, stall: int) -> int:
        """How long the array waits for this operand in one of its cycles; negative: it could have been faster."""
        if self.next_cycle != cycle:
            return 0
        served = cycle + stall + 1
        for _ in range(self.queue[self.done][1]):
            self.last_in += self.cycles_each
            served = self.last_in + max(0, self.last_in - served)
        self.done += 1
        return served - (cycle + stall + 1)


def stalled_run(
    dataflow: Dataflow, gemm: Gemm, rows: int, columns: int, interfaces: Interfaces
) -> StalledRun:
    """One of the groups of a product with buffers of finite size and bandwidth."""
    plan, size, rate = (
        layout(dataflow, gemm, rows, columns),
        interfaces.buffer_words,
        interfaces.words_per_cycle,
    )
    both = operands(plan)
    lines = -(-(size - -(-size // 2)) // rate)  # of a refill
    reads = [_Refills(o.refills(plan, size), lines + 1) for o in both]
    results = ResultBuffer(result_words(plan), size, rate)
    stall = _stall_cycles(reads, results)
    cycles = plan.cycles - 1 + stall
    written = results.empty(cycles)
    first = [_first_lines(o, interfaces) for o in both]
    refilled = [sum(many for _, many in r.queue) for r in reads]
    return StalledRun(
        cycles,
        stall,
        written + max(first),
        ((first[0] + refilled[0] * lines) * rate, (first[1] + refilled[1] * lines) * rate),
        results.written,
    )


def _stall_cycles(reads: list[_Refills], results: ResultBuffer) -> int:
    """Go through the array's cycles in which a buffer may make it wait."""
    stall, cycle = 0, -1
    while True:
        cycle = min(results.next_cycle(cycle, stall), *(r.next_cycle for r in reads))
        if cycle == NEVER:
            return stall
        stall += max(results.serve(cycle, stall), *(r.serve(cycle, stall) for r in reads))


def _first_lines(operand: Operand, interfaces: Interfaces) -> int:
    """Lines that fill the working half before the first cycle; all of a small operand."""
    rate = interfaces.words_per_cycle
    half = -(-interfaces.buffer_words // 2)
    whole = -(-operand.padded_words // rate)
    return min(-(-half // rate), whole)
